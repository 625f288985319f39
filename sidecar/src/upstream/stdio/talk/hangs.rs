//! Processes that hang: they run, and answer nothing any more.
//!
//! A call that takes long is no sign of that, and its own deadline ends it. One that was given up may be: then the
//! process is asked whether it is there. Whatever it says within its time shows that it is, and one that says nothing
//! is ended, so that the next call finds another one. Where there is no handshake, one that has said nothing yet may still
//! be starting, and has the time for that.

use tokio::time::{Duration, Instant};

use super::Talk;
use crate::held::MOST;
use crate::upstream::stdio::Why;

/// What is known of it.
#[derive(Default)]
pub(super) struct Hangs {
    /// How many calls that were given up have been noticed.
    given_up: u64,
    /// Until when it may say something, and the number of the question.
    asked: Option<(Instant, u64)>,
    /// The number of the last question. Its answer may come behind something else, when nobody waits for it any more.
    last: Option<u64>,
    /// It has said something.
    heard: bool,
}

impl Hangs {
    pub(super) fn due(&self) -> Option<Instant> {
        self.asked.map(|(until, _)| until)
    }

    /// Whether this answers the last question. It is answered once.
    pub(super) fn is_answered(&mut self, number: u64) -> bool {
        self.last.take_if(|last| *last == number).is_some()
    }
}

impl Talk<'_> {
    /// Asks, if there is a reason, and ends a process that has said nothing for too long.
    pub(super) fn look_whether_it_hangs(&mut self, now: Instant) {
        let stdio = self.conversation.stdio();
        let starts = self.conversation.stands_alone() && !self.hangs.heard;
        let patience =
            if starts { stdio.starts.patience_of_client(stdio.hang, Duration::ZERO) } else { stdio.hang };
        let is_news = self.routes.given_up > self.hangs.given_up;
        self.hangs.given_up = self.routes.given_up;
        // Nothing is heard of it for other reasons.
        let unheard = self.is_held_up() || self.pause.is_some();
        match &mut self.hangs.asked {
            Some((until, _)) if unheard => *until = now + patience,
            Some((until, _)) if *until <= now => {
                self.doom(Why::Hung(patience.as_secs()));
            }
            // Whoever watches over the sidecar's own has pings of its own.
            None if is_news && !self.shaking && self.closed.is_none() && !self.conversation.is_own() => {
                let question = self.ping();
                (self.hangs.asked, self.hangs.last) = (Some((now + patience, question)), Some(question));
            }
            Some(_) | None => {}
        }
    }

    /// Ends a process that has written half of a line so large that one at a time may come, and does not go on.
    pub(super) fn look_whether_it_stops(&mut self, now: Instant) {
        if self.delivery.is_none() && self.pause.is_none() && self.coming.stops(now) {
            self.doom(Why::HalfLine(MOST.as_secs()));
        }
    }

    /// It has said something, so it does not hang.
    pub(super) fn note_heard(&mut self) {
        self.hangs.heard = true;
        if let Some((_, question)) = self.hangs.asked.take() {
            // Not every server answers it.
            self.routes.answered(question);
        }
    }
}
