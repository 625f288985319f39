//! Processes that are started before a session needs them.
//!
//! Nobody reads what they write: it waits in their pipes for the session that takes them, and one that writes more than
//! a pipe holds waits too. A process can be told `initialize` only once, so that is done ahead only when the last few
//! clients said it in the same words, letter by letter, but for the id; then the answer waits in the pipe, and is the
//! one that this client would have got. One of several is left untold for a client of another kind.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use longshore_sidecar_config::{Config, Processes, Upstream};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep_until};

use super::limits::Place;
use super::process::{Heard, Idle, Parts, why};
use super::{Stdio, Why};
use crate::metrics::{Metrics, ProcessEnd};
use crate::shared::Shared;
use crate::upstream::random;

/// How often the same words have to come before a process is told them ahead.
const SAME: u32 = 3;
/// The longest words that are told ahead: a pipe takes them whole.
const MAX_TOLD: usize = 16 * 1024;
/// How long nothing is started after a process that was never used ended by itself: at first, and at most.
const FIRST_BREAK: Duration = Duration::from_millis(200);
const LONGEST_BREAK: Duration = Duration::from_secs(60);
/// The same where none could be started, since nobody is there who could.
const ABSENT: Duration = Duration::from_secs(1);
/// One that lived for so long did not die of its start.
const LIVED: Duration = Duration::from_secs(30);

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
}

impl Warm {
    /// Notes what a client says first.
    pub(super) fn heard(&self, line: &Bytes) {
        let mut state = self.lock();
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
                let mut state = self.lock();
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
        self.lock().wanting += 1;
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
            let state = self.lock();
            state.starting + state.leaving > 0
        };
        if moves {
            moved.await;
        }
        moves
    }

    /// How many wait.
    pub(super) fn count(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Ends all that wait.
    pub(super) fn end_all(&self) {
        let mut state = self.lock();
        while state.dismiss_last() {}
    }

    /// Whether any process waits.
    pub(super) fn has_any(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    fn is_wanted(&self) -> bool {
        self.lock().wanting > 0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session that wants a process, or its place.
pub(super) struct Wanting<'a>(&'a Warm);

impl Wanting<'_> {
    /// Has one that waits end for this session, unless as many end already as sessions want one. Says whether one
    /// ends.
    pub(super) fn have_one_end(&self) -> bool {
        let mut state = self.0.lock();
        while state.leaving < state.wanting && state.dismiss_last() {}
        state.leaving > 0
    }
}

impl Drop for Wanting<'_> {
    fn drop(&mut self) {
        self.0.lock().wanting -= 1;
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
        // One that has come meanwhile is nobody's, and has its place until it has ended.
        if let Ok(Given { ready, place, .. }) = self.given.try_recv() {
            let metrics = self.metrics.clone();
            tokio::task::spawn_local(async move {
                end(ready, &metrics).await;
                drop(place);
            });
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

/// Why a process does not wait any more.
enum Left {
    Taken,
    Ended,
    /// It was told to end.
    Dismissed,
    Died,
    /// There never was one.
    Absent,
}

/// Keeps as many processes waiting as the configuration says.
pub(crate) async fn keep(shared: Arc<Shared>) -> Result<(), watch::error::RecvError> {
    let mut config = shared.config_changed.subscribe();
    let stdio = &shared.stdio;
    let mut keepers = JoinSet::new();
    // Not before then, after one that died.
    let mut pause: Option<(Instant, Duration)> = None;
    loop {
        let limits = limits(&shared);
        let wanted = limits.filter(|_| !shared.is_draining() && !stdio.is_closed());
        let wanted = wanted.map_or(0, |limits| limits.warm as usize);
        let max_age = limits.and_then(|limits| limits.max_age_ms).map(Duration::from_millis);
        {
            let mut state = stdio.warm.lock();
            while let Some(index) = state.useless(wanted, max_age) {
                state.dismiss(index);
            }
        }
        let due = pause.map(|(until, _)| until).filter(|until| *until > Instant::now());
        while due.is_none() && keepers.len() < wanted && !stdio.warm.is_wanted() {
            // Whoever finds no place finds that one is being started, and waits for it.
            let starting = Starting::begin(stdio.clone());
            let Some(place) = stdio.places.take_ahead() else { break };
            keepers.spawn_local(wait(starting, place, wanted, max_age));
        }
        tokio::select! {
            changed = config.changed() => changed?,
            () = stdio.warm.changed.notified() => {}
            () = stdio.places.freed() => {}
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            Some(left) = keepers.join_next() => match left {
                Ok(Left::Died) => {
                    let long = pause.map_or(FIRST_BREAK, |(_, long)| (long * 2).min(LONGEST_BREAK));
                    pause = Some((Instant::now() + long, long));
                }
                Ok(Left::Absent) => pause = Some((Instant::now() + ABSENT, FIRST_BREAK)),
                Ok(Left::Taken) => pause = None,
                Ok(Left::Ended | Left::Dismissed) | Err(_) => {}
            }
        }
    }
}

fn limits(shared: &Shared) -> Option<Processes> {
    limits_of(&shared.config().as_ref()?.config)
}

/// The limits that a configuration has for processes, if its server has any.
pub(super) fn limits_of(config: &Config) -> Option<Processes> {
    matches!(config.upstream, Upstream::Stdio {}).then_some(config.limits.processes).flatten()
}

/// Starts a process, and waits with it.
async fn wait(starting: Starting, place: Place, wanted: usize, max_age: Option<Duration>) -> Left {
    let Some(number) = random() else { return Left::Died };
    let started = Instant::now();
    let stdio = starting.0.clone();
    let process = match Idle::start(&stdio.socket, number, &stdio.metrics).await {
        Ok(process) => process,
        Err(why) => {
            tracing::debug!(%why, "no process ahead of its session");
            return if matches!(why, Why::Unavailable(_)) { Left::Absent } else { Left::Died };
        }
    };
    let (order, ordered) = oneshot::channel();
    let told = {
        let mut state = stdio.warm.lock();
        let told = state.next(wanted).filter(|line| process.tell(line));
        state.waiting.push(Entry { number, max_age, told: told.clone(), order });
        told
    };
    drop(starting);
    stdio.warm.changed.notify_one();
    let left = wait_for(&stdio, Waiting { process, place, number, told, started }, ordered, max_age).await;
    if matches!(left, Left::Dismissed) {
        stdio.warm.lock().leaving -= 1;
        stdio.warm.moved.notify_waiters();
    }
    left
}

/// A process that is being started.
struct Starting(Arc<Stdio>);

impl Starting {
    fn begin(stdio: Arc<Stdio>) -> Self {
        stdio.warm.lock().starting += 1;
        Self(stdio)
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.warm.lock().starting -= 1;
        self.0.warm.moved.notify_waiters();
    }
}

/// A process that waits.
struct Waiting {
    process: Idle,
    place: Place,
    number: u128,
    told: Option<Bytes>,
    started: Instant,
}

async fn wait_for(
    stdio: &Stdio,
    waiting: Waiting,
    mut ordered: oneshot::Receiver<Order>,
    max_age: Option<Duration>,
) -> Left {
    let Waiting { process, place, number, told, started } = waiting;
    let aged = max_age.map(|age| started + age);
    let mut dismissed = false;
    let heard = tokio::select! {
        biased;
        order = &mut ordered => match order {
            Ok(Order::Give(give)) => {
                let given = process.into_parts().map(|parts| Given { number, place, ready: Ready { parts, told } });
                return match given.map(|given| give.send(given)) {
                    Ok(Ok(())) => Left::Taken,
                    // Whoever wanted it has gone.
                    Ok(Err(Given { ready, .. })) => {
                        end(ready, &stdio.metrics).await;
                        Left::Ended
                    }
                    Err(error) => failed(&error),
                };
            }
            Ok(Order::End) => {
                dismissed = true;
                None
            }
            Err(_) => None,
        },
        () = sleep_until(aged.unwrap_or(started)), if aged.is_some() => None,
        heard = process.heard() => Some(heard),
    };
    stdio.warm.lock().waiting.retain(|entry| entry.number != number);
    // It may have been told so while it ended by itself. From here on nobody tells it anything.
    dismissed |= matches!(ordered.try_recv(), Ok(Order::End));
    let Some(heard) = heard else {
        process.end().await;
        stdio.metrics.process_ended(ProcessEnd::Asked);
        return if dismissed { Left::Dismissed } else { Left::Ended };
    };
    let why = match &heard {
        Heard::Ended(ended) => why(ended),
        Heard::Lost => Why::Lost,
    };
    tracing::info!(reason = why.name(), "a process of the server ended before it had a session");
    stdio.metrics.process_ended(why.end());
    match started.elapsed() {
        _ if dismissed => Left::Dismissed,
        lived if lived >= LIVED => Left::Ended,
        _ => Left::Died,
    }
}

/// Ends a process that nobody wants any more.
pub(super) async fn end(ready: Ready, metrics: &Metrics) {
    if let Ok(process) = super::process::Process::from_parts(ready.parts) {
        process.end(super::process::PATIENCE).await;
    }
    metrics.process_ended(ProcessEnd::Asked);
}

fn failed(error: &io::Error) -> Left {
    tracing::warn!(%error, "a process of the server cannot be handed over");
    Left::Died
}

#[cfg(test)]
mod tests {
    use longshore_sidecar_config::Isolation;
    use tokio::task::yield_now;

    use super::*;
    use crate::upstream::stdio::open::tests::{Shim, limits};

    /// What is given is on its way for a moment. Who goes just then leaves no process to nobody, and no place is free that
    /// still has one.
    #[test]
    fn one_that_is_given_to_somebody_who_has_gone_is_ended() {
        Shim::start().life(async |stdio| {
            let place = stdio.places.take_ahead().unwrap();
            stdio.places.limit(Some(Processes { total: 1, ..limits(Isolation::Session) }));
            let keeper = tokio::task::spawn_local(wait(Starting::begin(stdio.clone()), place, 1, None));
            while !stdio.warm.has_any() {
                yield_now().await;
            }
            let number = stdio.warm.lock().waiting[0].number;
            let line = Bytes::new();
            let mut taking = Box::pin(stdio.warm.take(&line, &stdio.metrics));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(taking.as_mut().poll(&mut context).is_pending());
            assert!(matches!(keeper.await.unwrap(), Left::Taken));
            drop(taking);
            assert!(!stdio.places.have_room(), "its place is free before it has ended");
            while !stdio.places.have_room() {
                yield_now().await;
            }
            let left = Idle::adopt(&stdio.socket, number, &stdio.metrics).await.unwrap();
            assert!(left.is_none(), "it waits for another sidecar");
        });
    }

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
        let expected = |warm: &Warm| warm.lock().expected();
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
