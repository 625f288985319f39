//! The conversations that there are, and the sessions that each of them serves.
//!
//! * [`group`]: which of them another session may join;
//! * [`room`]: which of them ends for another one, that lacks a place;
//! * [`worn`]: how often those had another process that are over.

mod group;
mod room;
mod worn;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use longshore_sidecar_config::Processes;
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant};

use super::message::Command;
use super::restarts::Restarts;
use super::{Channel, Control, Failure, Gone, Name, Stdio, Why};
pub(in crate::upstream) use group::Limits;
pub(super) use group::{Group, Need};
use room::GivesWay;
use worn::Worn;

/// The conversations that are open.
#[derive(Default)]
pub(super) struct Open {
    /// By session.
    sessions: HashMap<Name, u64>,
    hosts: HashMap<u64, Host>,
    /// Those that were asked to end for others, until they have.
    giving_way: HashMap<u64, GivesWay>,
    /// What those leave behind that are over, for the next ones.
    worn: Worn,
    last: u64,
    /// There will be no more of them.
    closed: bool,
}

/// A conversation.
struct Host {
    channel: Channel<Command>,
    group: Option<Group>,
    sessions: Vec<Name>,
    /// Until when it starts no other process, since those that it had keep dying.
    tired: Option<Instant>,
}

/// Where another session, or a call, could go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) host: u64,
    /// How many sessions it has.
    pub(super) sessions: usize,
    /// It has no process, and starts none for a while.
    pub(super) is_tired: bool,
}

/// A conversation's entry.
pub(super) struct Registered {
    pub(super) stdio: Arc<Stdio>,
    host: u64,
}

impl Open {
    pub(super) fn find(&self, name: Name) -> Option<Channel<Command>> {
        self.hosts.get(&self.host(name)?).map(|host| host.channel.clone())
    }

    /// Which conversation serves a session.
    pub(super) fn host(&self, name: Name) -> Option<u64> {
        self.sessions.get(&name).copied()
    }

    /// The ways to all conversations.
    pub(super) fn controls(&self) -> impl Iterator<Item = &mpsc::UnboundedSender<Control>> {
        self.hosts.values().map(|host| &host.channel.control)
    }

    /// From now on these are in force, also for the processes that run.
    pub(super) fn limit(&mut self, limits: &Processes) {
        for host in self.hosts.values_mut() {
            if let Some(group) = host.group.as_mut().filter(|group| !group.own) {
                group.max_age = limits.max_age_ms.map(Duration::from_millis);
                // One that is over needs none.
                let _ = host.channel.control.send(Control::Limits(group.limits(limits)));
            }
        }
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// The conversation of a kind with the fewest sessions. One that starts no process refuses all that comes at once, and
    /// so would always have the fewest: what kills its process would be in the way of what comes from everybody.
    pub(super) fn fewest(&self, wanted: &Group, need: Need, now: Instant) -> Option<Found> {
        let of = |host: &Host| host.group.as_ref().is_some_and(|group| group.takes(wanted, need));
        let found = |(number, host): (&u64, &Host)| Found {
            host: *number,
            sessions: host.sessions.len(),
            is_tired: host.tired.is_some_and(|until| now < until),
        };
        let hosts = self.hosts.iter().filter(|&(_, host)| of(host)).map(found);
        hosts.min_by_key(|found| (found.is_tired, found.sessions, found.host))
    }

    /// How many conversations are for everybody; to one of this kind those that are over are too, as long as they could
    /// start no other process.
    pub(super) fn shared_by_all(&self, wanted: &Group, now: Instant) -> usize {
        let of_all =
            |host: &&Host| host.group.as_ref().is_some_and(|group| group.principal.is_none() && !group.own);
        let tired = if wanted.alone { self.worn.tired(None, now) } else { 0 };
        self.hosts.values().filter(of_all).count() + tired
    }

    /// How often a conversation of calls that stand alone had another process, which is about to begin: it goes on where
    /// another one of its kind has left off, unless it is one more of those that there may be.
    pub(super) fn restarts_for(&mut self, wanted: &Group, limits: &Processes) -> Restarts {
        if wanted.own {
            return Restarts::default();
        }
        let (whose, now) = (wanted.principal.as_ref(), Instant::now());
        let another = whose.is_none() && self.shared_by_all(wanted, now) < limits.total as usize;
        self.worn.take(whose, another, now)
    }

    /// How many conversations of this principal have sessions, or of those for everybody: also those that rest, which need
    /// a place again with their next call.
    pub(super) fn used_by(&self, principal: Option<&Arc<str>>) -> usize {
        let of = |group: &Group| !group.own && group.principal.as_ref() == principal;
        let used = |host: &&Host| !host.sessions.is_empty() && host.group.as_ref().is_some_and(of);
        self.hosts.values().filter(used).count()
    }

    /// The sessions that have a process alone, and so a place. The sidecar's own are no clients'.
    pub(super) fn places(&self) -> HashSet<Name> {
        let alone = |host: &u64| self.hosts.get(host).is_some_and(|host| host.group.is_none());
        self.sessions.iter().filter(|(_, host)| alone(host)).map(|(name, _)| *name).collect()
    }

    /// Adds a session to a conversation.
    pub(super) fn join(&mut self, host: u64, name: Name) -> Option<Channel<Command>> {
        let entry = self.hosts.get_mut(&host)?;
        entry.sessions.push(name);
        // It stays for this one.
        self.giving_way.remove(&host);
        self.sessions.insert(name, host);
        Some(entry.channel.clone())
    }

    /// Adds a conversation with its first session.
    pub(super) fn begin(
        &mut self,
        stdio: &Arc<Stdio>,
        name: Name,
        channel: Channel<Command>,
        group: Option<Group>,
    ) -> Result<Registered, Failure> {
        if self.closed {
            return Err(Gone::failure(Why::Stopping, &[]));
        }
        self.last += 1;
        let host = self.last;
        self.hosts.insert(host, Host { channel, group, sessions: vec![name], tired: None });
        self.sessions.insert(name, host);
        stdio.count.send_modify(|count| *count += 1);
        Ok(Registered { stdio: stdio.clone(), host })
    }

    fn remove(&mut self, host: u64) {
        if let Some(host) = self.hosts.remove(&host) {
            for name in host.sessions {
                self.sessions.remove(&name);
            }
        }
    }
}

impl Host {
    /// Whose sessions it serves; nobody's where it is for all.
    fn principal(&self) -> Option<&Arc<str>> {
        self.group.as_ref()?.principal.as_ref()
    }
}

impl Registered {
    /// Takes no more messages. Those who come find no session.
    pub(super) fn close(&self) {
        self.stdio.open.lock().remove(self.host);
    }

    /// A session is over. If it was the last one, and somebody waits for the place of the process, that is given.
    pub(super) fn leave(&self, name: Name) {
        let mut open = self.stdio.open.lock();
        open.sessions.remove(&name);
        let Some(host) = open.hosts.get_mut(&self.host) else { return };
        host.sessions.retain(|session| *session != name);
        open.make_room(&self.stdio.places.wanted());
    }

    /// Closes, if nobody is about to join. Says whether it is closed. Calls that stand alone begin another conversation
    /// each time that nobody is there: so what was counted in this one is kept.
    pub(super) fn vanish(&self, restarts: &Restarts) -> bool {
        let mut open = self.stdio.open.lock();
        let host = open.hosts.get(&self.host);
        let empty = host.is_none_or(|host| host.sessions.is_empty());
        let alone = host.and_then(|host| host.group.as_ref()).filter(|group| group.alone && !group.own);
        let whose = alone.map(|group| group.principal.clone());
        if empty {
            if let Some(whose) = whose {
                open.worn.leave(whose, restarts.clone(), Instant::now());
            }
            open.remove(self.host);
        }
        empty
    }

    /// It has another process from now on, for a client who came under these limits: its age is that of the process, which
    /// may have been started ahead.
    pub(super) fn renewed(&self, limits: Processes, started: Instant) {
        let mut open = self.stdio.open.lock();
        let Some(host) = open.hosts.get_mut(&self.host) else { return };
        let Some(group) = &mut host.group else { return };
        group.began = Some(started);
        // Those in force are asked for here, so that none from before are told after others that come meanwhile.
        let limits = self.stdio.places.in_force(limits);
        // One that is over needs none.
        let _ = host.channel.control.send(Control::Limits(group.limits(&limits)));
    }

    /// It has no process any more: whoever comes to it has a new one.
    pub(super) fn ended(&self) {
        let mut open = self.stdio.open.lock();
        if let Some(group) = open.hosts.get_mut(&self.host).and_then(|host| host.group.as_mut()) {
            group.began = None;
        }
    }

    /// It starts no other process until then.
    pub(super) fn tires(&self, until: Instant) {
        if let Some(host) = self.stdio.open.lock().hosts.get_mut(&self.host) {
            host.tired = Some(until);
        }
    }

    /// The server chose this revision.
    pub(super) fn speaks(&self, version: &str) {
        let mut open = self.stdio.open.lock();
        if let Some(group) = open.hosts.get_mut(&self.host).and_then(|host| host.group.as_mut()) {
            group.version = Some(version.to_owned());
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.close();
        let mut open = self.stdio.open.lock();
        open.giving_way.remove(&self.host);
        // Its place may be somebody else's by now than it was meant for.
        open.make_room(&self.stdio.places.wanted());
        drop(open);
        self.stdio.count.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use longshore_sidecar_config::Isolation;

    use super::*;
    use crate::upstream::stdio::Begins;
    use crate::upstream::stdio::open::tests::limits;

    fn alone() -> Group {
        Group {
            own: false,
            alone: true,
            principal: None,
            begins: Begins::Anew,
            asked: String::new(),
            version: None,
            began: None,
            max_age: None,
        }
    }

    #[test]
    fn one_that_starts_no_process_is_the_last_that_is_found() {
        let (channel, _ends) = Channel::new();
        let mut open = Open::default();
        let now = Instant::now();
        for (number, tired, sessions) in [(1, true, vec![]), (2, false, vec![7, 8]), (3, false, vec![9])] {
            let tired = tired.then(|| now + Duration::from_secs(1));
            open.hosts
                .insert(number, Host { channel: channel.clone(), group: Some(alone()), sessions, tired });
        }
        let found = |open: &Open, now| {
            let found = open.fewest(&alone(), Need::Spoken, now);
            found.map(|found| (found.host, found.sessions, found.is_tired))
        };
        assert_eq!(found(&open, now), Some((3, 1, false)));
        assert_eq!(found(&open, now + Duration::from_secs(1)), Some((1, 0, false)), "it may start one again");
        open.hosts.retain(|number, _| *number == 1);
        assert_eq!(found(&open, now), Some((1, 0, true)), "where there is no other");
    }

    #[test]
    fn what_was_counted_in_one_that_is_over_counts_in_the_next() {
        let now = Instant::now();
        let mut tired = Restarts::default();
        while tired.take(now).is_ok() {
            tired.died();
        }
        let limits = |total| Processes { total, ..limits(Isolation::Shared) };
        let mut open = Open::default();
        assert_eq!(open.shared_by_all(&alone(), now), 0);
        open.worn.leave(None, tired, now);
        assert_eq!(open.shared_by_all(&alone(), now), 1);
        assert_eq!(open.shared_by_all(&Group { alone: false, ..alone() }, now), 0, "sessions have their own");
        // There may be another beside it, and then not.
        assert!(open.restarts_for(&alone(), &limits(2)).until(now).is_none());
        let next = open.restarts_for(&alone(), &limits(1));
        assert!(next.until(now).is_some());
        // Of one principal there is none.
        let of = |whose: &str| Group { principal: Some(whose.into()), ..alone() };
        open.worn.leave(Some("a".into()), next, now);
        assert!(open.restarts_for(&of("b"), &limits(9)).until(now).is_none());
        assert!(open.restarts_for(&of("a"), &limits(9)).until(now).is_some());
    }
}
