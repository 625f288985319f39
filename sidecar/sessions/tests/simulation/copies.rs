//! What clients set in their sessions, and who keeps copies of it: the shell's part of that, and the rule.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;

use longshore_sessions::membership::State;
use longshore_sessions::message::Copy;
use longshore_sessions::routing::Outcome;
use longshore_sessions::{PodId, Question, SessionKey};

use super::network::Purpose;
use super::pods::{Held, Process};
use super::world::World;

/// Who has got a copy.
#[derive(Debug)]
pub(super) struct Keeper {
    pod: usize,
    life: u32,
    /// When.
    since: u64,
    /// What is in it: how often the client had set something.
    times_set: u64,
}

/// What somebody is asked to keep.
pub(super) struct Kept {
    key: SessionKey,
    version: u64,
    /// Who that is: a pod, and which of its processes.
    at: Option<(PodId, u64)>,
}

impl Held {
    pub(super) fn new(session: usize, copy: Copy) -> Self {
        Self { session, busy: Cell::new(0), copy: RefCell::new(copy), kept_at: RefCell::default() }
    }
}

impl World {
    /// The client has set something, at the replica that holds its session. A call that takes longer than its pod is
    /// there may come too late: somebody else has the session by then.
    pub(super) fn set(&mut self, pod: usize, session: usize) {
        if self.replica(pod).is_some_and(|replica| replica.state() == State::Leaving) {
            return;
        }
        let truth = &mut self.sessions[session];
        truth.times_set += 1;
        let (key, times_set) = (truth.capsule.key, truth.times_set);
        if let Some(held) = self.replica(pod).and_then(|replica| replica.held(&key)) {
            let mut copy = held.copy.borrow_mut();
            copy.version += 1;
            copy.subscriptions = [times_set.to_string().into()].into();
            held.kept_at.take();
            drop(copy);
            self.tally.set += 1;
            self.copy_all(pod);
        }
    }

    /// Has copies be where they belong: of all that is held, and at the end also of all that is kept for others.
    pub(super) fn copy_all(&mut self, pod: usize) {
        let now = self.moment();
        let Some(Process { replica, passed_on, .. }) = &self.pods[pod].process else { return };
        let mut all = Vec::new();
        let mut belongs = |key: &SessionKey, copy: &Copy, is_at: Option<&(PodId, u64)>| {
            let Some(next) = replica.heir(key, now) else { return };
            let life = replica.view.serving_lives(now).find(|(pod, _)| *pod == next.pod);
            if life.as_ref() != is_at {
                all.push((*key, copy.clone(), next.address, life));
            }
        };
        for (key, held) in replica.all_held() {
            let copy = held.copy.borrow();
            if !copy.subscriptions.is_empty() {
                belongs(key, &copy, held.kept_at.borrow().as_ref());
            }
        }
        if replica.state() == State::Draining {
            for key in replica.all_copied() {
                replica.copy(key).into_iter().for_each(|copy| belongs(key, copy, passed_on.get(key)));
            }
        }
        // Not in the order of a map, which is another one each time.
        all.sort_by_key(|(key, ..)| *key);
        for (key, copy, address, at) in all {
            let kept = Kept { key, version: copy.version, at };
            self.ask(pod, vec![address], Question::Keep(key, copy), Purpose::Keep(kept));
        }
    }

    /// Whoever was asked to keep a copy does, or does not.
    pub(super) fn copied(&mut self, pod: usize, kept: Kept, outcomes: &[(IpAddr, Outcome)]) {
        let Kept { key, version, at } = kept;
        let ([(_, Outcome::Said(_))], Some(process), Some(at)) = (outcomes, &mut self.pods[pod].process, at)
        else {
            return;
        };
        match process.replica.held(&key) {
            Some(held) if held.copy.borrow().version == version => drop(held.kept_at.replace(Some(at))),
            Some(_) => {}
            None => drop(process.passed_on.insert(key, at)),
        }
    }

    /// A replica has got a copy.
    pub(super) fn is_kept(&mut self, pod: usize, key: &SessionKey, copy: &Copy) {
        let (life, since) = (self.pods[pod].life, self.happenings());
        let truth = self.sessions.iter_mut().find(|truth| truth.capsule.key == *key);
        if let Some(truth) = truth {
            truth.keepers.push(Keeper { pod, life, since, times_set: times_set(copy) });
        }
    }

    /// Whoever takes a session knows what everybody knew who lives. One that leaves is not asked any more: it has passed
    /// on what it knew, unless that went wrong.
    pub(super) fn check_copy(&self, session: usize, copy: &Copy, asked: u64) {
        let counts = |keeper: &&Keeper| {
            let process =
                self.pods[keeper.pod].process.as_ref().filter(|_| self.is_life(keeper.pod, keeper.life));
            let could_tell = |process: &Process| {
                let since = process.drains_since.unwrap_or_default();
                process.replica.state() != State::Leaving || self.losses == 0 && self.upset <= since
            };
            keeper.since < asked && process.is_some_and(could_tell)
        };
        for keeper in self.sessions[session].keepers.iter().filter(counts) {
            assert!(
                times_set(copy) >= keeper.times_set,
                "session {session} is taken at {} with {copy:?}, and {keeper:?} knew better",
                self.now
            );
        }
    }
}

fn times_set(copy: &Copy) -> u64 {
    copy.subscriptions.first().map_or(0, |uri| uri.parse().unwrap())
}
