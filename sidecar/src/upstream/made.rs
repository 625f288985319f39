//! An answer that is made here, message by message, by work that goes on for as long as somebody reads.
//!
//! The work is part of the body: it runs when the body is read, and whoever drops the body ends it. So it needs no task
//! and no owner of its own.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use longshore_mcp::sse;

use super::waiting::{Large, Receiver, Sender, Unread, channel};
use super::{Answer, Body, Failure};

/// How many messages wait for a slow reader before the work has to wait too.
const WAITING: usize = 16;

/// What makes messages, until it is done. What it gives then is the answer; none where nothing was asked.
type Work = Pin<Box<dyn Future<Output = Result<Option<Bytes>, Failure>>>>;

/// Messages that are being made.
pub(crate) struct Made {
    /// None once it is done.
    work: Option<Work>,
    said: Receiver<Bytes>,
    /// How it has ended, which is told after what was said before.
    end: Option<Result<Bytes, Failure>>,
    /// What was looked at already.
    first: Option<Bytes>,
}

/// A message.
enum Said {
    /// Something before the answer, or where there is none.
    Aside(Bytes),
    /// The answer.
    Answer(Bytes),
}

/// The end of whoever makes messages: for all but the answer.
#[derive(Clone)]
pub(super) struct Out(Sender<Bytes>);

impl Large for Bytes {
    fn size(&self) -> usize {
        self.len()
    }
}

impl Out {
    /// Gives a message that is not the answer.
    pub(super) async fn aside(&self, message: impl Into<Bytes>) -> Result<(), Unread> {
        self.0.send(message.into()).await
    }
}

impl Made {
    /// Messages that this work makes.
    pub(super) fn new<W>(work: impl FnOnce(Out) -> W) -> Self
    where
        W: Future<Output = Result<Option<Bytes>, Failure>> + 'static,
    {
        let (out, said) = channel(WAITING);
        Self { work: Some(Box::pin(work(Out(out)))), said, end: None, first: None }
    }

    /// Waits for the first message. If it is the answer that is all there is, as JSON; otherwise what comes are events.
    pub(super) async fn respond(mut self) -> Result<Answer, Failure> {
        match std::future::poll_fn(|cx| self.poll_said(cx)).await {
            Some(Ok(Said::Answer(message))) => Ok(Answer::of(Body::Whole(Some(message)))),
            Some(Ok(Said::Aside(message))) => {
                self.first = Some(sse::message(&message).into());
                Ok(self.events())
            }
            Some(Err(failure)) => Err(failure),
            None => Ok(self.events()),
        }
    }

    /// An answer of events, whenever the first of them comes.
    pub(super) fn events(self) -> Answer {
        Answer::of(Body::Made(Box::new(self)))
    }

    /// Whether everything has been read.
    pub(super) fn is_over(&self) -> bool {
        self.work.is_none() && self.first.is_none() && self.end.is_none() && self.said.is_empty()
    }

    /// The next event.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let said = ready!(self.poll_said(cx));
        Poll::Ready(said.map(|said| {
            said.map(|said| match said {
                Said::Aside(message) | Said::Answer(message) => sse::message(&message).into(),
            })
        }))
    }

    fn poll_said(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Said, Failure>>> {
        if let Some(work) = &mut self.work
            && let Poll::Ready(result) = work.as_mut().poll(cx)
        {
            // With it goes its end of the channel, so that the rest comes to an end below.
            self.work = None;
            self.end = result.transpose();
        }
        Poll::Ready(match ready!(self.said.poll_recv(cx)) {
            Some(aside) => Some(Ok(Said::Aside(aside))),
            None => self.end.take().map(|end| end.map(Said::Answer)),
        })
    }
}
