//! Processes that are started before a session needs them.
//!
//! Nobody reads what they write: it waits in their pipes for the session that takes them, and one that writes more than
//! a pipe holds waits too. A process can be told `initialize` only once, so that is done ahead only when the last few
//! clients said it in the same words, letter by letter, but for the id; then the answer waits in the pipe, and is the
//! one that this client would have got. One of several is left untold for a client of another kind.

mod keeper;

use std::sync::Arc;

use bytes::Bytes;
use longshore_sidecar_config::{Config, Processes, Upstream};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Duration, Instant};

use super::limits::Place;
use super::process::{PATIENCE, Parts, Process};
use super::turns::Turn;
use crate::metrics::{Metrics, ProcessEnd};
pub(crate) use keeper::keep;

/// How often the same words have to come before a process is told them ahead.
const SAME: u32 = 3;
/// The longest words that are told ahead: so much a pipe takes whole, or nothing of it, however little room it has. Half of
/// them would be in the way of what the process is told by who takes it.
const MAX_TOLD: usize = 4096;

/// Those that wait, and what they may be told.
#[derive(Default)]
pub(super) struct Warm {
    state: Mutex<State>,
    /// For who keeps them.
    changed: Notify,
    /// For those who could use one that is being started, or the place of one that ends.
    moved: Notify,
}

#[derive(Default)]
struct State {
    waiting: Vec<Entry>,
    /// How many are being started.
    starting: usize,
    /// How many end because they were told to.
    leaving: usize,
    /// How many sessions want a process or its place, and have neither.
    wanting: usize,
    /// What the last client said, and how many said the same in a row.
    said: Option<(Bytes, u32)>,
}

struct Entry {
    number: u128,
    /// At which age it ends.
    max_age: Option<Duration>,
    told: Option<Bytes>,
    order: oneshot::Sender<Order>,
}

enum Order {
    Give(oneshot::Sender<Given>),
    End,
}

/// A process for a session.
pub(super) struct Given {
    /// What the shim knows it by.
    pub(super) number: u128,
    pub(super) place: Place,
    pub(super) ready: Ready,
}

/// A process that runs before anybody has talked to it here.
pub(super) struct Ready {
    pub(super) parts: Parts,
    /// What it was told.
    pub(super) told: Option<Bytes>,
    pub(super) started: Instant,
    /// Its turn to start, which goes on until somebody has heard an answer.
    pub(super) turn: Option<Turn>,
}

impl Warm {
    /// Notes what a client says first.
    pub(super) fn heard(&self, line: &Bytes) {
        let mut state = self.state.lock();
        let before = state.expected().is_some();
        match &mut state.said {
            Some((said, times)) if said == line => *times = times.saturating_add(1),
            said => *said = Some((Bytes::copy_from_slice(line), 1)).filter(|_| line.len() <= MAX_TOLD),
        }
        let after = state.expected().is_some();
        drop(state);
        if before != after {
            self.changed.notify_one();
        }
    }

    /// A process that was told this, or nothing yet.
    pub(super) async fn take(&self, line: &Bytes, metrics: &Arc<Metrics>) -> Option<Given> {
        loop {
            let order = {
                let mut state = self.state.lock();
                let fits = |wanted: Option<&Bytes>| {
                    state.waiting.iter().position(|entry| entry.told.as_ref() == wanted)
                };
                let index = fits(Some(line)).or_else(|| fits(None))?;
                state.waiting.remove(index).order
            };
            self.changed.notify_one();
            let (give, given) = oneshot::channel();
            let mut taking = Taking { given, metrics };
            // One that has just died gives nothing.
            if order.send(Order::Give(give)).is_ok()
                && let Ok(given) = (&mut taking.given).await
            {
                return Some(given);
            }
        }
    }

    /// Notes that a session has no process, and no place for one, until this is dropped. No process is started ahead
    /// meanwhile: it would take the place of one that ends for this session.
    pub(super) fn want(&self) -> Wanting<'_> {
        self.state.lock().wanting += 1;
        Wanting(self)
    }

    /// Waits until one that is being started is there, or could not be, or one that ends is gone. Says whether there
    /// was anything to wait for.
    pub(super) async fn moved(&self) -> bool {
        let moved = self.moved.notified();
        tokio::pin!(moved);
        // Registers before it looks, so that nothing is missed.
        moved.as_mut().enable();
        let moves = {
            let state = self.state.lock();
            state.starting + state.leaving > 0
        };
        if moves {
            moved.await;
        }
        moves
    }

    /// How many wait.
    pub(super) fn count(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Ends all that wait.
    pub(super) fn end_all(&self) {
        let mut state = self.state.lock();
        while state.dismiss_last() {}
    }

    /// Whether any process waits.
    pub(super) fn has_any(&self) -> bool {
        !self.state.lock().waiting.is_empty()
    }

    fn is_wanted(&self) -> bool {
        self.state.lock().wanting > 0
    }
}

/// A session that wants a process, or its place.
pub(super) struct Wanting<'a>(&'a Warm);

impl Wanting<'_> {
    /// Has one that waits end for this session, unless as many end already as sessions want one. Says whether as many
    /// end: otherwise one ends for another session at the most.
    pub(super) fn have_one_end(&self) -> bool {
        let mut state = self.0.state.lock();
        while state.leaving < state.wanting && state.dismiss_last() {}
        state.leaving >= state.wanting
    }
}

impl Drop for Wanting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().wanting -= 1;
        self.0.changed.notify_one();
    }
}

/// Waits for a process that is given; dropped, it does not any more.
struct Taking<'a> {
    given: oneshot::Receiver<Given>,
    metrics: &'a Arc<Metrics>,
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.given.close();
        // One that has come meanwhile is nobody's.
        if let Ok(Given { ready, place, .. }) = self.given.try_recv() {
            end(ready, place, self.metrics);
        }
    }
}

impl State {
    /// Has one of them end, if it has not ended already.
    fn dismiss(&mut self, index: usize) {
        let told = self.waiting.remove(index).order.send(Order::End).is_ok();
        self.leaving += usize::from(told);
    }

    /// The same of the one that came last. Says whether there was one.
    fn dismiss_last(&mut self) -> bool {
        let last = self.waiting.len().checked_sub(1);
        last.map(|last| self.dismiss(last)).is_some()
    }

    /// What processes are told ahead.
    fn expected(&self) -> Option<Bytes> {
        self.said.as_ref().filter(|(_, times)| *times >= SAME).map(|(said, _)| said.clone())
    }

    /// What the next process is told, of so many.
    fn next(&self, wanted: usize) -> Option<Bytes> {
        let untold = self.waiting.iter().filter(|entry| entry.told.is_none()).count();
        self.expected().filter(|_| wanted == 1 || untold > 0)
    }

    /// One that waits for words that nobody says any more, or until another age than is in force, or that could be told
    /// something by now.
    fn useless(&self, wanted: usize, max_age: Option<Duration>) -> Option<usize> {
        let expected = self.expected();
        let other =
            |entry: &Entry| entry.told.is_some() && entry.told != expected || entry.max_age != max_age;
        let untold = self.waiting.iter().filter(|entry| entry.told.is_none()).count();
        let spare = expected.is_some() && untold > usize::from(wanted > 1);
        let superfluous = self.waiting.len() > wanted;
        self.waiting
            .iter()
            .position(|entry| other(entry) || spare && entry.told.is_none())
            .or_else(|| superfluous.then_some(0))
    }
}

/// Ends a process that nobody wants any more. It has its place until it has ended, and nobody need wait for that.
pub(super) fn end(ready: Ready, place: Place, metrics: &Arc<Metrics>) {
    let Ready { parts, turn, .. } = ready;
    drop(turn);
    let metrics = metrics.clone();
    tokio::task::spawn_local(async move {
        if let Ok(process) = Process::from_parts(parts) {
            process.end(PATIENCE).await;
        }
        metrics.process_ended(ProcessEnd::Asked);
        drop(place);
    });
}

/// The limits that a configuration has for processes, if its server has any.
pub(super) fn limits_of(config: &Config) -> Option<Processes> {
    matches!(config.upstream, Upstream::Stdio {}).then_some(config.limits.processes).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(said: Option<(&'static str, u32)>, told: &[Option<&'static str>]) -> State {
        let waiting = told.iter().enumerate().map(|(number, told)| Entry {
            number: number as u128,
            max_age: None,
            told: told.map(Bytes::from),
            order: oneshot::channel().0,
        });
        State {
            waiting: waiting.collect(),
            starting: 0,
            leaving: 0,
            wanting: 0,
            said: said.map(|(said, times)| (said.into(), times)),
        }
    }

    #[test]
    fn what_clients_keep_saying_is_said_ahead() {
        for (said, told, wanted, next, useless) in [
            (None, &[][..], 1, None, None),
            (Some(("a", 2)), &[None], 1, None, None),
            (Some(("a", 3)), &[], 1, Some("a"), None),
            // Of two, one is left for others.
            (Some(("a", 3)), &[], 2, None, None),
            (Some(("a", 3)), &[None], 2, Some("a"), None),
            (Some(("a", 3)), &[Some("a")], 2, None, None),
            (Some(("a", 3)), &[None, None], 2, Some("a"), Some(0)),
            (Some(("a", 3)), &[None], 1, Some("a"), Some(0)),
            // What nobody says any more.
            (Some(("b", 1)), &[Some("a"), None], 2, None, Some(0)),
            (Some(("b", 3)), &[None, Some("a")], 2, Some("b"), Some(1)),
            // More than are wanted by now.
            (None, &[None, None], 1, None, Some(0)),
            (None, &[None], 0, None, Some(0)),
        ] {
            let state = state(said, told);
            let case = format!("{said:?} {told:?} {wanted}");
            assert_eq!(state.next(wanted).as_deref(), next.map(str::as_bytes), "{case}");
            assert_eq!(state.useless(wanted, None), useless, "{case}");
            let first = (!told.is_empty()).then_some(0);
            assert_eq!(state.useless(wanted, Some(Duration::ZERO)), first, "{case}: of another age");
        }
    }

    #[test]
    fn only_the_same_words_count() {
        let warm = Warm::default();
        let expected = |warm: &Warm| warm.state.lock().expected();
        for (line, known) in
            [("a", false), ("a", false), ("b", false), ("a", false), ("a", false), ("a", true), ("b", false)]
        {
            warm.heard(&Bytes::from(line));
            assert_eq!(expected(&warm).is_some(), known, "{line}");
        }
        let long = Bytes::from(vec![b'x'; MAX_TOLD + 1]);
        (0..SAME).for_each(|_| warm.heard(&long));
        assert_eq!(expected(&warm), None);
    }
}
