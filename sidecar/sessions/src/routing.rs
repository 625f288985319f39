//! Who serves a session. One rule for every replica:
//!
//! 1. It is ended, or too old: nobody does.
//! 2. It is held here: this one.
//! 3. Somebody is known to hold it, or the replica that opened it is alive: that one.
//! 4. Somebody says, being asked, that they hold it: that one.
//! 5. Nobody does. The replica that opened it takes it again if it is there; else the winner of rendezvous hashing
//!    among those that serve. Both must be certain first: they mark their claim and ask everybody who may be alive, and
//!    if one of them cannot be asked, nobody takes it. One that goes on nowhere but at the replica that opened it is lost
//!    with that one all the same: nobody else can have it.
//!
//! Of two that want the same session each marks its claim before it asks the other, so at least one of them hears of the
//! other's claim. It then steps back, unless it opened the session: then it waits.
//!
//! A request that a replica forwarded is never forwarded again: who gets one and may not serve it says where it thinks
//! the session is, and the first replica tries there. What replicas remember of that may be wrong, where a request was
//! answered without being served: two may each remember the other. So a request that went round in vain asks who holds the
//! session, and goes by weight if nobody does.
//!
//! Who was given a session may have many others to take before. A request that comes meanwhile takes it there, by a claim
//! of its own, and does not go to whoever would be next by weight: once, and not where somebody else is at it.
//!
//! Who is to take a session that somebody else had, and has no room for it, waits for none as long as there may be some
//! elsewhere: the request, or the session that was handed over, goes on to the next by weight, with who has passed it on.
//! Whoever it is brought to so takes it, by its claim as always. When all have passed it on, or too many, whoever is next
//! has the last word: it waits for room, and says so if there is none.
//!
//! [`Route`] is that rule as a state machine: [`Route::step`] says what to do next, the shell does it and tells what
//! came of it.

mod claim;
mod room;
mod said;

use std::net::IpAddr;
use std::time::Duration;

use crate::bounds::{DECIDE, MAX_FORWARDS, NEXT, RETRY};
use crate::capsule::Capsule;
use crate::identity::{Moment, Peer, PodId, SessionKey};
use crate::membership::{Standing, State};
use crate::message::{Answer, Copy, Holding, Message};
use crate::replica::{Claim, Ended, Replica};
use crate::tombstones::Tombstone;
use said::note;

/// Finds who serves one request. Whoever gives up in between (the client has gone) calls [`Route::abandon`].
#[derive(Debug)]
pub struct Route {
    key: SessionKey,
    owner: Peer,
    /// How old the session was at the moment `began`.
    age: Duration,
    entry: Entry,
    /// It goes on nowhere but at its owner.
    stays: bool,
    /// When the request came, or when all had passed the session on.
    began: Moment,
    phase: Phase,
    /// Everybody was asked once who holds it.
    looked: bool,
    /// Who sent it back.
    not_at: Vec<PodId>,
    forwards: u8,
    /// It has been sent on from one to the next in vain: what anybody remembers of the session may be wrong.
    went_round: bool,
    /// Where it was said to be.
    hint: Option<Peer>,
    /// Who has no room for it. None: whoever is next has the last word.
    full: Option<Vec<PodId>>,
}

#[derive(Debug)]
enum Phase {
    Deciding,
    /// Asking who holds it.
    Looking,
    /// Asking with a claim, and whom.
    Claiming(Claim, Vec<IpAddr>),
    /// About to hold it, with a copy of that version.
    Taking(Claim, u64),
    Forwarding(Peer),
}

/// How a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// From the client. It may be forwarded.
    Client,
    /// From a peer. It is served here, or sent back.
    Forwarded,
    /// It is none: a peer gives the session up for this replica.
    HandOver,
}

/// What happened since the last step.
#[derive(Clone, Debug)]
pub enum Event {
    /// Nothing yet.
    Begin,
    /// Time has passed, as [`Step::Wait`] asked.
    Waited,
    /// Those who were asked ([`Step::Ask`]) have answered, or not. One outcome for each address.
    Asked(Vec<(IpAddr, Outcome)>),
    /// The request could not be forwarded ([`Step::Forward`]); nothing of it was served.
    NotForwarded(NotForwarded),
    /// There is no room for it here ([`Step::Take`]), and there may be elsewhere ([`Route::may_go_on`]).
    Full,
}

/// What came of a question.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// An answer.
    Said(Box<Message<Answer>>),
    /// The port refused the connection.
    Refused,
    /// No connection, or no answer in time.
    Silent,
    /// Something, and no answer: it lives, and what it holds is not known.
    Declined,
}

/// Why a request could not be forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotForwarded {
    /// The peer does not hold the session, and may have said who does. A pod that is another one than was meant says so
    /// too. One that names itself holds it, and leaves the call to the process that comes after it.
    Moved(Option<Peer>),
    /// The peer is to take the session and has no room for it, and may have said who has.
    Full(Option<Peer>),
    /// The port refused the connection.
    Refused,
    /// There was no connection in time.
    Silent,
    /// The connection broke before there was an answer. Whoever is at its other end may live.
    Broken,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Serve it: the session is held here.
    Serve,
    /// Forward it. If it reaches somebody who serves it there is no further step.
    Forward(Peer),
    /// Ask all of these [`crate::Question::Holds`] at once, and tell what came of it ([`Event::Asked`]).
    Ask(Vec<IpAddr>),
    /// Wait until then ([`Event::Waited`]); earlier is allowed.
    Wait(Moment),
    /// Take the session, then serve: what is needed of the server first, then [`Route::take`]. If it cannot be done:
    /// [`Route::abandon`], or [`Event::Full`].
    Take(Take, Copy),
    /// Tell the replica that forwarded it where the session may be instead.
    Moved(Option<Peer>),
    /// Tell it that there is no room for the session here, and where some may be.
    Full(Option<Peer>),
    /// Hand the session on to this replica ([`crate::Question::HandOver`]).
    HandOn(Peer),
    /// It cannot be served: a peer knows that the session is ended, and this replica is to know it too
    /// ([`Replica::bury`]).
    Ended(Tombstone),
    /// It cannot be served.
    Fail(Failure),
}

/// As what a session is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// This pod opened it, its sidecar has restarted, and its server may still know it.
    Up,
    /// The pod that opened it is gone, and its server with it.
    Adopt,
}

/// Why a request cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The session is ended. The client begins a new one.
    NotFound,
    /// A peer that may hold it cannot be reached.
    Unreachable,
    /// DNS does not say who there is, or not that this replica is one of them.
    Unsettled,
    /// It took too long to find out; the client may try again.
    Undecided,
}

impl Route {
    /// The way of a request of that session, `unix` being the time in seconds since 1970.
    pub fn new(capsule: &Capsule, entry: Entry, now: Moment, unix: u64) -> Self {
        Self {
            key: capsule.key,
            owner: capsule.owner.clone(),
            age: Duration::from_secs(unix.saturating_sub(capsule.issued)),
            entry,
            stays: false,
            began: now,
            phase: Phase::Deciding,
            looked: false,
            not_at: Vec::new(),
            forwards: 0,
            went_round: false,
            hint: None,
            full: None,
        }
    }

    /// It goes on nowhere but at the replica that opened it: once that one is gone, nobody has it.
    #[must_use]
    pub fn staying(self) -> Self {
        Self { stays: true, ..self }
    }

    /// Which session it is about.
    pub fn key(&self) -> SessionKey {
        self.key
    }

    /// What to do next.
    pub fn step<T>(&mut self, event: Event, replica: &mut Replica<T>, now: Moment) -> Step {
        match (event, std::mem::replace(&mut self.phase, Phase::Deciding)) {
            (Event::Asked(outcomes), Phase::Looking) => self.looked(outcomes, replica, now),
            (Event::Asked(outcomes), Phase::Claiming(claim, asked)) => {
                self.claimed(claim, &asked, outcomes, replica, now)
            }
            (Event::NotForwarded(why), Phase::Forwarding(peer)) => {
                self.not_forwarded(&peer, why, replica, now)
            }
            (Event::Waited, Phase::Claiming(claim, _)) => self.ask_with(claim, replica, now),
            (Event::Full, Phase::Taking(claim, _)) => {
                replica.release(&self.key, claim);
                self.go_on(replica, now)
            }
            // What happened is of no phase of this machine; it begins anew, without a claim.
            (_, Phase::Claiming(claim, _) | Phase::Taking(claim, _)) => {
                replica.release(&self.key, claim);
                self.decide(replica, now)
            }
            (_, Phase::Deciding | Phase::Looking | Phase::Forwarding(_)) => self.decide(replica, now),
        }
    }

    /// Holds the session from now on, after [`Step::Take`].
    pub fn take<T>(&mut self, replica: &mut Replica<T>, session: T) -> Result<(), Ended<T>> {
        match std::mem::replace(&mut self.phase, Phase::Deciding) {
            Phase::Taking(claim, version) => replica.take(self.key, (claim, version), session),
            _ => Err(Ended(session)),
        }
    }

    /// Gives up: whatever was claimed may be taken by others.
    pub fn abandon<T>(&mut self, replica: &mut Replica<T>) {
        if let Phase::Claiming(claim, _) | Phase::Taking(claim, _) =
            std::mem::replace(&mut self.phase, Phase::Deciding)
        {
            replica.release(&self.key, claim);
        }
    }

    // === deciding ===

    fn decide<T>(&mut self, replica: &mut Replica<T>, now: Moment) -> Step {
        match replica.holding(&self.key, now) {
            Holding::Ended(_) => return Step::Fail(Failure::NotFound),
            Holding::Here => return Step::Serve,
            // Another request of the same session takes it just now.
            Holding::Pending => return self.wait(now, Failure::Undecided),
            Holding::At(_) | Holding::No => {}
        }
        if self.is_mine(replica) && !matches!(replica.state(), State::Draining | State::Leaving) {
            return self.claim(replica, now);
        }
        if self.is_in_line(replica, now) {
            return self.claim(replica, now);
        }
        match self.entry {
            Entry::Client => self.send_on(replica, now),
            Entry::Forwarded => self.send_back(replica, now),
            Entry::HandOver if replica.state() == State::Serving => self.claim(replica, now),
            Entry::HandOver => Step::Moved(None),
        }
    }

    /// Where a client's request goes that is not held here.
    fn send_on<T>(&mut self, replica: &mut Replica<T>, now: Moment) -> Step {
        if self.forwards >= MAX_FORWARDS {
            return self.begin_anew(now);
        }
        let hint = self.hint.take();
        let remembered = || replica.remembered(&self.key, now).filter(|_| !self.went_round);
        if let Some(peer) = hint.or_else(remembered) {
            return self.go_to(peer, replica, now);
        }
        let standing = replica.view.standing(&self.owner, self.age_at(now), now);
        if let Standing::Alive(peer, State::Serving | State::Draining) = &standing
            && !self.not_at.contains(&peer.pod)
        {
            return self.go_to(peer.clone(), replica, now);
        }
        let winner = self.winner_or_last(replica, now);
        let is_me = winner.as_ref().is_some_and(|peer| peer.pod == replica.me().pod);
        // Who can take it asks everybody anyway.
        if !self.looked && (!is_me || !replica.view.is_settled(now)) {
            let mut peers: Vec<IpAddr> = replica.view.alive(now).map(|(peer, _)| peer.address).collect();
            // So new that DNS is behind: the session says where it is.
            if standing == Standing::Unknown && replica.view.is_untried(self.owner.address) {
                replica.view.mentioned(&self.owner, now);
                peers.push(self.owner.address);
            }
            if !peers.is_empty() {
                self.phase = Phase::Looking;
                return Step::Ask(peers);
            }
        }
        match winner {
            Some(_) if !is_me && standing == Standing::Restarting => self.wait(now, Failure::Undecided),
            Some(peer) => self.go_to(peer, replica, now),
            None => self.wait(now, Failure::Undecided),
        }
    }

    /// What becomes of a request that a peer forwarded, and that is not held here.
    fn send_back<T>(&mut self, replica: &mut Replica<T>, now: Moment) -> Step {
        match self.winner(replica, now) {
            _ if self.is_brought_on(replica) => self.claim(replica, now),
            Some(peer) if peer.pod == replica.me().pod => self.claim(replica, now),
            winner => Step::Moved(replica.remembered(&self.key, now).or(winner)),
        }
    }

    fn looked<T>(&mut self, outcomes: Vec<(IpAddr, Outcome)>, replica: &mut Replica<T>, now: Moment) -> Step {
        self.looked = true;
        let mut hint = None;
        for said in note(&self.key, outcomes, replica, now) {
            match said.holding {
                Holding::Ended(tombstone) => return Step::Ended(tombstone),
                // It is about to end, and serves nobody any more.
                Holding::Here if said.state == State::Starting => {}
                Holding::Here => return self.go_to(said.from, replica, now),
                // It will know by the time that the request is there.
                Holding::Pending => hint = Some(said.from),
                // Who has passed it on since is remembered still by who gave it there.
                Holding::At(peer) if self.went_round || self.is_passed(&peer.pod) => {}
                Holding::At(peer) => hint = hint.or(Some(peer)),
                Holding::No => {}
            }
        }
        self.hint = hint;
        self.decide(replica, now)
    }

    fn not_forwarded<T>(
        &mut self,
        peer: &Peer,
        why: NotForwarded,
        replica: &mut Replica<T>,
        now: Moment,
    ) -> Step {
        match why {
            NotForwarded::Moved(Some(holder)) if holder.pod == peer.pod => {
                self.wait_for(NEXT, now, Failure::Undecided)
            }
            NotForwarded::Moved(hint) => {
                replica.forget_at(&self.key, &peer.pod);
                self.forwards += 1;
                self.not_at.push(peer.pod.clone());
                self.hint = self.unless_full(peer, hint, now);
                self.decide(replica, now)
            }
            NotForwarded::Full(next) => {
                replica.forget_at(&self.key, &peer.pod);
                self.pass(peer.pod.clone(), now);
                self.hint = self.unless_full(peer, next, now);
                self.decide(replica, now)
            }
            NotForwarded::Refused => {
                // Whatever it held, it holds no more.
                replica.forget_at(&self.key, &peer.pod);
                replica.view.refused(peer.address, now);
                self.wait(now, Failure::Undecided)
            }
            NotForwarded::Silent => {
                replica.view.silent(peer.address, now);
                self.decide(replica, now)
            }
            // That takes no time by itself, and says nothing of others: the next connection tells whether there is anybody.
            NotForwarded::Broken => self.wait(now, Failure::Unreachable),
        }
    }

    // === the ends of a step ===

    fn go_to<T>(&mut self, peer: Peer, replica: &mut Replica<T>, now: Moment) -> Step {
        if peer.pod == replica.me().pod {
            return self.claim(replica, now);
        }
        if peer.pod != self.owner.pod {
            replica.remember(self.key, peer.clone());
        }
        match self.entry {
            Entry::Client if self.forwards >= MAX_FORWARDS => self.begin_anew(now),
            Entry::Client => {
                self.phase = Phase::Forwarding(peer.clone());
                Step::Forward(peer)
            }
            Entry::Forwarded | Entry::HandOver => Step::Moved(Some(peer)),
        }
    }

    /// Everybody has sent the request on, since the session moves just now. Nothing of it was served, so it can go
    /// round again in a moment.
    fn begin_anew(&mut self, now: Moment) -> Step {
        self.forwards = 0;
        self.went_round = true;
        self.not_at.clear();
        self.looked = false;
        self.hint = None;
        self.wait(now, Failure::Undecided)
    }

    /// Somebody says that it is here, where nothing is taken any more: the word that it was handed over has yet to arrive.
    fn nowhere(&self, now: Moment) -> Step {
        match self.entry {
            Entry::Client => self.wait(now, Failure::Undecided),
            Entry::Forwarded | Entry::HandOver => Step::Moved(None),
        }
    }

    fn wait(&self, now: Moment, or: Failure) -> Step {
        self.wait_for(RETRY, now, or)
    }

    fn wait_for(&self, time: Duration, now: Moment, or: Failure) -> Step {
        if self.is_late(now) { Step::Fail(or) } else { Step::Wait(now.after(time)) }
    }

    // === what is known ===

    fn is_mine<T>(&self, replica: &Replica<T>) -> bool {
        self.owner.pod == replica.me().pod
    }

    /// Whether it was given to this replica, which can find out that nobody else has it, has a server that stays, and has not
    /// passed it on.
    fn is_in_line<T>(&self, replica: &Replica<T>, now: Moment) -> bool {
        replica.is_in_line(&self.key)
            && replica.state() == State::Serving
            && !replica.is_shaken()
            && replica.view.is_settled(now)
            && !self.is_passed(&replica.me().pod)
    }

    fn is_late(&self, now: Moment) -> bool {
        now.since(self.began) >= DECIDE
    }

    fn age_at(&self, now: Moment) -> Duration {
        self.age + now.since(self.began)
    }
}

#[cfg(test)]
mod tests;
