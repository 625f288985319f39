//! What a server answers, as it comes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use thiserror::Error;

use super::call::Matched;
use super::made::Made;
use super::waiting::Receiver;
use super::{Events, Failure, Form, call};
use crate::held::{Came, Turn};

/// An answer's body.
pub(crate) enum Body {
    /// From a connection, where its head says which form it has.
    Http(Incoming, Form),
    /// A message, or nothing.
    Whole(Option<Bytes>),
    /// An answer of a process, and what is known of it.
    Answer(Option<Bytes>, Matched),
    /// One of these with a large message, and what counts that.
    Counted(Box<(Self, Came)>),
    /// What a process says until its answer, as events.
    Events(Box<Events>),
    /// What is made here of something else, as events.
    Made(Box<Made>),
    /// What is put together here, in pieces.
    LegacyAsModern(Receiver<Result<Bytes, Broken>>),
}

/// The rest of a body will not come.
#[derive(Debug, Error)]
pub(crate) enum Broken {
    /// The connection broke.
    #[error("the connection broke")]
    Http(#[from] hyper::Error),
    /// The process is gone, or nothing more will come from it for this call.
    #[error(transparent)]
    Call(#[from] call::Failure),
    /// What it was to be made of did not come.
    #[error(transparent)]
    Made(#[from] Failure),
}

impl Body {
    /// A message, and what counts it.
    pub(crate) fn counted(message: Bytes, came: Option<Came>) -> Self {
        Self::answer(message, None, came)
    }

    /// The same of an answer of which this is known.
    pub(super) fn answer(message: Bytes, matched: Option<Matched>, came: Option<Came>) -> Self {
        let whole = match matched {
            Some(matched) => Self::Answer(Some(message), matched),
            None => Self::Whole(Some(message)),
        };
        match came {
            Some(came) => Self::Counted(Box::new((whole, came))),
            None => whole,
        }
    }

    /// Which form it has, until something of it is read.
    pub(crate) fn form(&self) -> Form {
        match self {
            Self::Http(_, form) => *form,
            Self::Whole(None) | Self::Answer(None, _) => Form::Other,
            Self::Whole(Some(_)) | Self::Answer(Some(_), _) | Self::Counted(_) => Form::Json,
            Self::Events(_) | Self::Made(_) | Self::LegacyAsModern(_) => Form::Events,
        }
    }

    /// What is known of the answer that this is, if it was read where it came.
    pub(crate) fn matched(&self) -> Option<Matched> {
        match self {
            Self::Answer(_, matched) => Some(*matched),
            Self::Counted(counted) => counted.0.matched(),
            Self::Http(..) | Self::Whole(_) | Self::Events(_) | Self::Made(_) | Self::LegacyAsModern(_) => {
                None
            }
        }
    }

    /// Whether all that comes before the answer is certainly of the call that is answered. Where calls share one way from
    /// the server, nothing says which of them it asks in.
    pub(crate) fn is_of_one_call(&self) -> bool {
        !matches!(self, Self::Events(_))
    }

    /// What counts the message that this is. From now on whoever asks counts it.
    pub(crate) fn take_came(&mut self) -> Option<Came> {
        match std::mem::replace(self, Self::Whole(None)) {
            Self::Counted(counted) => {
                let (whole, came) = *counted;
                *self = whole;
                Some(came)
            }
            other => {
                *self = other;
                None
            }
        }
    }

    /// The turn of the message whose events these are. Whoever reads them needs it.
    pub(crate) fn take_turn(&mut self) -> Option<Turn> {
        let Self::Events(events) = self else { return None };
        events.take_turn()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match &mut *self {
            Self::Http(body, _) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(Broken::Http)))
            }
            Self::Whole(bytes) | Self::Answer(bytes, _) => {
                Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))))
            }
            Self::Counted(_) => {
                self.take_came();
                self.poll_frame(cx)
            }
            Self::Events(events) => {
                let piece = ready!(events.poll_next(cx));
                Poll::Ready(piece.map(|piece| piece.map(Frame::data).map_err(Broken::Call)))
            }
            Self::Made(made) => {
                let event = ready!(made.poll_next(cx));
                Poll::Ready(event.map(|event| event.map(Frame::data).map_err(Broken::Made)))
            }
            Self::LegacyAsModern(pieces) => {
                let piece = ready!(pieces.poll_recv(cx));
                Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http(body, _) => body.is_end_stream(),
            Self::Whole(bytes) | Self::Answer(bytes, _) => bytes.is_none(),
            Self::Counted(_) => false,
            Self::Events(events) => events.is_over(),
            Self::Made(made) => made.is_over(),
            Self::LegacyAsModern(_) => false,
        }
    }

    /// What is no connection's comes in one piece, or as events.
    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http(body, _) => body.size_hint(),
            _ => SizeHint::default(),
        }
    }
}
