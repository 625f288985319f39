//! Who serves a session. One rule for every replica:
//!
//! 1. It is ended, or too old: nobody does.
//! 2. It is held here: this one.
//! 3. Somebody is known to hold it, or the replica that opened it is alive: that one.
//! 4. Somebody says, being asked, that they hold it: that one.
//! 5. Nobody does. The replica that opened it takes it again if it is there; else the winner of rendezvous hashing
//!    among those that serve. Both must be certain first: they mark their claim and ask everybody who may be alive, and
//!    if one of them cannot be asked, nobody takes it.
//!
//! Of two that want the same session each marks its claim before it asks the other, so at least one of them hears of the
//! other's claim. It then steps back, unless it opened the session: then it waits.
//!
//! A request that a replica forwarded is never forwarded again: who gets one and may not serve it says where it thinks
//! the session is, and the first replica tries there.
//!
//! [`Route`] is that rule as a state machine: [`Route::step`] says what to do next, the shell does it and tells what
//! came of it.

use std::net::IpAddr;

use crate::capsule::Capsule;
use crate::identity::{Moment, Peer, SessionKey};
use crate::message::{Answer, Copy, Message};

/// Finds who serves one request.
#[derive(Debug)]
pub struct Route {
    key: SessionKey,
    owner: Peer,
    entry: Entry,
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
}

/// What came of a question.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// An answer.
    Said(Message<Answer>),
    /// The port refused the connection.
    Refused,
    /// Anything else: no connection, no answer in time, no answer that is one.
    Silent,
}

/// Why a request could not be forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotForwarded {
    /// The peer does not hold the session, and may have said who does. A pod that is another one than was meant says so
    /// too.
    Moved(Option<Peer>),
    /// The port refused the connection.
    Refused,
    /// There was no connection in time.
    Silent,
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
    /// Take the session, then serve: it has a claim now, which ends with [`crate::Replica::hold`] or
    /// [`crate::Replica::release`]. `Take::Up`: it was opened by this pod, whose server may still know it.
    Take(Take, Copy),
    /// Tell the replica that forwarded it where the session may be instead.
    Moved(Option<Peer>),
    /// It cannot be served.
    Fail(Failure),
}

/// As what a session is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// This pod opened it, and its sidecar has restarted.
    Up,
    /// The pod that opened it is gone.
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
    /// The way of a request of that session.
    pub fn new(capsule: &Capsule, entry: Entry) -> Self {
        Self { key: capsule.key, owner: capsule.owner.clone(), entry }
    }
}
