//! The end of sessions that nobody uses any more, or that are too old.

use std::rc::Rc;
use std::sync::Arc;

use futures::StreamExt as _;
use longshore_sessions::Question;
use longshore_sessions::bounds::MAX_TOMBSTONES_A_PAGE;
use tokio::sync::watch::error::RecvError;
use tokio::time::sleep;

use crate::exchange;
use crate::shared::Shared;
use crate::upstream::Pool;

/// To how many sessions' ends the server is told side by side.
const FAREWELLS: usize = 16;

/// Ends them, and tells the server and the other replicas so; for as long as there are configurations.
pub(crate) async fn expire(shared: Arc<Shared>, pool: Rc<Pool>) -> Result<(), RecvError> {
    let mut changed = shared.config_changed.subscribe();
    loop {
        tokio::select! {
            () = sleep(shared.sessions.tick()) => {}
            result = changed.changed() => result?,
        }
        let Some(snapshot) = shared.snapshot.load_full() else { continue };
        let (over, ended) = shared.sessions.expire();
        // Side by side: a server that hangs must not keep expired sessions in the way of new ones.
        let farewells = futures::stream::iter(over).for_each_concurrent(FAREWELLS, async |session| {
            exchange::end_upstream(&pool, &snapshot, &session).await;
        });
        // Who does not hear it now finds out that it knows less.
        let told = async {
            for some in ended.chunks(MAX_TOMBSTONES_A_PAGE) {
                shared.peers.tell_all(&Question::Ended(some.to_vec())).await;
            }
        };
        tokio::join!(farewells, told);
    }
}
