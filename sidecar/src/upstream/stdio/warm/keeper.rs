//! Who keeps processes waiting: as many as the configuration says, each with a task that starts it, and ends it or gives
//! it away.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use longshore_shim::protocol::Session;
use longshore_sidecar_config::Processes;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep_until};

use super::{Entry, Given, Order, Ready, end, limits_of};
use crate::metrics::ProcessEnd;
use crate::shared::Shared;
use crate::upstream::random;
use crate::upstream::stdio::limits::Place;
use crate::upstream::stdio::process::{Heard, Idle, why};
use crate::upstream::stdio::turns::Turn;
use crate::upstream::stdio::{Stdio, Why};

/// How long nothing is started after a process that was never used ended by itself: at first, and at most.
const FIRST_BREAK: Duration = Duration::from_millis(200);
const LONGEST_BREAK: Duration = Duration::from_secs(60);
/// The same where none could be started, since nobody is there who could.
const ABSENT: Duration = Duration::from_secs(1);
/// One that lived for so long did not die of its start.
const LIVED: Duration = Duration::from_secs(30);

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
    // Before there is a server nobody comes. The first process may be installing what the others find when it is there, and
    // not every installer bears another beside it; and beside those of the sidecar before, which nobody counts as long as
    // no session has come for them, they would be more than may be.
    let mut view = shared.view.subscribe();
    loop {
        let is_there = view.borrow_and_update().ever_connected;
        let limits = limits(&shared).filter(|_| is_there);
        let wanted = limits.filter(|_| !shared.is_draining() && !stdio.is_closed());
        let wanted = wanted.map_or(0, |limits| limits.warm as usize);
        let max_age = limits.and_then(|limits| limits.max_age_ms).map(Duration::from_millis);
        {
            let mut state = stdio.warm.state.lock();
            while let Some(index) = state.useless(wanted, max_age) {
                state.dismiss(index);
            }
        }
        let due = pause.map(|(until, _)| until).filter(|until| *until > Instant::now());
        let mut has_turn = true;
        while due.is_none() && keepers.len() < wanted && !stdio.warm.is_wanted() {
            let Some(turn) = stdio.turns.take_ahead() else {
                has_turn = false;
                break;
            };
            // Whoever finds no place finds that one is being started, and waits for it.
            let starting = Starting::begin(stdio.clone());
            let Some(place) = stdio.places.take_ahead() else { break };
            keepers.spawn_local(wait(starting, (place, turn), wanted, max_age));
        }
        tokio::select! {
            changed = config.changed() => changed?,
            changed = view.changed(), if !is_there => changed?,
            () = stdio.warm.changed.notified() => {}
            () = stdio.places.freed() => {}
            () = stdio.turns.freed(), if !has_turn => {}
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

/// Starts a process, and waits with it. What it says nobody reads: until it is taken, its turn ends only with what it says to
/// words that it was told ahead, or with its time.
async fn wait(
    starting: Starting,
    (place, turn): (Place, Turn),
    wanted: usize,
    max_age: Option<Duration>,
) -> Left {
    // A session may take it, and another sidecar ask for it then.
    let Some(number) = random().map(|number| Session::of_somebody(number).0) else { return Left::Died };
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
        let mut state = stdio.warm.state.lock();
        let told = state.next(wanted).filter(|line| process.tell(line));
        state.waiting.push(Entry { number, max_age, told: told.clone(), order });
        told
    };
    drop(starting);
    stdio.warm.changed.notify_one();
    let waiting = Waiting { process, place, turn, number, told, started };
    let left = wait_for(&stdio, waiting, ordered, max_age).await;
    if matches!(left, Left::Dismissed) {
        stdio.warm.state.lock().leaving -= 1;
        stdio.warm.moved.notify_waiters();
    }
    left
}

/// A process that is being started.
struct Starting(Arc<Stdio>);

impl Starting {
    fn begin(stdio: Arc<Stdio>) -> Self {
        stdio.warm.state.lock().starting += 1;
        Self(stdio)
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.warm.state.lock().starting -= 1;
        self.0.warm.moved.notify_waiters();
    }
}

/// A process that waits.
struct Waiting {
    process: Idle,
    place: Place,
    turn: Turn,
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
    let Waiting { process, place, turn, number, told, started } = waiting;
    let mut turn = Some(turn);
    let aged = max_age.map(|age| started + age);
    let mut dismissed = false;
    let heard = loop {
        tokio::select! {
            biased;
            order = &mut ordered => match order {
                Ok(Order::Give(give)) => {
                    let parts = match process.into_parts() {
                        Ok(parts) => parts,
                        Err(error) => return failed(&error),
                    };
                    let given = Given { number, place, ready: Ready { parts, told, started, turn } };
                    // Whoever wanted it may have gone.
                    let Err(Given { ready, place, .. }) = give.send(given) else { return Left::Taken };
                    end(ready, place, &stdio.metrics);
                    return Left::Ended;
                }
                Ok(Order::End) => {
                    dismissed = true;
                    break None;
                }
                Err(_) => break None,
            },
            () = sleep_until(aged.unwrap_or(started)), if aged.is_some() => break None,
            heard = process.heard() => break Some(heard),
            // It has started: that is its answer.
            () = process.said(), if told.is_some() && turn.is_some() => turn = None,
        }
    };
    // Nobody waits for its end.
    drop(turn);
    stdio.warm.state.lock().waiting.retain(|entry| entry.number != number);
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

fn failed(error: &io::Error) -> Left {
    tracing::warn!(%error, "a process of the server cannot be handed over");
    Left::Died
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use longshore_sidecar_config::Isolation;
    use serde_json::json;
    use tokio::task::{JoinHandle, yield_now};

    use super::*;
    use crate::upstream::stdio::Client;
    use crate::upstream::stdio::open::tests::{Shim, limits};
    use crate::upstream::stdio::warm::SAME;

    /// Has one wait.
    async fn one_waits(stdio: &Arc<Stdio>) -> JoinHandle<Left> {
        let place = stdio.places.take_ahead().unwrap();
        let turn = stdio.turns.take_ahead().unwrap();
        let keeper = tokio::task::spawn_local(wait(Starting::begin(stdio.clone()), (place, turn), 1, None));
        while !stdio.warm.has_any() {
            yield_now().await;
        }
        keeper
    }

    /// Whether a process of this number has its place, if that is the only one, and then has ended.
    async fn has_its_place_until_it_ends(stdio: &Arc<Stdio>, number: u128) {
        stdio.places.limit(Some(Processes { total: 1, ..limits(Isolation::Session) }));
        assert!(!stdio.places.have_room(), "its place is free before it has ended");
        while !stdio.places.have_room() {
            yield_now().await;
        }
        let left = Idle::adopt(&stdio.socket, number, &stdio.metrics).await.unwrap();
        assert!(left.is_none(), "it waits for another sidecar");
    }

    /// What is given is on its way for a moment. Who goes just then leaves no process to nobody, and no place is free that
    /// still has one.
    #[test]
    fn one_that_is_given_to_somebody_who_has_gone_is_ended() {
        Shim::start().life(async |stdio| {
            let keeper = one_waits(&stdio).await;
            let number = stdio.warm.state.lock().waiting[0].number;
            let line = Bytes::new();
            let mut taking = Box::pin(stdio.warm.take(&line, &stdio.metrics));
            let mut context = Context::from_waker(Waker::noop());
            assert!(taking.as_mut().poll(&mut context).is_pending());
            assert!(matches!(keeper.await.unwrap(), Left::Taken));
            drop(taking);
            has_its_place_until_it_ends(&stdio, number).await;
        });
    }

    /// Nobody reads its answer, but that it is there is seen.
    #[test]
    fn one_that_answers_what_it_was_told_ahead_has_had_its_turn() {
        Shim::start().life(async |stdio| {
            stdio.starts.saw(Duration::from_secs(200));
            let is_only_one = |_turn| stdio.turns.ahead() == 1;
            assert!(stdio.turns.take_ahead().is_some_and(is_only_one), "one starts at a time");
            let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}});
            let line = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
            let line = Bytes::from(format!("{line}\n"));
            (0..SAME).for_each(|_| stdio.warm.heard(&line));
            let _keeper = one_waits(&stdio).await;
            while stdio.turns.ahead() > 0 {
                yield_now().await;
            }
            assert!(stdio.warm.has_any(), "it waits all the same");
        });
    }

    /// Somebody may get another process meanwhile, and have as many then as is allowed.
    #[test]
    fn one_that_is_given_to_somebody_who_may_not_have_it_is_ended() {
        Shim::start().life(async |stdio| {
            let limits = Processes { per_principal: 1, ..limits(Isolation::Session) };
            stdio.places.limit(Some(limits));
            let keeper = one_waits(&stdio).await;
            let number = stdio.warm.state.lock().waiting[0].number;
            let (client, line) = (Client { principal: Some("a".into()), limits }, Bytes::new());
            {
                let mut acquiring = pin!(stdio.acquire(&client, &line, Instant::now()));
                let mut context = Context::from_waker(Waker::noop());
                assert!(acquiring.as_mut().poll(&mut context).is_pending());
                let another = stdio.places.take(client.principal.as_ref(), Duration::ZERO).await;
                assert!(matches!(keeper.await.unwrap(), Left::Taken));
                // It has come by now; whoever waited for it goes.
                let _ = acquiring.as_mut().poll(&mut context);
                assert!(another.is_ok());
            }
            has_its_place_until_it_ends(&stdio, number).await;
        });
    }

    /// Who waits for a place that has a process which is being started waits in the queue, and for no longer than others.
    #[test]
    fn those_who_wait_for_one_that_is_being_started_are_in_the_queue() {
        Shim::start().life(async |stdio| {
            tokio::time::pause();
            let limits =
                Processes { total: 1, per_principal: 1, queue_ms: 9_000, ..limits(Isolation::Session) };
            stdio.places.limit(Some(limits));
            let starting = Starting::begin(stdio.clone());
            let place = stdio.places.take_ahead().unwrap();
            let (began, client) = (Instant::now(), Client { principal: Some("a".into()), limits });
            let acquire = || {
                let (stdio, client) = (stdio.clone(), client.clone());
                tokio::task::spawn_local(async move { stdio.acquire(&client, &Bytes::new(), began).await })
            };
            let mut waiting: Vec<_> = (0..40).map(|_| acquire()).collect();
            for _ in 0..100 {
                yield_now().await;
            }
            waiting.retain(|it| !it.is_finished());
            assert_eq!((waiting.len(), stdio.queued()), (32, 32), "as many of one principal as may");
            drop(place);
            let first = waiting.remove(0).await.unwrap();
            assert!(first.is_ok() && began.elapsed() == Duration::ZERO, "in turn");
            for waits in waiting {
                assert!(waits.await.unwrap().is_err());
            }
            let waited = began.elapsed();
            assert!((9_000..9_100).contains(&waited.as_millis()), "{waited:?}");
            drop((starting, first));
        });
    }
}
