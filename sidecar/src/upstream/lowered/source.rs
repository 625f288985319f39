//! What comes back from the server, message by message, whichever form it has.

use std::collections::VecDeque;

use http::StatusCode;
use http_body_util::BodyExt;
use longshore_mcp::envelope::{self, Id, Message, Response};
use longshore_mcp::sse::Decoder;

use super::Failure;
use crate::gathered::Gathered;
use crate::held::Coming;
use crate::upstream::{Answer, Body, EDITABLE, Failure as Any, Form, Lease, Tail};

/// An answer that is being read.
pub(super) struct Source {
    pub(super) status: StatusCode,
    /// Whether it is a stream of events.
    pub(super) streams: bool,
    body: Body,
    lease: Lease,
    decoder: Decoder,
    coming: Coming,
    ready: VecDeque<String>,
    over: bool,
}

impl Source {
    pub(super) fn new(answer: Answer, coming: Coming) -> Result<Self, Any> {
        let Answer { status, body, lease, .. } = answer;
        let form = body.form();
        if status.is_success() && form == Form::Other {
            return Err(Failure::Nonsense.into());
        }
        let streams = form == Form::Events;
        let (decoder, ready) = (Decoder::new(EDITABLE), VecDeque::new());
        Ok(Self { status, streams, body, lease, decoder, coming, ready, over: false })
    }

    /// The next message. None: there are no more.
    pub(super) async fn next(&mut self) -> Result<Option<String>, Any> {
        // Whoever has the one before was waited for.
        self.coming.put_off();
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Ok(Some(message));
            }
            if self.over {
                return Ok(None);
            }
            if self.streams {
                self.read_events().await?;
            } else {
                self.read_whole().await?;
            }
        }
    }

    /// The answer to the request of this id, without what comes before it. None: there is none.
    pub(super) async fn answer(&mut self, id: &str) -> Result<Option<String>, Any> {
        while let Some(message) = self.next().await? {
            if is_answer(&message, id) {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// Lets go of it. What follows the answer is read by whoever wants the connection next.
    pub(super) fn finish(self) {
        Tail::of(self.body, self.lease).leave();
    }

    async fn read_events(&mut self) -> Result<(), Any> {
        self.room().await?;
        let Some(frame) = self.coming.more(self.body.frame()).await.ok_or(Failure::NotHeld)? else {
            self.over = true;
            return Ok(());
        };
        self.coming.take_turn(self.body.take_turn());
        let Ok(data) = frame.map_err(broken)?.into_data() else { return Ok(()) };
        let Self { decoder, coming, ready, .. } = self;
        let read = decoder.push(&data, |event| {
            coming.complete();
            // What is no text is ignored.
            ready.extend(event.into_message().and_then(|message| String::from_utf8(message).ok()));
        });
        coming.came(decoder.pending());
        coming.settle();
        Ok(read.map_err(|_| Failure::TooLarge)?)
    }

    async fn read_whole(&mut self) -> Result<(), Any> {
        let mut gathered = Gathered::of(&self.body, EDITABLE);
        let is_counted = self.coming.take_over(self.body.take_came());
        while let Some(frame) = self.coming.more(self.body.frame()).await.ok_or(Failure::NotHeld)? {
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            gathered.push(data);
            if gathered.len() > EDITABLE {
                return Err(Failure::TooLarge.into());
            }
            self.coming.came(gathered.len());
            if !is_counted {
                self.room().await?;
            }
        }
        self.coming.finish();
        self.over = true;
        let whole = Vec::from(gathered.freeze());
        if !whole.is_empty() {
            self.ready.extend(String::from_utf8(whole).ok());
        }
        Ok(())
    }

    async fn room(&mut self) -> Result<(), Any> {
        if self.coming.room().await { Ok(()) } else { Err(Failure::NotHeld.into()) }
    }
}

/// Whether a message is the answer to the request of this id. An error without one is: a request that could not be read
/// has none, and nothing else was asked on this connection.
pub(super) fn is_answer(message: &str, id: &str) -> bool {
    match envelope::read_servers(message.as_bytes()) {
        Ok(Message::Response(response)) => answers(&response, id),
        _ => false,
    }
}

/// The same of a message that was read as a server's.
pub(super) fn answers(response: &Response<'_>, id: &str) -> bool {
    response.id.is_none_or(|got| got.answers(&Id::from_json(id)))
}

fn broken(broken: crate::upstream::Broken) -> Any {
    match broken {
        crate::upstream::Broken::Http(_) => Failure::BrokenOff.into(),
        crate::upstream::Broken::Call(failure) => failure.into(),
        crate::upstream::Broken::Made(failure) => failure,
    }
}
