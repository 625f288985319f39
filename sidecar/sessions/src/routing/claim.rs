//! Taking a session that nobody is known to hold: it is claimed, everybody who may be alive is asked, and it is taken only
//! if nobody else has it and nobody else can.

use std::net::IpAddr;

use super::said::{note, refusing};
use super::{Entry, Failure, Outcome, Phase, Route, Step, Take};
use crate::bounds::RETRY;
use crate::identity::Moment;
use crate::membership::{Standing, State};
use crate::message::Holding;
use crate::replica::{Claim, Replica};

impl Route {
    /// Marks the session as wanted, and asks everybody.
    pub(super) fn claim<T>(&mut self, replica: &mut Replica<T>, now: Moment) -> Step {
        match replica.state() {
            State::Starting | State::Leaving => match replica.remembered(&self.key, now) {
                // Where it is about to end, it knows what it has given up.
                Some(peer) => self.go_to(peer, replica, now),
                None => self.wait(now, Failure::Undecided),
            },
            State::Draining => self.nowhere(now),
            State::Serving => {
                let claim = replica.claim(self.key);
                self.ask_with(claim, replica, now)
            }
        }
    }

    pub(super) fn ask_with<T>(&mut self, claim: Claim, replica: &mut Replica<T>, now: Moment) -> Step {
        if !self.is_given() && !replica.view.is_settled(now) {
            replica.release(&self.key, claim);
            return self.wait(now, Failure::Unsettled);
        }
        if self.is_late(now) {
            replica.release(&self.key, claim);
            return Step::Fail(Failure::Undecided);
        }
        if !self.is_mine(replica)
            && replica.view.standing(&self.owner, self.age_at(now), now) == Standing::Unknown
        {
            replica.view.mentioned(&self.owner, now);
        }
        let peers = replica.view.to_ask(now);
        self.phase = Phase::Claiming(claim, peers.clone());
        if peers.is_empty() { self.claimed_with(claim, replica) } else { Step::Ask(peers) }
    }

    pub(super) fn claimed<T>(
        &mut self,
        claim: Claim,
        asked: &[IpAddr],
        outcomes: Vec<(IpAddr, Outcome)>,
        replica: &mut Replica<T>,
        now: Moment,
    ) -> Step {
        let refused: Vec<IpAddr> = refusing(&outcomes);
        let mut answered = Vec::new();
        let mut pending = None;
        let mut owner = None;
        for said in note(&self.key, outcomes, replica, now) {
            answered.push(said.address);
            if said.from.pod == self.owner.pod {
                owner = Some((said.from.clone(), said.state));
            }
            match said.holding {
                Holding::Ended(tombstone) => {
                    replica.release(&self.key, claim);
                    return Step::Ended(tombstone);
                }
                Holding::Here => {
                    replica.release(&self.key, claim);
                    // One that is about to end serves nobody any more. Nobody else may have it until it has ended.
                    return match said.state {
                        State::Starting => self.wait(now, Failure::Undecided),
                        _ => self.go_to(said.from, replica, now),
                    };
                }
                Holding::Pending => pending = Some(said.from),
                Holding::At(peer) if peer.pod != replica.me().pod && !asked.contains(&peer.address) => {
                    replica.view.mentioned(&peer, now);
                }
                Holding::At(_) | Holding::No => {}
            }
        }
        if replica.tombstones().get(&self.key).is_some() {
            replica.release(&self.key, claim);
            return Step::Fail(Failure::NotFound);
        }
        if let Some(peer) = pending {
            if self.is_mine(replica) || self.is_left_by(&peer, replica) {
                return self.wait_with(claim, asked, replica, now);
            }
            replica.release(&self.key, claim);
            // Or each of the two would make way for the other time and again.
            replica.had_its_turn(&self.key);
            // It may take it or not: there is nothing to be remembered where nobody finds that out. One that has passed it on
            // is not named: whoever names it seems to have no room either.
            return match self.entry {
                Entry::Client => self.go_to(peer, replica, now),
                Entry::Forwarded | Entry::HandOver => {
                    Step::Moved(Some(peer).filter(|peer| !self.is_passed(&peer.pod)))
                }
            };
        }
        // What it said may be older than what was heard of it since.
        let standing = replica.view.standing(&self.owner, self.age_at(now), now);
        match (owner, standing) {
            // It takes the session up itself.
            (Some((peer, State::Serving)), _)
            | (Some((peer, State::Starting)), Standing::Alive(_, State::Serving)) => {
                replica.release(&self.key, claim);
                return self.go_to(peer, replica, now);
            }
            // It is back, and takes the session up in a moment, however long it was away.
            (Some((_, State::Starting)), Standing::Restarting) => {
                replica.release(&self.key, claim);
                return self.wait(now, Failure::Undecided);
            }
            // It has said more since, while that was under way, and is silent now: it may serve.
            (Some((_, State::Starting)), Standing::Unknown) => {
                replica.release(&self.key, claim);
                return self.wait(now, Failure::Unreachable);
            }
            _ => {}
        }
        let is_silent = |address: &&IpAddr| !answered.contains(address) && !refused.contains(address);
        let silent: Vec<IpAddr> = asked.iter().filter(is_silent).copied().collect();
        // One who was never heard knows nothing of a session that is given.
        if silent.iter().any(|address| !self.is_given() || replica.view.has_heard(*address)) {
            replica.release(&self.key, claim);
            if self.is_lost(&silent, replica, now) {
                return Step::Fail(Failure::NotFound);
            }
            // Perhaps it was only slow, or has just gone, and somebody says so.
            return self.wait(now, Failure::Unreachable);
        }
        if self.is_given() {
            return self.claimed_with(claim, replica);
        }
        // Whom those who answered know.
        let more = replica.view.to_ask(now).iter().any(|address| !asked.contains(address));
        if more || refused.iter().any(|address| !replica.view.is_down(*address, now)) {
            return self.wait_with(claim, asked, replica, now);
        }
        if !replica.view.is_settled(now) {
            replica.release(&self.key, claim);
            return self.wait(now, Failure::Unsettled);
        }
        self.claimed_with(claim, replica)
    }

    /// Whoever held it gives it to this replica: nobody else has it, whoever there may be. Whom that one knows are asked,
    /// so that they know this replica from then on.
    fn is_given(&self) -> bool {
        self.entry == Entry::HandOver
    }

    /// Whether nobody has it, whatever those say who are silent: it was at its owner or nowhere, that one is gone, and they
    /// are others. Where somebody was never heard, that may be the owner, at another address.
    fn is_lost<T>(&self, silent: &[IpAddr], replica: &Replica<T>, now: Moment) -> bool {
        let view = &replica.view;
        let is_gone = || {
            view.standing(&self.owner, self.age_at(now), now) == Standing::Gone
                || view.is_down(self.owner.address, now)
        };
        self.stays
            && !self.is_mine(replica)
            && silent.iter().all(|address| view.is_silent_other(*address, &self.owner.pod))
            && is_gone()
    }

    /// Nobody else has it, and nobody else can.
    fn claimed_with<T>(&mut self, claim: Claim, replica: &mut Replica<T>) -> Step {
        // Where its server does not begin it, others may have one that does.
        replica.had_its_turn(&self.key);
        let mut copy = replica.copy(&self.key).cloned().unwrap_or_default();
        self.phase = Phase::Taking(claim, copy.version);
        // Whoever had it before may still be at a change, which has that number too.
        copy.version += 1;
        Step::Take(if self.is_mine(replica) { Take::Up } else { Take::Adopt }, copy)
    }

    fn wait_with<T>(
        &mut self,
        claim: Claim,
        asked: &[IpAddr],
        replica: &mut Replica<T>,
        now: Moment,
    ) -> Step {
        if self.is_late(now) {
            replica.release(&self.key, claim);
            return Step::Fail(Failure::Undecided);
        }
        self.phase = Phase::Claiming(claim, asked.to_vec());
        Step::Wait(now.after(RETRY))
    }
}
