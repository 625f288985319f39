//! This replica, as its peers see it: what the transport between replicas asks and tells it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use longshore_sessions::membership::{Standing, State};
use longshore_sessions::message::HandOver;
use longshore_sessions::replica::{Effect, Replica};
use longshore_sessions::tombstones::Tombstone;
use longshore_sessions::{Answer, Introduction, Message, Peer, PodId, Question, SessionKey};
use parking_lot::MutexGuard;

use super::{Errand, Session, Sessions, unix};
use crate::metrics::SessionEnd;
use crate::peers::{Local, News};

/// After how long without an answer to heartbeats a peer counts as lost, and nobody waits any longer for its answer to a
/// forwarded request.
const LOST: Duration = Duration::from_secs(10);

impl Sessions {
    /// The replica, with endings that all replicas forget soon left out of the digest that peers compare.
    fn settled(&self) -> MutexGuard<'_, Replica<Arc<Session>>> {
        let mut replica = self.lock();
        replica.settle_endings(unix());
        replica
    }

    /// Does what a message wants done beyond the answer.
    fn follow(&self, effect: Effect<Arc<Session>>) {
        match effect {
            Effect::None => {}
            Effect::Bury(tombstones, ended) => {
                self.keep_endings(&tombstones);
                for session in ended {
                    self.metrics.session_ended(SessionEnd::Deleted);
                    self.close(&session);
                }
            }
            Effect::TakeOver(session) => {
                self.line_up_for_taking(&session);
                self.send(Errand::TakeOver(session));
            }
        }
    }
}

/// Those that still matter: others would come back for ever from replicas that are about to forget them.
fn current(ended: &[Tombstone]) -> Vec<Tombstone> {
    let now = unix();
    ended.iter().filter(|tombstone| tombstone.expires > now).copied().collect()
}

impl Local for Sessions {
    fn introduction(&self) -> Introduction {
        self.settled().introduction(self.now())
    }

    fn set_state(&self, state: State) {
        self.lock().set_state(state);
    }

    fn set_shaken(&self, shaken: bool) {
        self.lock().set_shaken(shaken);
    }

    fn set_full(&self, full: bool) {
        self.lock().set_full(full);
    }

    fn answer(&self, question: Message<Question>) -> Message<Answer> {
        let question = match question {
            Message { from, body: Question::Ended(ended) } => {
                Message { from, body: Question::Ended(current(&ended)) }
            }
            other => other,
        };
        let (answer, effect) = self.settled().answer(question, self.now());
        self.follow(effect);
        answer
    }

    fn bury(&self, ended: &[Tombstone]) {
        let effect = self.lock().bury(&current(ended));
        self.follow(effect);
    }

    fn note(&self, news: News<'_>) {
        let (mut replica, now) = (self.lock(), self.now());
        match news {
            News::Listed(addresses) => replica.view.listed(addresses, now),
            News::Heard(from) => replica.view.heard(from, now),
            News::Refused(address) => replica.view.refused(address, now),
            News::Silent(address) => replica.view.silent(address, now),
            News::Fetched(address) => replica.view.fetched(address),
        }
    }

    fn to_greet(&self) -> Vec<IpAddr> {
        self.lock().view.to_greet(self.now())
    }

    fn to_ask(&self) -> Vec<IpAddr> {
        self.lock().view.to_ask(self.now())
    }

    fn alive(&self) -> Vec<(Peer, State)> {
        self.lock().view.alive(self.now()).collect()
    }

    fn serving(&self) -> [Vec<Peer>; 2] {
        let (replica, now) = (self.lock(), self.now());
        let with_room: Vec<Peer> = replica.view.with_room(now).collect();
        let full = replica.view.serving(now).filter(|peer| !with_room.contains(peer)).collect();
        [with_room, full]
    }

    fn give_up(&self, at_most: usize) -> Vec<(Peer, HandOver)> {
        let (mut replica, now) = (self.lock(), self.now());
        let free = |session: &Session| session.is_free() && self.can_leave(session);
        let movable: Vec<SessionKey> = replica
            .all_held()
            .filter(|(_, session)| free(session))
            .map(|(key, _)| *key)
            .take(at_most)
            .collect();
        let Some(snapshot) = self.snapshot.load_full() else { return Vec::new() };
        let mut given = Vec::new();
        for key in movable {
            let Some(successor) = replica.successor(&key, now) else { continue };
            let Some(session) = replica.held(&key).cloned() else { continue };
            let mut nonce = [0; 12];
            let Ok(id) = getrandom::fill(&mut nonce)
                .map_err(|_| super::NoId)
                .and_then(|()| snapshot.keyring.seal(&session.capsule, nonce).map_err(|_| super::NoId))
            else {
                continue;
            };
            let copy = session.copy();
            session.streams.leave();
            replica.give_up(&key, successor.clone(), copy.clone());
            self.metrics.session_ended(SessionEnd::Moved);
            let principal = session.place.principal().clone();
            given.push((successor, HandOver { id: id.into(), principal, copy, full: Vec::new() }));
        }
        given
    }

    fn has_movable(&self) -> bool {
        let replica = self.lock();
        replica.is_taking() || replica.all_held().any(|(_, session)| self.can_leave(session))
    }

    fn may_serve(&self) -> bool {
        self.lock().view.may_serve(self.now())
    }

    fn is_greeted(&self) -> bool {
        self.lock().view.is_greeted()
    }

    fn is_resumed(&self) -> bool {
        self.journal.is_resumed()
    }

    fn is_overlooked(&self) -> bool {
        self.lock().view.is_overlooked()
    }

    fn is_lost(&self, address: IpAddr) -> bool {
        let (replica, now) = (self.lock(), self.now());
        let member = replica.view.members().find(|member| member.address == address);
        member.and_then(|member| member.silent).is_some_and(|since| now.since(since) >= LOST)
    }

    fn last_heard(&self, pod: &PodId) -> Option<Peer> {
        self.lock().view.last_heard(pod)
    }

    fn is_gone(&self, peer: &Peer) -> bool {
        let (replica, now) = (self.lock(), self.now());
        let view = &replica.view;
        let last = view.last_heard(&peer.pod);
        let peer = last.as_ref().unwrap_or(peer);
        view.is_down(peer.address, now) || view.standing(peer, Duration::MAX, now) == Standing::Gone
    }
}
