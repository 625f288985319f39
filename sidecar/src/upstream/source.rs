//! What a server answers, as it is read: whole, or as a stream of events, and where that can be taken up again when it ends
//! early.

use bytes::Bytes;
use http::HeaderValue;
use http_body_util::BodyExt;
use longshore_mcp::batch;
use longshore_mcp::revision::Revision;
use longshore_mcp::sse::{Decoder, Event};
use thiserror::Error;
use tokio::time::{Duration, sleep};

use super::{Answer, Body, Broken, EDITABLE, Lease, Pause, Tail};
use crate::held::Coming;
use crate::whole_body::Gathered;

/// How long to wait before a stream is asked for again, if the server does not say, and at least.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MINIMUM: Duration = Duration::from_millis(50);
/// The longest id of an event that is kept, in bytes, for as long as the stream lasts. It would go into a header.
const MAX_EVENT_ID: usize = 8 * 1024;

/// The answer, or the stream, from one answer of the server's to the next.
pub(crate) struct Source {
    body: Body,
    lease: Lease,
    decoder: Decoder,
    coming: Coming,
    /// What the server speaks, if it has sessions.
    revision: Option<Revision>,
    /// Its last event's id.
    last: Option<String>,
    retry: Duration,
    pause: Pause,
}

/// Why nothing more of it is to be had.
#[derive(Debug, Error)]
pub(crate) enum Unread {
    /// Large messages are held, and there is no room for this one.
    #[error("there is no room for what the server says")]
    NotHeld,
    /// Larger than a message may be.
    #[error("what the server says is too large")]
    TooLarge,
    /// The rest will not come.
    #[error(transparent)]
    Broken(#[from] Broken),
}

impl Source {
    /// The source of the answer to a call. A server may have its client ask again and again until it has the answer.
    pub(crate) fn new(body: Body, lease: Lease, coming: Coming) -> Self {
        Self {
            body,
            lease,
            decoder: Decoder::new(EDITABLE),
            coming,
            revision: None,
            last: None,
            retry: RETRY,
            pause: Pause::new(RETRY),
        }
    }

    /// One that nobody waits for: it is asked for after this time at most where it ends again and again without a word.
    pub(crate) fn asked_for_within(self, latest: Duration) -> Self {
        Self { pause: Pause::new(latest), ..self }
    }

    /// The same of a server that speaks this in a session.
    pub(crate) fn speaking(self, revision: Revision) -> Self {
        Self { revision: Some(revision), ..self }
    }

    /// All of it, where it is one message, of so many bytes at most.
    pub(crate) async fn whole(&mut self, most: usize) -> Result<Bytes, Unread> {
        let Self { body, coming, .. } = self;
        let mut gathered = Gathered::of(&*body, most);
        let is_counted = coming.take_over(body.take_came());
        while let Some(frame) = coming.more(body.frame()).await.ok_or(Unread::NotHeld)? {
            if let Ok(data) = frame?.into_data() {
                gathered.push(data);
            }
            if gathered.len() > most {
                return Err(Unread::TooLarge);
            }
            coming.came(gathered.len());
            if !is_counted && !coming.room().await {
                return Err(Unread::NotHeld);
            }
        }
        coming.finish();
        Ok(gathered.freeze())
    }

    /// The messages that come next in a stream. None: it has ended in an orderly way.
    pub(crate) async fn messages(&mut self) -> Result<Option<Vec<Bytes>>, Unread> {
        // Whoever has those before was waited for.
        self.put_off();
        let mut messages = Vec::new();
        while messages.is_empty() {
            let Some(data) = self.next().await? else { return Ok(None) };
            self.read(&data, |event| messages.extend(event.into_message().map(Bytes::from)))?;
            self.settle();
        }
        Ok(Some(messages))
    }

    /// What comes next. None: the stream has ended in an orderly way.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Unread> {
        if !self.coming.room().await {
            return Err(Unread::NotHeld);
        }
        while let Some(frame) = self.coming.more(self.body.frame()).await.ok_or(Unread::NotHeld)? {
            self.coming.take_turn(self.body.take_turn());
            if let Ok(data) = frame?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// Takes data apart, and remembers where the stream is. What comes in a batch is as if it had come by itself.
    pub(crate) fn read(&mut self, data: &Bytes, mut each: impl FnMut(Event<'_>)) -> Result<(), Unread> {
        let Self { decoder, coming, revision, last, retry, pause, .. } = self;
        let read = decoder.push(data, |event| {
            coming.complete();
            if let Some(id) = &event.id {
                // What no header can say is nothing to come back with.
                let can_be_said = (1..=MAX_EVENT_ID).contains(&id.len()) && HeaderValue::from_str(id).is_ok();
                *last = can_be_said.then(|| id.clone().into_owned());
            }
            if let Some(milliseconds) = event.retry {
                *retry = Duration::from_millis(milliseconds);
            }
            let message = event.message();
            pause.spoke |= message.is_some();
            match message.and_then(|data| batch::parts(data, *revision)) {
                Some(parts) => parts.into_iter().for_each(|part| each(Event::of(part.as_bytes()))),
                None => each(event),
            }
        });
        coming.came(decoder.pending());
        read.map_err(|_| Unread::TooLarge)
    }

    /// What was read has found its place, and whoever reads it is waited for.
    pub(crate) fn settle(&mut self) {
        self.coming.settle();
    }

    /// Waits for whoever reads: while others wait for the turn that this has, as long as for a server. None: it takes longer.
    pub(crate) async fn while_it_may<T>(&self, reads: impl Future<Output = T>) -> Option<T> {
        self.coming.more(reads).await
    }

    /// Whoever reads was waited for until now.
    fn put_off(&mut self) {
        self.coming.put_off();
    }

    /// The same, for so long.
    pub(crate) fn held_up(&mut self, time: Duration) {
        self.coming.held_up(time);
    }

    /// After which event it can be taken up again.
    pub(crate) fn last(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// What follows that event is not to be had any more.
    pub(crate) fn forget_last(&mut self) {
        self.last = None;
    }

    /// A server has ended it early, as it may from 2025-11-25 on, or its connection broke, or is left in the middle. Returns
    /// when it may be asked for again. Who reads it need not know: it goes on.
    pub(crate) async fn ended(&mut self) {
        // A server that has one stream for a session gives no other one while it is open.
        (self.body, self.lease) = (Body::Whole(None), Lease::nothing());
        // Half an event was never sent, and comes again.
        self.decoder = Decoder::new(EDITABLE);
        self.coming.finish();
        sleep(self.retry.max(RETRY_MINIMUM).max(self.pause.ended())).await;
    }

    /// Goes on with another answer.
    pub(crate) fn go_on(&mut self, answer: Answer) {
        (self.body, self.lease) = (answer.body, answer.lease);
        self.pause.go_on();
    }

    /// What follows the answer that was in it, which should be nothing.
    pub(crate) fn into_tail(self) -> Tail {
        Tail::of(self.body, self.lease)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::upstream::waiting::channel;

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_is_left_in_the_middle_is_closed_before_it_is_asked_for_again() {
        let (to, from) = channel(1);
        let mut source = Source::new(Body::LegacyAsModern(from), Lease::nothing(), Coming::new(None));
        assert!(!to.is_closed());
        source.ended().await;
        assert!(to.is_closed());
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_is_known_by_an_id_that_a_header_can_have() {
        let mut source = Source::new(Body::Whole(None), Lease::nothing(), Coming::new(None));
        for (id, can_be_said) in [
            ("7".to_owned(), true),
            (String::new(), false),
            ("x".repeat(MAX_EVENT_ID), true),
            ("x".repeat(MAX_EVENT_ID + 1), false),
            ("\u{7f}".to_owned(), false),
        ] {
            let data = format!("id: {id}\ndata: {{}}\n\n");
            assert!(source.read(&data.into(), |_| ()).is_ok());
            assert_eq!(source.last(), Some(&*id).filter(|_| can_be_said), "{id:.9}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_message_is_no_word_of_the_servers() {
        let mut source = Source::new(Body::Whole(None), Lease::nothing(), Coming::new(None));
        let mut waits = Vec::new();
        for event in ["event: ping\n", "event: ping\n", "event: ping\n", ""] {
            let data = format!("id: 1\nretry: 0\n{event}data: {{}}\n\n");
            assert!(source.read(&data.into(), |_| ()).is_ok());
            let began = Instant::now();
            source.ended().await;
            waits.push(began.elapsed().as_millis());
            source.go_on(Answer::nothing());
        }
        assert_eq!(waits, [50, 100, 200, 50]);
    }
}
