//! One of the other replicas, as far as it is known: when something was heard of it, and what that says of it now.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bounds::{FRESH, REMEMBERED, UNLISTED, UNLISTED_YET};
use crate::identity::{Moment, Peer, PodId};
use crate::message::Word;
use crate::tombstones::Digest;

/// What a replica is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It says hello, and serves nobody yet.
    Starting,
    /// It serves, and takes sessions.
    Serving,
    /// It serves what it holds, and takes nothing new.
    Draining,
    /// Its pod ends. It has given up everything, and nobody need ask it any more.
    Leaving,
}

/// What is known of who is at one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The address.
    pub address: IpAddr,
    /// Who said something from there last.
    pub pod: Option<PodId>,
    /// Which of its words that was.
    pub(super) word: Option<Word>,
    /// What it was doing then.
    pub state: State,
    /// Since when this process has said that it starts.
    pub(super) starting: Option<Moment>,
    /// How many processes have spoken from there, as far as was heard.
    pub lives: u64,
    /// What it knew to be ended then.
    pub tombstones: Digest,
    /// When that was. `None`: never, or it refused a connection since.
    pub heard: Option<Moment>,
    /// Since when its port has refused every connection.
    pub refused: Option<Moment>,
    /// Since when it has not answered at all.
    pub silent: Option<Moment>,
    /// When it was heard that it leaves, and for how long it had been so by then.
    pub(super) left: Option<(Moment, Duration)>,
    /// Since when neither has DNS listed it nor has it said anything. `None`: it is listed.
    pub unlisted: Option<Moment>,
    /// It has said that it knows this replica.
    pub(super) knows_me: bool,
    /// It has said that it is settled.
    pub(super) settled: bool,
    /// It has said that its server was lost soon after its handshake.
    pub(super) shaken: bool,
    /// It has said that all its places are taken.
    pub(super) full: bool,
    /// The template that it has said its pod was made of.
    pub(super) template: Option<Arc<str>>,
    /// DNS has listed it at some time.
    pub(super) was_listed: bool,
    /// What it knew to be ended was fetched once.
    pub(super) fetched: bool,
    /// The pod has another address now, so nobody lives at this one.
    pub(super) superseded: bool,
}

/// How the pod that a session names as its owner is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It was heard just now.
    Alive(Peer, State),
    /// Its port refuses connections, or it is there again and starts, neither for long yet.
    Restarting,
    /// Nothing is known; it has to be asked at its address.
    Unknown,
    /// It will not come back as this pod.
    Gone,
}

impl Member {
    pub(super) fn new(address: IpAddr, now: Moment) -> Self {
        Self {
            address,
            pod: None,
            word: None,
            state: State::Starting,
            starting: None,
            lives: 0,
            tombstones: Digest::default(),
            heard: None,
            refused: None,
            silent: None,
            left: None,
            unlisted: Some(now),
            knows_me: false,
            settled: false,
            shaken: false,
            full: false,
            template: None,
            was_listed: false,
            fetched: false,
            superseded: false,
        }
    }

    /// Who is there, if it is alive and stays.
    pub fn alive(&self, now: Moment) -> Option<Peer> {
        if self.is_fresh(now) && self.state != State::Leaving { self.peer() } else { None }
    }

    /// Who was heard there last.
    pub(super) fn peer(&self) -> Option<Peer> {
        Some(Peer { pod: self.pod.clone()?, address: self.address })
    }

    /// Whether somebody may be there who holds sessions: DNS lists it, or did until just now, or it was heard.
    pub(super) fn may_live(&self, now: Moment) -> bool {
        if self.state == State::Leaving {
            return false;
        }
        // One that was never listed may be too new for the name servers.
        let wait = if self.was_listed { UNLISTED } else { UNLISTED_YET };
        let gone = self.unlisted.is_some_and(|since| self.superseded || now.since(since) >= wait);
        !gone || self.is_fresh(now)
    }

    /// How long ago it has said that it leaves.
    pub(super) fn left_for(&self, now: Moment) -> Option<Duration> {
        self.left.map(|(heard, ago)| now.since(heard) + ago)
    }

    /// Listed, or not for so long not that it is to be forgotten what it was.
    pub(super) fn is_remembered(&self, now: Moment) -> bool {
        let away = |since| self.left_for(now).unwrap_or(now.since(since));
        self.unlisted.is_none_or(|since| away(since) < REMEMBERED)
    }

    fn is_fresh(&self, now: Moment) -> bool {
        self.heard.is_some_and(|heard| now.since(heard) <= FRESH)
    }
}
