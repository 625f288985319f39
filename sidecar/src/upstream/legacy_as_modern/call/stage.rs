//! Where a call stands, and what can happen to it there.

use bytes::Bytes;
use futures::future::OptionFuture;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::Call;
use crate::upstream::Failure;
use crate::upstream::legacy_as_modern::client::Client;
use crate::upstream::legacy_as_modern::parking::Place;
use crate::upstream::legacy_as_modern::source::Heard;

pub(super) enum Stage {
    /// The client waits for the server.
    Serving(Client),
    /// The server has asked something, and may ask more until then.
    Gathering(Client, Instant),
    /// The server waits for the client, or has ended the call meanwhile.
    Waiting(Box<Waiting>),
    /// It is answered.
    Over,
}

/// A call that waits for its client.
pub(super) struct Waiting {
    pub(super) place: Place,
    pub(super) back: mpsc::Receiver<Client>,
    pub(super) until: Instant,
    /// How the server has ended the call in the meantime.
    pub(super) ended: Option<Result<Bytes, Failure>>,
}

/// What happens next.
pub(super) enum Event {
    Heard(Heard),
    Gone,
    Gathered,
    Silent,
    Back(Client),
    Expired,
    /// Another server is configured.
    Left,
}

impl Call {
    /// Waits for what happens next.
    pub(super) async fn next(&mut self, silence: Instant) -> Event {
        let Self { way, inbox, reading, stage, .. } = self;
        let expired = |at: Instant| async move { sleep_until(at).await };
        loop {
            let read = OptionFuture::from(reading.as_mut());
            let (heard, left) = (inbox.1.recv(), way.left());
            let is_over = match stage {
                Stage::Serving(client) => {
                    let (silent, waits) = (expired(silence), client.is_waiting());
                    tokio::select! {
                        biased;
                        () = client.gone() => return Event::Gone,
                        Some(heard) = heard => return Event::Heard(heard),
                        () = left => return Event::Left,
                        () = silent, if waits => return Event::Silent,
                        Some(()) = read => true,
                    }
                }
                Stage::Gathering(client, until) => tokio::select! {
                    biased;
                    () = client.gone() => return Event::Gone,
                    Some(heard) = heard => return Event::Heard(heard),
                    () = left => return Event::Left,
                    () = expired(*until) => return Event::Gathered,
                    Some(()) = read => true,
                },
                Stage::Waiting(waiting) => tokio::select! {
                    biased;
                    Some(client) = waiting.back.recv() => return Event::Back(client),
                    Some(heard) = heard => return Event::Heard(heard),
                    () = left => return Event::Left,
                    () = expired(waiting.until) => return Event::Expired,
                    Some(()) = read => true,
                },
                Stage::Over => return Event::Gone,
            };
            if is_over {
                *reading = None;
            }
        }
    }

    /// The client, if it waits for the server.
    pub(super) fn client(&mut self) -> Option<&mut Client> {
        match &mut self.stage {
            Stage::Serving(client) | Stage::Gathering(client, _) => Some(client),
            Stage::Waiting(_) | Stage::Over => None,
        }
    }
}
