//! The replica of this process, until sessions are kept in it.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longshore_sessions::membership::{State, View};
use longshore_sessions::message::HandOver;
use longshore_sessions::tombstones::{Tombstone, Tombstones};
use longshore_sessions::{Answer, Introduction, Message, Moment, Peer, Question, Replica};

use super::{Local, News};

/// After how long without a word nothing is waited for any more: an answer that is late still comes, but not from a
/// process that does not even answer heartbeats.
const LOST: Duration = Duration::from_secs(10);

pub(crate) struct Bare {
    replica: Mutex<Replica<()>>,
    began: Instant,
}

impl Bare {
    pub(crate) fn new(me: Peer, alone: bool) -> Self {
        let view = if alone { View::alone(me.address) } else { View::new(me.address) };
        Self { replica: Mutex::new(Replica::new(me, view, Tombstones::default())), began: Instant::now() }
    }

    fn now(&self) -> Moment {
        Moment::default().after(self.began.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, Replica<()>> {
        self.replica.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Local for Bare {
    fn introduction(&self) -> Introduction {
        self.lock().introduction()
    }

    fn set_state(&self, state: State) {
        self.lock().set_state(state);
    }

    fn answer(&self, question: Message<Question>) -> Message<Answer> {
        self.lock().answer(question, self.now()).0
    }

    fn bury(&self, ended: &[Tombstone]) {
        self.lock().bury(ended);
    }

    fn note(&self, news: News<'_>) {
        let (mut replica, now) = (self.lock(), self.now());
        match news {
            News::Listed(addresses) => replica.view.listed(addresses, now),
            News::Heard(from) => replica.view.heard(from, now),
            News::Refused(address) => replica.view.refused(address, now),
            News::Silent(address) => replica.view.silent(address, now),
        }
    }

    fn to_ask(&self) -> Vec<IpAddr> {
        self.lock().view.to_ask(self.now())
    }

    fn alive(&self) -> Vec<(Peer, State)> {
        self.lock().view.alive(self.now()).collect()
    }

    fn give_up(&self, _at_most: usize) -> Vec<(Peer, HandOver)> {
        Vec::new()
    }

    fn has_movable(&self) -> bool {
        false
    }

    fn is_greeted(&self) -> bool {
        self.lock().view.is_greeted()
    }

    fn is_lost(&self, address: IpAddr) -> bool {
        let (replica, now) = (self.lock(), self.now());
        let member = replica.view.members().find(|member| member.address == address);
        member.and_then(|member| member.silent).is_some_and(|since| now.since(since) >= LOST)
    }
}
