//! The conversations that there are, and the sessions that each of them serves.
//!
//! * [`group`]: which of them another session may join;
//! * [`room`]: which of them ends for another one, that lacks a place.

mod group;
mod room;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use longshore_sidecar_config::Processes;
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant};

use super::message::Command;
use super::{Channel, Control, Failure, Gone, Name, Stdio, Why};
pub(in crate::upstream) use group::Limits;
pub(super) use group::{Group, Need};
use room::GivesWay;

/// The conversations that are open.
#[derive(Default)]
pub(super) struct Open {
    /// By session.
    sessions: HashMap<Name, u64>,
    hosts: HashMap<u64, Host>,
    /// Those that were asked to end for others, until they have.
    giving_way: HashMap<u64, GivesWay>,
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

    /// How many conversations are for everybody.
    pub(super) fn shared_by_all(&self) -> usize {
        let of_all =
            |host: &&Host| host.group.as_ref().is_some_and(|group| group.principal.is_none() && !group.own);
        self.hosts.values().filter(of_all).count()
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

    /// Closes, if nobody is about to join. Says whether it is closed.
    pub(super) fn vanish(&self) -> bool {
        let mut open = self.stdio.open.lock();
        let empty = open.hosts.get(&self.host).is_none_or(|host| host.sessions.is_empty());
        if empty {
            open.remove(self.host);
        }
        empty
    }

    /// It has another process from now on, for a client who came under these limits: its age is that of the process.
    pub(super) fn renewed(&self, limits: Processes) {
        let mut open = self.stdio.open.lock();
        let Some(host) = open.hosts.get_mut(&self.host) else { return };
        let Some(group) = &mut host.group else { return };
        group.began = Instant::now();
        // Those in force are asked for here, so that none from before are told after others that come meanwhile.
        let limits = self.stdio.places.in_force(limits);
        // One that is over needs none.
        let _ = host.channel.control.send(Control::Limits(group.limits(&limits)));
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
