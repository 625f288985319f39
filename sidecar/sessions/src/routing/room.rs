//! Going on with a session where there is no room for it.

use super::{Entry, Route, Step};
use crate::bounds::MAX_FULL;
use crate::identity::{Moment, Peer, PodId};
use crate::membership::State;
use crate::rendezvous;
use crate::replica::Replica;

impl Route {
    /// It goes on elsewhere where there is no room for it; these have said that they have none.
    #[must_use]
    pub fn past(self, full: Vec<PodId>) -> Self {
        Self { full: Some(full), ..self }
    }

    /// Who has no room for it. None: it goes on to nobody else, and whoever is next has the last word.
    pub fn full(&self) -> Option<&[PodId]> {
        self.full.as_deref()
    }

    /// Whether somebody else may have room for a session that is to be taken here ([`Step::Take`]): then it does not wait for
    /// any. One that was opened here is taken nowhere else.
    pub fn may_go_on<T>(&self, replica: &Replica<T>, now: Moment) -> bool {
        !self.is_mine(replica) && self.next(replica, now).is_some()
    }

    /// There is no room for it here.
    pub(super) fn go_on<T>(&mut self, replica: &mut Replica<T>, now: Moment) -> Step {
        let next = self.next(replica, now);
        match (self.entry, next) {
            (Entry::Forwarded, next) => Step::Full(next),
            (Entry::HandOver, Some(peer)) => {
                self.pass(replica.me().pod.clone(), now);
                Step::HandOn(peer)
            }
            (Entry::HandOver, None) => Step::Moved(None),
            (Entry::Client, Some(peer)) => {
                self.pass(replica.me().pod.clone(), now);
                self.go_to(peer, replica, now)
            }
            // Whoever it was has gone meanwhile.
            (Entry::Client, None) => {
                self.go_on_no_more(now);
                self.decide(replica, now)
            }
        }
    }

    /// Who may have room for it if there is none here.
    fn next<T>(&self, replica: &Replica<T>, now: Moment) -> Option<Peer> {
        self.full.as_ref().filter(|full| full.len() < MAX_FULL)?;
        rendezvous::winner(&self.key, replica.view.with_room(now).filter(|peer| !self.is_passed(&peer.pod)))
    }

    /// Notes that a replica has passed it on. When one has done so twice, or too many have, it goes on no more.
    pub(super) fn pass(&mut self, pod: PodId, now: Moment) {
        match &mut self.full {
            Some(full) if full.len() < MAX_FULL && !full.contains(&pod) => full.push(pod),
            Some(_) => self.go_on_no_more(now),
            None => {}
        }
    }

    /// Whoever is next has the last word, and time for it: each of the others may have waited for room, and nobody was looked
    /// for meanwhile. That happens once.
    fn go_on_no_more(&mut self, now: Moment) {
        self.full = None;
        self.age = self.age_at(now);
        self.began = now;
    }

    pub(super) fn is_passed(&self, pod: &PodId) -> bool {
        self.full.as_ref().is_some_and(|full| full.contains(pod))
    }

    /// What a peer said of where it may be. One that names somebody who has no room for it does not take it itself, as one of
    /// an earlier release, and neither is asked again.
    pub(super) fn unless_full(&mut self, peer: &Peer, hint: Option<Peer>, now: Moment) -> Option<Peer> {
        if hint.as_ref().is_none_or(|hint| !self.is_passed(&hint.pod)) {
            return hint;
        }
        if !self.is_passed(&peer.pod) {
            self.pass(peer.pod.clone(), now);
        }
        None
    }

    /// Whether it was brought to this replica because others have no room for it.
    pub(super) fn is_brought_on<T>(&self, replica: &Replica<T>) -> bool {
        self.was_passed() && !self.is_passed(&replica.me().pod) && replica.state() == State::Serving
    }

    /// Whether a peer that claims it too is to step back: it has passed it on, and has no better claim than those to which it
    /// did. Of two that have each passed it on, in different requests, the lighter one waits, and not each for the other.
    pub(super) fn is_left_by<T>(&self, peer: &Peer, replica: &Replica<T>) -> bool {
        let heavier = rendezvous::winner(&self.key, [peer.clone(), replica.me().clone()]);
        self.is_passed(&peer.pod) && heavier.as_ref() == Some(peer)
    }

    /// Who is to take the session, of those that have not passed it on. Those whose servers die soon after their handshakes
    /// are asked where nobody else is.
    pub(super) fn winner<T>(&self, replica: &Replica<T>, now: Moment) -> Option<Peer> {
        let me = (replica.state() == State::Serving).then(|| (replica.me().clone(), replica.is_shaken()));
        let all = replica.view.that_serve(now).chain(me);
        rendezvous::preferred(&self.key, all.filter(|(peer, _)| !self.is_passed(&peer.pod)))
    }

    /// Who is to take it. When all have passed it on, that is who would have been the first.
    pub(super) fn winner_or_last<T>(&mut self, replica: &Replica<T>, now: Moment) -> Option<Peer> {
        let winner = self.winner(replica, now);
        if winner.is_some() || !self.was_passed() {
            return winner;
        }
        self.go_on_no_more(now);
        self.winner(replica, now)
    }

    fn was_passed(&self) -> bool {
        self.full.as_ref().is_some_and(|full| !full.is_empty())
    }
}

#[cfg(test)]
mod tests;
