//! What is to be done for sessions because a peer said something or one has ended, by a thread that has a way to the server
//! and to the peers.

use std::rc::Rc;
use std::sync::Arc;

use longshore_sessions::Question;
use longshore_sessions::message::HandOver;
use longshore_sessions::routing::Entry;
use longshore_sessions::tombstones::Tombstone;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use super::Sessions;
use super::find::{Purpose, Search, Way, nowhere};
use super::session::Farewell;
use crate::configuration::Snapshot;
use crate::exchange;
use crate::worker::Worker;

/// How many wait. More sessions than that are not handed over at once; the next request of each finds its way without.
pub(super) const WAITING: usize = 16_384;
/// How many a thread does side by side: each may be a handshake with the server.
const AT_ONCE: usize = 16;

/// One thing to do.
pub(super) enum Errand {
    /// A peer has given up this session for this replica.
    TakeOver(HandOver),
    /// A session is over: the server is to be told.
    Close(Farewell),
    /// The same: the other replicas are.
    Tell(Tombstone),
}

/// The errands. Every worker takes from it what it can do.
#[derive(Clone)]
pub(crate) struct Queue(Arc<Mutex<mpsc::Receiver<Errand>>>);

impl Queue {
    pub(super) fn new(receiver: mpsc::Receiver<Errand>) -> Self {
        Self(Arc::new(Mutex::new(receiver)))
    }
}

/// Does errands for as long as the thread lives.
pub(crate) async fn follow(worker: Rc<Worker>, queue: Queue) {
    let mut tasks = JoinSet::new();
    loop {
        while tasks.len() >= AT_ONCE {
            let _ = tasks.join_next().await;
        }
        tokio::select! {
            errand = async { queue.0.lock().await.recv().await } => {
                let Some(errand) = errand else { break };
                tasks.spawn_local(run(worker.clone(), errand));
            }
            Some(_) = tasks.join_next() => {}
        }
    }
}

async fn run(worker: Rc<Worker>, errand: Errand) {
    let Some(snapshot) = worker.shared.snapshot.load_full() else { return };
    match errand {
        Errand::Close(Farewell { id, revision }) => {
            exchange::end_named(&worker.pool, &snapshot, id, revision).await;
        }
        Errand::Tell(tombstone) => {
            worker.shared.peers.tell_all(&Question::Ended(vec![tombstone])).await;
        }
        Errand::TakeOver(session) => take_over(&worker, &snapshot, session).await,
    }
}

/// Takes a session over, or hands it on where there is no room for it.
async fn take_over(worker: &Rc<Worker>, snapshot: &Arc<Snapshot>, session: HandOver) {
    let HandOver { id, principal, copy, full } = session;
    let sessions = &worker.shared.sessions;
    let Some(capsule) = sessions.open_current(snapshot, &principal, &id) else { return };
    let key = capsule.key;
    // Others may have taken the room of the copy that was kept when it came.
    sessions.lock().keep(key, copy);
    let search = Search::new(sessions.clone(), capsule, (Entry::HandOver, Some(full)));
    let taken = search.run(worker, snapshot, &principal, Purpose::Use, nowhere).await;
    sessions.lock().had_its_turn(&key);
    match taken {
        Ok(Way::HandOn(next, full)) => {
            let copy = sessions.lock().copy(&key).cloned().unwrap_or_default();
            let session = HandOver { id, principal, copy, full };
            // If nothing comes of it, the session's next request finds its way without.
            let _ = worker.shared.peers.ask(next.address, Question::HandOver(session)).await;
        }
        Ok(_) => {}
        Err(refusal) => tracing::debug!(reason = refusal.reason(), "a session was not taken over"),
    }
}

impl Sessions {
    /// A session was given to this replica. What its client has set is known here from now on, and requests of it are served
    /// here, however many others are taken over before it.
    pub(super) fn line_up_for_taking(&self, session: &HandOver) {
        let HandOver { id, principal, copy, .. } = session;
        let snapshot = self.snapshot.load();
        let capsule = snapshot.as_ref().and_then(|snapshot| self.open_current(snapshot, principal, id));
        if let Some(capsule) = capsule {
            let mut replica = self.lock();
            replica.keep(capsule.key, copy.clone());
            replica.line_up(capsule.key);
        }
    }
}
