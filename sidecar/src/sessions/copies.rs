//! Copies of what clients have set in their sessions. Each is at the replica that would adopt the session, so that any
//! one of them may be lost, and after it another one; also where the session cannot be adopted, since a sidecar that dies
//! alone is followed by one that finds the session again, and asks the others for what was set in it. A replica that ends
//! passes on what it keeps of others' sessions: nobody may hold them just now. Beside that each replica writes down what is
//! set in those that it holds itself ([`super::notes`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::future::join_all;
use longshore_sessions::bounds::HEARTBEAT;
use longshore_sessions::membership::State;
use longshore_sessions::message::Copy;
use longshore_sessions::{Peer, PodId, Question, ServerSession, SessionKey};
use tokio::time::{MissedTickBehavior, interval};

use super::{Change, Session, Sessions};
use crate::peers::Peers;
use crate::shared::Shared;

/// How many are sent at once.
const AT_ONCE: usize = 64;

impl Sessions {
    /// Notes what the client of a session has set, here and at the replica that would adopt it.
    pub(crate) async fn change(&self, session: &Session, change: Change, peers: &Peers) {
        session.change(change, &self.subscriptions);
        self.notes.note(session.capsule.key);
        if !self.copy(session, peers).await {
            tracing::debug!("no other replica has a copy of what a client has set");
            self.uncopied.store(true, Ordering::Relaxed);
        }
    }

    /// Has the replica that would adopt a session keep a copy, if it does not. Says whether it has what it should have.
    async fn copy(&self, session: &Session, peers: &Peers) -> bool {
        let Some((buddy, copy)) = self.to_copy(session) else { return true };
        let version = copy.version;
        let kept = peers.ask(buddy.address, Question::Keep(session.capsule.key, copy)).await.is_ok();
        if kept {
            session.copied(version, buddy.pod);
            tracing::debug!(changes = version, "another replica keeps what a client has set");
        }
        kept
    }

    /// What is to be copied of a session, and to whom.
    fn to_copy(&self, session: &Session) -> Option<(Peer, Copy)> {
        // Who would adopt it is likely to have it at hand then, and says so if it is another one.
        let buddy = self.lock().heir(&session.capsule.key, self.now())?;
        let copy = session.to_copy(&buddy.pod).filter(|_| self.may_go_on(session))?;
        Some((buddy, copy))
    }

    /// Whether a session may go on where nobody knows what its client has set: at another replica, or here, with the server
    /// that knows it, where the sidecar alone dies.
    pub(super) fn may_go_on(&self, session: &Session) -> bool {
        let may_be_found_again = matches!(session.capsule.server, ServerSession::Id(_));
        !session.is_keyless() && (may_be_found_again || self.can_leave(session))
    }

    /// The same for all sessions that are held.
    async fn copy_all(&self, peers: &Peers) {
        let sessions: Vec<Arc<Session>> = {
            let replica = self.lock();
            let held = replica.all_held().map(|(_, session)| session);
            held.filter(|session| session.has_copy()).cloned().collect()
        };
        self.all_kept(&sessions, async |session| self.copy(session, peers).await).await;
    }

    /// Has those who would adopt the sessions of others after this replica, which ends, keep what it keeps of them. Whoever
    /// holds one does the same, but there may be nobody until somebody asks for it.
    pub(crate) async fn pass_on(&self, peers: &Peers) {
        let keys: Vec<SessionKey> = self.lock().all_copied().copied().collect();
        let pass_on = async |key: &SessionKey| match self.to_pass_on(key) {
            Some((next, question)) => peers.ask(next.address, question).await.is_ok(),
            None => false,
        };
        self.all_kept(&keys, pass_on).await;
    }

    fn to_pass_on(&self, key: &SessionKey) -> Option<(Peer, Question)> {
        let replica = self.lock();
        let next = replica.heir(key, self.now())?;
        Some((next, Question::Keep(*key, replica.copy(key)?.clone())))
    }

    /// Has a copy of each of these kept, some at once. Those that are not are tried again.
    async fn all_kept<T>(&self, all: &[T], keep: impl AsyncFn(&T) -> bool) {
        for some in all.chunks(AT_ONCE) {
            if join_all(some.iter().map(async |one| keep(one).await)).await.contains(&false) {
                self.uncopied.store(true, Ordering::Relaxed);
            }
        }
    }

    /// These have come, or come back: what one had before is gone.
    fn came(&self, pods: &[PodId]) {
        if pods.is_empty() {
            return;
        }
        for (_, session) in self.lock().all_held() {
            session.lost_at(pods);
        }
    }

    /// Who serves, and which of its processes.
    fn serving(&self) -> Vec<(PodId, u64)> {
        self.lock().view.serving_lives(self.now()).collect()
    }

    /// Those of them that adopt sessions only where nobody else does.
    fn shaken(&self) -> Vec<PodId> {
        let replica = self.lock();
        let shaken = replica.view.that_serve(self.now()).filter(|(_, shaken)| *shaken);
        shaken.map(|(peer, _)| peer.pod).collect()
    }
}

/// Sees to it, for as long as the process lives, that copies are where they belong: when other replicas come and go, and
/// when sessions have come from them.
pub(crate) async fn keep_copies(shared: Arc<Shared>) {
    let sessions = &shared.sessions;
    let (mut served, mut were_shaken) = (Vec::new(), Vec::new());
    let mut tick = interval(HEARTBEAT);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let serving = sessions.serving();
        let came = serving.iter().filter(|process| !served.contains(*process));
        sessions.came(&came.map(|(pod, _)| pod.clone()).collect::<Vec<_>>());
        let shaken = sessions.shaken();
        let new = sessions.uncopied.swap(false, Ordering::Relaxed);
        if new || serving != served || shaken != were_shaken {
            sessions.copy_all(&shared.peers).await;
            if sessions.lock().state() == State::Draining {
                sessions.pass_on(&shared.peers).await;
            }
        }
        (served, were_shaken) = (serving, shaken);
    }
}
