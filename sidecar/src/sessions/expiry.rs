//! The end of sessions that nobody uses any more, or that are too old.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use longshore_sessions::Question;
use longshore_sessions::bounds::MAX_TOMBSTONES_A_PAGE;
use tokio::sync::Semaphore;
use tokio::sync::watch::error::RecvError;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::errands::WAITING;
use super::session::Farewell;
use crate::exchange;
use crate::shared::Shared;
use crate::upstream::Pool;

/// To how many sessions' ends the server is told side by side.
const FAREWELLS: usize = 16;

/// Ends them, and tells the server and the other replicas so; for as long as there are configurations.
pub(crate) async fn expire(shared: Arc<Shared>, pool: Rc<Pool>) -> Result<(), RecvError> {
    let mut changed = shared.config_changed.subscribe();
    let (turns, mut farewells) = (Rc::new(Semaphore::new(FAREWELLS)), JoinSet::new());
    let mut waiting = VecDeque::new();
    loop {
        tokio::select! {
            () = sleep(shared.sessions.tick()) => {}
            result = changed.changed() => result?,
        }
        let Some(snapshot) = shared.snapshot.load_full() else { continue };
        let (over, ended) = shared.sessions.expire();
        // By themselves: a server that hangs must not keep expired sessions in the way of new ones.
        while farewells.try_join_next().is_some() {}
        waiting.extend(over);
        while farewells.len() < WAITING
            && let Some(Farewell { id, revision }) = waiting.pop_front()
        {
            let (pool, snapshot, turns) = (pool.clone(), snapshot.clone(), turns.clone());
            farewells.spawn_local(async move {
                let _turn = turns.acquire().await;
                // Boxed, since many may wait.
                Box::pin(exchange::end_named(&pool, &snapshot, id, revision)).await;
            });
        }
        // Who does not hear it now finds out that it knows less.
        for some in ended.chunks(MAX_TOMBSTONES_A_PAGE) {
            shared.peers.tell_all(&Question::Ended(some.to_vec())).await;
        }
    }
}
