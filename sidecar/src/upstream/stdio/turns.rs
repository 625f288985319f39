//! Whose turn it is to start a process. Where many begin at once, each of them takes as long as all of them together, and
//! none is there in the time that is given to one. So a few start, and the others wait: principals take turns, as where they
//! wait for places.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use super::queue::{Queue, Waits};
use crate::upstream::starts::Starts;

/// Those that start, and those that wait for it. All of them have places, so there are no more than those allow.
pub(super) struct Turns {
    starts: Arc<Starts>,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Default)]
struct State {
    /// Until when others wait for each that starts.
    starting: HashMap<u64, Instant>,
    last: u64,
    waiting: Queue<oneshot::Sender<Turn>>,
}

/// The turn of one process: dropped, the next one starts.
pub(super) struct Turn {
    turns: Arc<Turns>,
    number: u64,
    since: Instant,
}

impl Turns {
    pub(super) fn new(starts: Arc<Starts>) -> Arc<Self> {
        Arc::new(Self { starts, state: Mutex::default(), freed: Notify::new() })
    }

    /// Waits for the turn of a process; of nobody's, if no principal is named. Always gives one.
    pub(super) async fn take(self: &Arc<Self>, principal: Option<&Arc<str>>) -> Option<Turn> {
        let (grant, granted) = oneshot::channel();
        self.state.lock().waiting.add(principal.cloned().unwrap_or_else(|| "".into()), grant);
        let mut waits = Waits { granted, leave: || self.state.lock().waiting.tidy() };
        loop {
            self.grant();
            let over = self.first_over();
            tokio::select! {
                turn = &mut waits.granted => return turn.ok(),
                // One that takes longer than others wait for it is passed by.
                () = sleep_until(over.unwrap_or_else(Instant::now)), if over.is_some() => {}
            }
        }
    }

    /// The turn of a process that nobody needs yet, if it is nobody else's. One is left to those who need it: until such a
    /// process is taken, it may say nothing by which its turn would end.
    pub(super) fn take_ahead(self: &Arc<Self>) -> Option<Turn> {
        self.grant();
        let mut state = self.state.lock();
        let most = self.starts.at_once().saturating_sub(1).max(1);
        let free = state.waiting.len() == 0 && state.starting.len() < most;
        free.then(|| self.begin(&mut state, Instant::now()))
    }

    /// Waits until there may be one for such a process, where there was none just now.
    pub(super) async fn freed(&self) {
        let over = self.first_over();
        tokio::select! {
            () = self.freed.notified() => {}
            () = sleep_until(over.unwrap_or_else(Instant::now)), if over.is_some() => {}
        }
    }

    /// How many turns who comes now has to wait for, one after the other, at most.
    pub(super) fn ahead(self: &Arc<Self>) -> u32 {
        self.grant();
        let state = self.state.lock();
        let before = state.waiting.len() + state.starting.len();
        u32::try_from(before / self.starts.at_once()).unwrap_or(u32::MAX)
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// When the first of those that start has had its turn.
    fn first_over(&self) -> Option<Instant> {
        self.state.lock().starting.values().min().copied()
    }

    /// Gives what is free to those who wait.
    fn grant(self: &Arc<Self>) {
        let now = Instant::now();
        loop {
            let (grant, turn) = {
                let mut state = self.state.lock();
                state.starting.retain(|_, until| now < *until);
                if state.starting.len() >= self.starts.at_once() {
                    return;
                }
                let Some((_, grant)) = state.waiting.next(|_| true) else { return };
                (grant, self.begin(&mut state, now))
            };
            // Not while the state is locked: the turn of one who has gone comes back.
            let _ = grant.send(turn);
        }
    }

    fn begin(self: &Arc<Self>, state: &mut State, now: Instant) -> Turn {
        state.last += 1;
        state.starting.insert(state.last, now + self.starts.turn());
        Turn { turns: self.clone(), number: state.last, since: now }
    }
}

impl Turn {
    /// The process has said its first answer, or what comes before that of a call.
    pub(super) fn answered(self) {
        self.turns.starts.saw_another(self.since.elapsed());
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.state.lock().starting.remove(&self.number);
        self.turns.grant();
        self.turns.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;
    use tokio::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_few_start_and_the_others_wait_in_turn() {
        let starts = Arc::<Starts>::default();
        starts.saw(Duration::from_secs(10));
        let turns = Turns::new(starts);
        let mut starting: Vec<_> = (0..2).map(|_| turns.take_ahead().unwrap()).collect();
        assert!(turns.take_ahead().is_none() && turns.ahead() == 0, "one is left to who needs it");
        let _first = turns.take(None).await.unwrap();
        assert_eq!(turns.ahead(), 1);
        let wait = |who: &'static str| {
            let turns = turns.clone();
            tokio::spawn(async move { turns.take(Some(&who.into())).await.unwrap() })
        };
        let [a, again, b, gone] = ["a", "a", "b", "c"].map(wait);
        yield_now().await;
        assert_eq!((turns.waiting(), turns.ahead()), (4, 2));
        gone.abort();
        assert!(gone.await.is_err() && turns.waiting() == 3, "who goes waits no more");
        assert_eq!(turns.ahead(), 2, "those that start, and as many that wait");
        starting.pop();
        let _a = a.await.unwrap();
        starting.pop();
        let _b = b.await.unwrap();
        assert!(!again.is_finished() && turns.waiting() == 1);
        assert!(turns.take_ahead().is_none(), "somebody waits");
        // One that says nothing is not waited for without an end.
        let began = Instant::now();
        let _again = again.await.unwrap();
        assert_eq!(began.elapsed().as_secs(), 30);
        assert!(turns.take_ahead().is_some() && turns.ahead() == 0);
    }
}
