//! What a process asks as soon as it is greeted. Its client opens its stream when it hears that its greeting was taken,
//! which is at about that time, and many servers ask no second time: so the question waits a moment for that, or for a call.
//! What only sets something is no such call: the sidecar itself says what a client has set where it begins its session again.

use bytes::Bytes;
use longshore_mcp::envelope::{self, Message};
use tokio::time::{Duration, Instant};

use super::Talk;
use crate::upstream::stdio::message::Key;

/// How long it waits.
const MOMENT: Duration = Duration::from_secs(2);
/// The largest that does: it is kept beside what is counted. Most ask for roots then, which takes a few words.
const MOST: usize = 4 * 1024;

/// The question.
#[derive(Default)]
pub(super) struct Early {
    /// And until when it waits.
    waits: Option<(Bytes, Instant)>,
    /// Its client has listened or called something, or did not in time.
    is_over: bool,
}

impl Early {
    pub(super) fn due(&self) -> Option<Instant> {
        self.waits.as_ref().map(|(_, until)| *until)
    }
}

impl Talk<'_> {
    /// Whether a question that nobody can be asked yet may wait.
    pub(super) fn may_wait(&self, line: &Bytes) -> bool {
        let may_come = !self.conversation.is_shared() && !self.conversation.is_own() && !self.early.is_over;
        may_come && !self.shaking && self.early.waits.is_none() && line.len() <= MOST
    }

    /// Keeps it, if it may. Says whether it is kept.
    pub(super) fn keep_early(&mut self, line: &Bytes) -> bool {
        let keeps = self.may_wait(line);
        if keeps {
            self.early.waits = Some((Bytes::copy_from_slice(line), Instant::now() + MOMENT));
        }
        keeps
    }

    /// The client listens, or calls something: it is asked what waits for that. Where it does neither, nobody is.
    pub(super) fn ask_early(&mut self) {
        self.early.is_over = true;
        let Some((line, _)) = self.early.waits.take() else { return };
        if let Ok(Message::Request(request)) = envelope::read_servers(&line) {
            self.request(&request, &line);
        }
    }

    /// The process takes back what it has asked. Says whether that is the question that waits: nobody is asked it.
    pub(super) fn take_back_early(&mut self, key: &Key) -> bool {
        let taken = self.early.waits.take_if(|(line, _)| {
            let Ok(Message::Request(asked)) = envelope::read_servers(line) else { return false };
            Key::read(asked.id.as_json()).as_ref() == Some(key)
        });
        taken.is_some()
    }

    /// Asks nobody any more, if it is late.
    pub(super) fn look_whether_it_waits(&mut self, now: Instant) {
        if self.early.due().is_some_and(|until| until <= now) {
            self.ask_early();
        }
    }
}
