//! The conversations that there are, the sessions that each of them serves, and which of them another may join.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use longshore_sidecar_config::Processes;
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant};

use super::limits::Wanted;
use super::message::Command;
use super::{Begins, Channel, Control, Failure, Gone, Name, Stdio, Why};

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
}

/// A conversation that ends for somebody.
struct GivesWay {
    /// Whose it is; nobody's where it is for all.
    principal: Option<Arc<str>>,
    /// Somebody waits until it has ended, however long that takes.
    claimed: bool,
}

/// Who may join a conversation.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// The sidecar alone.
    pub(super) own: bool,
    /// Requests that stand alone, and no sessions.
    pub(super) alone: bool,
    /// Sessions of this principal, or of everybody.
    pub(super) principal: Option<Arc<str>>,
    /// How the session begins that came first.
    pub(super) begins: Begins,
    /// The revision that its server was asked for.
    pub(super) asked: String,
    /// The one that it chose, once that is known.
    pub(super) version: Option<String>,
    /// When its conversation began.
    pub(super) began: Instant,
    /// Nobody once it is as old as that, as long as there is another place to go to.
    pub(super) max_age: Option<Duration>,
}

/// What a conversation has to be for one that comes to it. Whoever may have no other is translated for, and comes to an old
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// In a revision that its client speaks, and not too old by now.
    Young(Instant),
    /// In a revision that its client speaks.
    Spoken,
    Any,
}

/// What holds for a process that several share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) struct Limits {
    /// After how long without a call, or without a session, it ends.
    pub(super) idle: Duration,
    /// When no more of them may come.
    pub(super) aged: Option<Instant>,
}

impl Group {
    fn aged(&self) -> Option<Instant> {
        self.max_age.map(|age| self.began + age)
    }

    /// What holds for its process.
    pub(super) fn limits(&self, limits: &Processes) -> Limits {
        Limits { idle: Duration::from_millis(limits.idle_ms), aged: self.aged() }
    }

    /// Whether one that wants such a conversation may have this one.
    fn takes(&self, wanted: &Self, need: Need) -> bool {
        (self.own, self.alone, &self.principal) == (wanted.own, wanted.alone, &wanted.principal)
            && self.suits(wanted, need)
    }

    /// Whether a client that asks for a revision has what it needs.
    ///
    /// Asked for the same, the server says the same. To a client that asks for a newer one little is lost where it is
    /// translated for; to one that asks for an older one, what the server would not do for it otherwise.
    /// A session that is begun again cannot be told another one than before.
    fn suits(&self, wanted: &Self, need: Need) -> bool {
        let revision = wanted.asked.as_str();
        let is_new = wanted.begins == Begins::Anew;
        let will_do = |version: &str| version == revision || (is_new && version < revision);
        let speaks = || self.asked == revision || self.version.as_deref().is_some_and(will_do);
        match need {
            Need::Young(now) => speaks() && self.aged().is_none_or(|aged| now < aged),
            Need::Spoken => speaks(),
            Need::Any => wanted.begins != Begins::AgainOrElsewhere || speaks(),
        }
    }
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

    /// The conversation of a kind with the fewest sessions, and how many it has.
    pub(super) fn fewest(&self, wanted: &Group, need: Need) -> Option<(u64, usize)> {
        let of = |host: &&(u64, &Host)| host.1.group.as_ref().is_some_and(|group| group.takes(wanted, need));
        let hosts = self.hosts.iter().map(|(number, host)| (*number, host));
        hosts
            .filter(|host| of(&host))
            .map(|(number, host)| (number, host.sessions.len()))
            .min_by_key(|(number, sessions)| (*sessions, *number))
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

    /// Whether there is a conversation without sessions that could end for another one: of this principal, if one is
    /// named.
    pub(super) fn has_empty(&self, of: Option<&Arc<str>>) -> bool {
        self.empty(of).is_some()
    }

    /// Asks such a conversation to end. Says whether there is one.
    pub(super) fn ask_empty(&mut self, of: Option<&Arc<str>>) -> bool {
        let Some(host) = self.empty(of) else { return false };
        self.give_way(host)
    }

    /// Whether one gives way until whose end nobody waits yet, of this principal, if one is named. From now on somebody
    /// does.
    pub(super) fn claim(&mut self, of: Option<&Arc<str>>) -> bool {
        let suits = |it: &&mut GivesWay| !it.claimed && (of.is_none() || it.principal.as_ref() == of);
        self.giving_way.values_mut().find(suits).map(|it| it.claimed = true).is_some()
    }

    /// The sessions that have a process alone, and so a place. The sidecar's own are no clients'.
    pub(super) fn places(&self) -> HashSet<Name> {
        let alone = |host: &u64| self.hosts.get(host).is_some_and(|host| host.group.is_none());
        self.sessions.iter().filter(|(_, host)| alone(host)).map(|(name, _)| *name).collect()
    }

    /// Ends such a session of this principal's for another one.
    pub(super) fn end_for_another(&mut self, name: Name, principal: Arc<str>) {
        let Some((number, host)) = self.sessions.get(&name).and_then(|it| Some((*it, self.hosts.get(it)?)))
        else {
            return;
        };
        if host.channel.control.send(Control::End(name, None)).is_ok() {
            self.giving_way.insert(number, GivesWay { principal: Some(principal), claimed: false });
        }
    }

    /// Such a conversation that was not asked yet: one that gives way makes room for one.
    fn empty(&self, of: Option<&Arc<str>>) -> Option<u64> {
        self.resting().find(|(_, host)| host.is_empty(of)).map(|(number, _)| number)
    }

    /// The conversations without sessions that were not asked yet.
    fn resting(&self) -> impl Iterator<Item = (u64, &Host)> {
        let waits =
            |(number, host): &(u64, &Host)| !self.giving_way.contains_key(number) && host.is_empty(None);
        self.hosts.iter().map(|(number, host)| (*number, host)).filter(waits)
    }

    fn give_way(&mut self, number: u64) -> bool {
        let Some(host) = self.hosts.get(&number) else { return false };
        let told = host.channel.control.send(Control::GiveWay).is_ok();
        if told {
            let principal = host.principal().cloned();
            self.giving_way.insert(number, GivesWay { principal, claimed: false });
        }
        told
    }

    /// Has those end that nobody needs, as long as more wait for their places than are about to have one.
    fn make_room(&mut self, wanted: &Wanted) {
        loop {
            let lacking = self.resting().find(|(_, host)| self.lacks(wanted, host.principal()));
            let Some(number) = lacking.map(|(number, _)| number) else { return };
            if !self.give_way(number) {
                return;
            }
        }
    }

    /// Whether more wait for a place of this principal's than are about to have one.
    fn lacks(&self, wanted: &Wanted, principal: Option<&Arc<str>>) -> bool {
        let mut own = wanted.own.clone();
        let mut spare = 0;
        for it in self.giving_way.values() {
            // It is of use to nobody else while somebody waits who may have no other.
            match it.principal.as_ref().and_then(|whose| own.get_mut(whose)).filter(|count| **count > 0) {
                Some(count) => *count -= 1,
                None => spare += 1,
            }
        }
        principal.is_some_and(|principal| own.get(principal).is_some_and(|count| *count > 0))
            || spare < wanted.any
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
        self.hosts.insert(host, Host { channel, group, sessions: vec![name] });
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

    /// Whether nobody would miss it, and it is of this principal, if one is named. The sidecar's own takes nobody's place.
    fn is_empty(&self, of: Option<&Arc<str>>) -> bool {
        let suits = |group: &Group| !group.own && (of.is_none() || group.principal.as_ref() == of);
        self.sessions.is_empty() && self.group.as_ref().is_some_and(suits)
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
    use super::*;

    #[test]
    fn a_client_gets_a_revision_that_it_can_use() {
        let began = Instant::now();
        let young = Need::Young(began);
        let (old, new) = ("2025-06-18", "2025-11-25");
        for (asked, version, revision, suits) in [
            (new, None, new, true),
            (new, None, old, false),
            (new, Some(new), new, true),
            (new, Some(new), old, false),
            (old, Some(old), new, true),
            (old, Some(old), old, true),
            // A server that knows only the newer one says so to everybody who asks for the older one.
            (old, Some(new), old, true),
            (new, Some(old), old, true),
        ] {
            let version = version.map(str::to_owned);
            let group = |asked: &str, version| {
                let asked = asked.to_owned();
                let begins = Begins::Anew;
                Group {
                    own: false,
                    alone: false,
                    principal: None,
                    begins,
                    asked,
                    version,
                    began,
                    max_age: None,
                }
            };
            let (group, wanted) = (group(asked, version), group(revision, None));
            assert_eq!(group.takes(&wanted, young), suits, "{group:?} {revision}");
            for need in [young, Need::Any] {
                assert!(!group.takes(&Group { alone: true, ..wanted.clone() }, need), "no session");
                assert!(!group.takes(&Group { own: true, ..wanted.clone() }, need), "the sidecar's");
                assert!(
                    !group.takes(&Group { principal: Some("p".into()), ..wanted.clone() }, need),
                    "somebody's"
                );
            }
            let aged = Group { max_age: Some(Duration::ZERO), ..group };
            assert!(!aged.suits(&wanted, young), "too old");
            assert_eq!(aged.suits(&wanted, Need::Spoken), suits, "where there is none that is not");
            assert!(aged.suits(&wanted, Need::Any), "where there is no other at all");
        }
    }

    /// A session was told a revision, and its id says which.
    #[test]
    fn a_session_that_is_begun_again_gets_the_revision_that_it_had() {
        let began = Instant::now();
        let young = Need::Young(began);
        let (old, new) = ("2025-06-18", "2025-11-25");
        let group = |begins, asked: &str, version: Option<&str>| {
            let (asked, version) = (asked.to_owned(), version.map(str::to_owned));
            Group { own: false, alone: false, principal: None, begins, asked, version, began, max_age: None }
        };
        for (asked, version, revision, suits) in [
            (new, None, new, true),
            (new, Some(new), new, true),
            (new, Some(old), old, true),
            // As translations go this one would do.
            (old, Some(old), new, false),
            (new, Some(new), old, false),
        ] {
            let group_there = group(Begins::Anew, asked, version);
            for (begins, any) in [(Begins::AgainOrElsewhere, suits), (Begins::AgainHere, true)] {
                let wanted = group(begins, revision, None);
                for (need, expected) in [(young, suits), (Need::Spoken, suits), (Need::Any, any)] {
                    assert_eq!(group_there.takes(&wanted, need), expected, "{begins:?} {revision} {need:?}");
                }
            }
        }
    }

    #[test]
    fn each_that_nobody_needs_makes_room_for_one() {
        let (channel, (_queue, mut asked)) = Channel::new();
        let group = |own, principal: Option<&str>| Group {
            own,
            alone: false,
            principal: principal.map(Arc::from),
            begins: Begins::Anew,
            asked: String::new(),
            version: None,
            began: Instant::now(),
            max_age: None,
        };
        let mut open = Open::default();
        for (host, own, sessions) in [(1, true, vec![]), (2, false, vec![]), (3, false, vec![7])] {
            let (channel, group) = (channel.clone(), Some(group(own, None)));
            open.hosts.insert(host, Host { channel, group, sessions });
        }
        assert!(open.has_empty(None) && open.ask_empty(None));
        assert!(!open.has_empty(None) && !open.ask_empty(None), "it was asked for another one");
        assert!(open.join(2, 8).is_some());
        open.hosts.values_mut().for_each(|host| host.sessions.clear());
        assert!(open.ask_empty(None) && open.ask_empty(None));
        assert!(!open.ask_empty(None), "the sidecar's own");
        // Where somebody's part is full, only what is theirs makes room.
        let [a, b] = ["a", "b"].map(Arc::<str>::from);
        let group = Some(group(false, Some("a")));
        open.hosts.insert(4, Host { channel, group, sessions: vec![] });
        assert!(!open.has_empty(Some(&b)) && !open.ask_empty(Some(&b)));
        assert!(open.has_empty(Some(&a)) && open.ask_empty(Some(&a)) && !open.ask_empty(Some(&a)));
        assert_eq!(std::iter::from_fn(|| asked.try_recv().ok()).count(), 4);
    }

    #[test]
    fn one_that_ends_for_who_may_have_no_other_place_is_nobody_elses() {
        let wanted = |own: &[(&str, usize)], any| {
            let own = own.iter().map(|(who, count)| ((*who).into(), *count)).collect();
            Wanted { own, any }
        };
        for (giving_way, wanted, of_a, of_c) in [
            (&[][..], wanted(&[], 0), false, false),
            (&[], wanted(&[("a", 1)], 0), true, false),
            (&[], wanted(&[], 1), true, true),
            (&[Some("a")], wanted(&[("a", 1)], 0), false, false),
            (&[Some("a")], wanted(&[], 1), false, false),
            (&[Some("a")], wanted(&[("a", 1)], 1), true, true),
            (&[Some("a"), Some("c")], wanted(&[("a", 1)], 1), false, false),
            (&[None], wanted(&[("a", 1)], 1), true, false),
            (&[Some("a"), Some("a")], wanted(&[("a", 1)], 1), false, false),
        ] {
            let mut open = Open::default();
            for (number, whose) in (0..).zip(giving_way) {
                let principal = whose.map(Arc::from);
                open.giving_way.insert(number, GivesWay { principal, claimed: false });
            }
            let lacks = |who: &str| open.lacks(&wanted, Some(&who.into()));
            let case = format!("{giving_way:?} {:?} {}", wanted.own, wanted.any);
            assert_eq!((lacks("a"), lacks("c")), (of_a, of_c), "{case}");
        }
    }

    #[test]
    fn one_waits_until_one_has_ended() {
        let [a, b] = ["a", "b"].map(Arc::<str>::from);
        let mut open = Open::default();
        for (number, whose) in (0..).zip([&a, &a, &b]) {
            let principal = Some(whose.clone());
            open.giving_way.insert(number, GivesWay { principal, claimed: false });
        }
        assert!(open.claim(Some(&b)) && !open.claim(Some(&b)));
        assert!(open.claim(None) && open.claim(Some(&a)) && !open.claim(None));
    }
}
