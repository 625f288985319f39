//! Questions to the client among the events of a call. A client that comes back is not asked again what is not kept any
//! more, so the server has to hear that nobody will answer.

use std::collections::VecDeque;

use super::{State, Stream};

/// How many are known at most. Whoever asks more has given up the oldest, most likely.
const MOST: usize = 64;
/// The longest id that is known.
const MAX_ID: usize = 256;

/// The questions of one stream.
#[derive(Default)]
pub(super) struct Questions {
    /// The numbers of their events and their ids, as JSON: the oldest first.
    asked: VecDeque<(u64, Box<str>)>,
    /// Those that the client has not read and never will, until somebody is told.
    lost: Vec<Box<str>>,
}

impl Stream {
    /// Adds a question that has this id, as JSON.
    pub(in super::super) fn ask(&self, data: &[u8], id: &str) {
        if id.len() <= MAX_ID {
            let mut state = self.state.lock();
            let number = state.end();
            let asked = &mut state.questions.asked;
            if asked.len() >= MOST {
                asked.pop_front();
            }
            asked.push_back((number, id.into()));
        }
        self.write(data);
    }

    /// The ids of those that the client will never read, as JSON, once there are any.
    pub(in super::super) async fn lost_questions(&self) -> Vec<Box<str>> {
        loop {
            let lost = std::mem::take(&mut self.state.lock().questions.lost);
            if !lost.is_empty() {
                return lost;
            }
            self.lost.notified().await;
        }
    }
}

impl State {
    /// Its client has seen nothing after this event, whatever was read, and does not get what is not kept.
    pub(super) fn lose_questions_after(&mut self, event: u64, of: &Stream) {
        let first = self.first;
        self.lose_questions(of, |number| event < number && number < first);
    }

    /// Those are lost of which this holds.
    pub(super) fn lose_questions(&mut self, of: &Stream, is_lost: impl Fn(u64) -> bool) {
        let Questions { asked, lost } = &mut self.questions;
        if !asked.iter().any(|(number, _)| is_lost(*number)) {
            return;
        }
        let (gone, left) = std::mem::take(asked).into_iter().partition(|(number, _)| is_lost(*number));
        *asked = left;
        lost.extend(VecDeque::into_iter(gone).map(|(_, id)| id));
        of.lost.notify_one();
    }
}
