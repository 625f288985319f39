//! The end of sessions that nobody uses any more, that are too old, or whose ids nobody can open any more.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use longshore_sessions::Question;
use longshore_sessions::bounds::MAX_TOMBSTONES_A_PAGE;
use longshore_sessions::tombstones::Tombstone;
use tokio::sync::Semaphore;
use tokio::sync::watch::error::RecvError;
use tokio::task::JoinSet;
use tokio::time::{Duration, sleep};

use super::errands::WAITING;
use super::session::Farewell;
use super::{Session, Sessions, is_too_old, unix};
use crate::exchange;
use crate::metrics::SessionEnd;
use crate::shared::Shared;
use crate::upstream::Pool;

/// To how many sessions' ends the server is told side by side.
const FAREWELLS: usize = 16;

/// Ends them, and tells the server and the other replicas so; for as long as there are configurations.
pub(crate) async fn expire(shared: Arc<Shared>, pool: Rc<Pool>) -> Result<(), RecvError> {
    let mut changed = shared.config_changed.subscribe();
    let (turns, mut farewells) = (Rc::new(Semaphore::new(FAREWELLS)), Farewells::of(WAITING));
    loop {
        tokio::select! {
            () = sleep(shared.sessions.tick()) => {}
            result = changed.changed() => result?,
        }
        let Some(snapshot) = shared.snapshot.load_full() else { continue };
        let (over, ended) = shared.sessions.expire();
        // By themselves: a server that hangs must not keep expired sessions in the way of new ones.
        farewells.go_on(over, |Farewell { id, revision }| {
            let (pool, snapshot, turns) = (pool.clone(), snapshot.clone(), turns.clone());
            async move {
                let _turn = turns.acquire().await;
                // Boxed, since many may wait.
                Box::pin(exchange::end_named(&pool, &snapshot, id, revision)).await;
            }
        });
        // Who does not hear it now finds out that it knows less.
        for some in ended.chunks(MAX_TOMBSTONES_A_PAGE) {
            shared.peers.tell_all(&Question::Ended(some.to_vec())).await;
        }
    }
}

impl Sessions {
    /// Ends those that nobody used for a while, that are too old, or whose ids nobody can open any more. Gives what the server
    /// is to be told now, and what the other replicas are.
    fn expire(&self) -> (Vec<Farewell>, Vec<Tombstone>) {
        let Some(snapshot) = self.snapshot.load_full() else { return Default::default() };
        let (now, unix) = (self.now(), unix());
        let idle = Duration::from_millis(snapshot.config.sessions.idle_timeout_ms);
        let (mut over, mut ended) = (Vec::new(), Vec::new());
        {
            let mut replica = self.lock();
            replica.forget_endings(unix);
            for (_, session) in replica.all_held() {
                if session.is_keyless() {
                    // Requests under way are answered still. Nobody can come back for that.
                    if !session.is_busy() {
                        over.push((session.clone(), SessionEnd::Keys));
                    }
                } else if is_too_old(&session.capsule, &snapshot) {
                    // Requests under way are answered still, also to clients that come back for it, and what these say is
                    // heard.
                    if session.is_free() {
                        over.push((session.clone(), SessionEnd::Aged));
                    }
                } else if session.is_idle(now, idle) {
                    over.push((session.clone(), SessionEnd::Idle));
                }
            }
            for (session, why) in &over {
                let tombstone = Self::tombstone(&session.capsule);
                // An id that is past its own time, or opens with no key, is refused everywhere, and nothing need be remembered
                // of it. Where the age that sessions may have was lowered since, it is not: that may be raised again.
                if session.is_keyless() || tombstone.expires <= unix {
                    replica.lose(&tombstone.key);
                } else {
                    replica.end(tombstone);
                    ended.push(tombstone);
                }
                self.metrics.session_ended(*why);
            }
        }
        self.keep_endings(&ended);
        let close = |(session, _): (Arc<Session>, SessionEnd)| {
            session.streams.close();
            session.farewell()
        };
        (over.into_iter().filter_map(close).collect(), ended)
    }

    /// How often to look for sessions that are over.
    fn tick(&self) -> Duration {
        let snapshot = self.snapshot.load();
        let shortest = snapshot.as_ref().map_or(0, |snapshot| {
            snapshot.config.sessions.idle_timeout_ms.min(snapshot.config.sessions.max_age_ms)
        });
        Duration::from_millis(shortest / 4).clamp(Duration::from_millis(50), Duration::from_secs(30))
    }
}

/// The ends that the server is still to be told of. A task is begun for so many of them at once; the others wait without.
struct Farewells {
    most: usize,
    waiting: VecDeque<Farewell>,
    under_way: JoinSet<()>,
}

impl Farewells {
    fn of(most: usize) -> Self {
        Self { most, waiting: VecDeque::new(), under_way: JoinSet::new() }
    }

    /// Adds some, and begins as many as there is room for by now.
    fn go_on<F: Future<Output = ()> + 'static>(
        &mut self,
        more: impl IntoIterator<Item = Farewell>,
        tell: impl Fn(Farewell) -> F,
    ) {
        while self.under_way.try_join_next().is_some() {}
        self.waiting.extend(more);
        while self.under_way.len() < self.most
            && let Some(farewell) = self.waiting.pop_front()
        {
            self.under_way.spawn_local(tell(farewell));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use http::HeaderValue;
    use longshore_mcp::revision::Revision;
    use tokio::runtime::{Builder, LocalOptions};
    use tokio::task::yield_now;

    use super::*;

    #[test]
    fn ends_beyond_the_bound_wait_and_are_told_in_turn() {
        let runtime = Builder::new_current_thread().build_local(LocalOptions::default()).unwrap();
        runtime.block_on(async {
            let (told, gate) = (Rc::<RefCell<Vec<_>>>::default(), Rc::new(Semaphore::new(0)));
            let tell = |farewell: Farewell| {
                let (told, gate) = (told.clone(), gate.clone());
                async move {
                    gate.acquire().await.unwrap().forget();
                    told.borrow_mut().push(farewell.id);
                }
            };
            let ids: Vec<_> = (0_u32..5).map(HeaderValue::from).collect();
            let over = ids.iter().map(|id| Farewell { id: id.clone(), revision: Revision::V2025_11_25 });
            let mut farewells = Farewells::of(2);
            farewells.go_on(over, tell);
            for so_far in [2, 4, 5] {
                // As many as are told at once, and none of the others.
                gate.add_permits(ids.len());
                while !farewells.under_way.is_empty() {
                    farewells.under_way.join_next().await;
                }
                yield_now().await;
                assert_eq!(*told.borrow(), ids[..so_far]);
                farewells.go_on([], tell);
            }
            assert!(farewells.under_way.is_empty() && farewells.waiting.is_empty());
        });
    }
}
