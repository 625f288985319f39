//! Which replicas there are, and who of them is alive. DNS only finds them; whether one lives is known from what it
//! says itself. Everything is by address, since that is what can be asked, and an address that answers as somebody else
//! proves that its former pod is gone.

mod member;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::bounds::{DNS_FRESH, INTRODUCED, MAX_MEMBERS, REMEMBERED, RESTART, UNLISTED_YET};
use crate::identity::{Moment, Peer, PodId};
use crate::message::{Departure, Introduction, Word};
pub use member::{Member, Standing, State};

/// All that one replica knows of the others.
#[derive(Clone, Debug)]
pub struct View {
    me: IpAddr,
    members: BTreeMap<IpAddr, Member>,
    dns: Dns,
    /// When DNS answered for the first time.
    began: Option<Moment>,
    /// Somebody vouched for this replica, which DNS does not list yet.
    vouched: bool,
}

/// What DNS said last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dns {
    /// It is not asked: there are no other replicas.
    Alone,
    /// It has not answered yet.
    Silent,
    /// It answered.
    Said { at: Moment, lists_me: bool },
}

impl View {
    /// The view of a replica that has peers, before it has heard of any.
    pub fn new(me: IpAddr) -> Self {
        Self { me, members: BTreeMap::new(), dns: Dns::Silent, began: None, vouched: false }
    }

    /// The view of a replica that has none, for good.
    pub fn alone(me: IpAddr) -> Self {
        Self { me, members: BTreeMap::new(), dns: Dns::Alone, began: None, vouched: false }
    }

    /// Notes whether there are other replicas at all, which a configuration may change.
    pub fn set_alone(&mut self, alone: bool) {
        match (alone, self.dns) {
            (true, _) => self.dns = Dns::Alone,
            (false, Dns::Alone) => self.dns = Dns::Silent,
            (false, _) => {}
        }
    }

    /// Notes what DNS lists. When DNS fails, nothing is to be noted.
    pub fn listed(&mut self, addresses: &[IpAddr], now: Moment) {
        self.began.get_or_insert(now);
        let lists_me = addresses.contains(&self.me);
        self.dns = Dns::Said { at: now, lists_me };
        // From then on DNS says it.
        self.vouched &= !lists_me;
        for member in self.members.values_mut() {
            if !addresses.contains(&member.address) {
                member.unlisted.get_or_insert(now);
            }
        }
        self.members.retain(|_, member| member.may_live(now) || member.is_remembered(now));
        for address in addresses {
            if let Some(member) = self.member(*address, now) {
                member.unlisted = None;
                member.was_listed = true;
            }
        }
        self.note_vouched(now);
    }

    /// Who was settled once by somebody's word stays so until DNS says it: whoever comes later hears of it.
    fn note_vouched(&mut self, now: Moment) {
        self.vouched |= self.is_overlooked() && self.is_settled(now);
    }

    /// Notes that somebody said something, be it a question or an answer.
    pub fn heard(&mut self, from: &Introduction, now: Moment) {
        if from.address == self.me || self.is_late(from) {
            return;
        }
        let knows_me = from.knows.iter().any(|peer| peer.address == self.me);
        for member in self.members.values_mut() {
            if member.address != from.address && member.pod.as_ref() == Some(&from.pod) {
                member.superseded = true;
                member.heard = None;
            }
        }
        if let Some(member) = self.member(from.address, now) {
            // One that serves never starts again: this is the process that came after it.
            let is_new = from.state == State::Starting && member.state != State::Starting;
            if is_new || member.pod.as_ref() != Some(&from.pod) {
                member.lives += 1;
            }
            let is_it = member.pod.as_ref() == Some(&from.pod)
                && member.word.map(|word| word.process) == from.word.map(|word| word.process);
            let since = member.starting.filter(|_| is_it).unwrap_or(now);
            member.starting = (from.state == State::Starting).then_some(since);
            member.pod = Some(from.pod.clone());
            member.word = from.word;
            let leaves = from.state == State::Leaving;
            member.left = leaves.then(|| member.left.unwrap_or((now, Duration::ZERO)));
            member.state = from.state;
            member.tombstones = from.tombstones;
            member.heard = Some(now);
            member.refused = None;
            member.silent = None;
            member.superseded = false;
            member.unlisted = member.unlisted.map(|_| now);
            member.knows_me = knows_me;
            member.settled = from.settled;
            member.shaken = from.shaken;
            member.full = from.full;
            member.template.clone_from(&from.template);
        }
        for departure in &from.left {
            self.note_left(departure, now);
        }
        for peer in &from.knows {
            self.mentioned(peer, now);
        }
        self.note_vouched(now);
    }

    /// Notes that somebody else was told by a peer that it leaves. What a peer says itself counts more than that, so
    /// it is noted only of those who say nothing: a replica that came after it would wait for it in vain. DNS may list it
    /// later still, and ids of sessions name it.
    fn note_left(&mut self, departure: &Departure, now: Moment) {
        let Departure { peer, ago } = departure;
        let ago = Duration::from_secs(*ago);
        if ago >= REMEMBERED && !self.members.contains_key(&peer.address) {
            return;
        }
        let Some(member) = self.member(peer.address, now) else { return };
        let is_it = member.pod.as_ref().is_none_or(|pod| *pod == peer.pod);
        if is_it && member.heard.is_none() && member.state != State::Leaving {
            member.pod = Some(peer.pod.clone());
            member.word = None;
            member.state = State::Leaving;
            member.left = Some((now, ago));
        }
    }

    /// Who has said that it leaves, not long ago, or while DNS still lists it.
    pub fn left(&self, now: Moment) -> impl Iterator<Item = Departure> {
        let departure = move |member: &Member| {
            let ago = member.left_for(now)?.as_secs();
            Some(Departure { peer: member.peer()?, ago })
        };
        self.members.values().filter_map(departure)
    }

    /// Whether a process said this before what was heard of it last.
    fn is_late(&self, from: &Introduction) -> bool {
        let Some(member) = self.members.get(&from.address) else { return false };
        let last = member.word.filter(|_| member.pod.as_ref() == Some(&from.pod));
        let words = from.word.zip(last);
        words.is_some_and(|(word, last)| word.process == last.process && word.number < last.number)
    }

    /// Notes that an address refused a connection: the process that was there has ended.
    pub fn refused(&mut self, address: IpAddr, now: Moment) {
        if let Some(member) = self.members.get_mut(&address) {
            member.heard = None;
            member.silent = None;
            member.starting = None;
            member.refused.get_or_insert(now);
        }
    }

    /// Notes that an address gave no answer in time, or broke off.
    pub fn silent(&mut self, address: IpAddr, now: Moment) {
        if let Some(member) = self.members.get_mut(&address) {
            member.heard = None;
            member.refused = None;
            member.silent.get_or_insert(now);
        }
    }

    /// Notes that somebody else knows of a peer, which is therefore to be asked too.
    pub(crate) fn mentioned(&mut self, peer: &Peer, now: Moment) {
        let Some(member) = self.member(peer.address, now) else { return };
        // Whoever left had the address before.
        if member.state == State::Leaving && member.pod.as_ref() != Some(&peer.pod) {
            let (unlisted, was_listed) = (member.unlisted, member.was_listed);
            *member = Member { unlisted, was_listed, ..Member::new(peer.address, now) };
        }
    }

    /// All that is known.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// Whom to send heartbeats: everybody who may be alive, and whoever is listed, since another pod may have the address
    /// of one that left by now.
    pub fn to_greet(&self, now: Moment) -> Vec<IpAddr> {
        let to_greet = |member: &&Member| member.unlisted.is_none() || self.may_hold(member, now);
        self.members.values().filter(to_greet).map(|member| member.address).collect()
    }

    /// Whom to ask before saying that nobody holds a session: everybody who may be alive.
    pub fn to_ask(&self, now: Moment) -> Vec<IpAddr> {
        let to_ask = |member: &&Member| self.may_hold(member, now);
        self.members.values().filter(to_ask).map(|member| member.address).collect()
    }

    /// Whether somebody may be alive, or cannot be said to be gone, since DNS does not answer.
    fn may_hold(&self, member: &Member, now: Moment) -> bool {
        !self.dns_is_fresh(now) || member.may_live(now)
    }

    /// Who was heard and may be alive: what others are told, whose DNS may be behind.
    pub fn known(&self, now: Moment) -> impl Iterator<Item = Peer> {
        self.members.values().filter(move |member| member.may_live(now)).filter_map(Member::peer)
    }

    /// Whether somebody has ever been heard at an address.
    pub(crate) fn has_heard(&self, address: IpAddr) -> bool {
        self.members.get(&address).is_some_and(|member| member.pod.is_some())
    }

    /// Whether an address gives no answer where another pod than this was heard last.
    pub(crate) fn is_silent_other(&self, address: IpAddr, pod: &PodId) -> bool {
        let is_other = |member: &Member| member.pod.as_ref().is_some_and(|known| known != pod);
        self.members.get(&address).is_some_and(|member| member.silent.is_some() && is_other(member))
    }

    /// Whether nothing was ever heard of an address, nor has anybody been asked there.
    pub(crate) fn is_untried(&self, address: IpAddr) -> bool {
        let tried =
            |member: &Member| member.pod.is_some() || member.refused.is_some() || member.silent.is_some();
        address != self.me && !self.members.get(&address).is_some_and(tried)
    }

    /// Who serves and takes sessions, as far as is known; without this replica itself.
    pub fn serving(&self, now: Moment) -> impl Iterator<Item = Peer> {
        self.that_serve(now).filter(|(_, shaken)| !shaken).map(|(peer, _)| peer)
    }

    /// Those of them with a place left, as far as they have said.
    pub fn with_room(&self, now: Moment) -> impl Iterator<Item = Peer> {
        self.that_have_room().filter_map(move |member| member.alive(now))
    }

    /// Those of these that began after a process of that number, as far as they have said, and not in pods of this template:
    /// after the first of those that are, since a process may be younger than its pod. Of several templates the last.
    pub(crate) fn newer_with_room(
        &self,
        process: u64,
        template: Option<&str>,
        now: Moment,
    ) -> impl Iterator<Item = Peer> {
        let first = self.first_processes(now);
        let own = first.get(&template).filter(|_| template.is_some());
        let since = own.map_or(process, |first| process.min(*first));
        let is_newer = |member: &&Member| {
            let is_younger = member.word.is_some_and(|word| word.process > since);
            is_younger && (template.is_none() || member.template.as_deref() != template)
        };
        let with_first =
            |member: &Member| Some((*first.get(&member.template.as_deref())?, member.alive(now)?));
        let newer: Vec<(u64, Peer)> = self.that_have_room().filter(is_newer).filter_map(with_first).collect();
        let last = newer.iter().map(|(first, _)| *first).max();
        newer.into_iter().filter(move |(first, _)| Some(*first) == last).map(|(_, peer)| peer)
    }

    /// Of each template the process that began first, of those that live.
    fn first_processes(&self, now: Moment) -> BTreeMap<Option<&str>, u64> {
        let mut all = BTreeMap::new();
        for member in self.members.values().filter(|member| member.alive(now).is_some()) {
            if let Some(Word { process, .. }) = member.word {
                let first = all.entry(member.template.as_deref()).or_insert(process);
                *first = process.min(*first);
            }
        }
        all
    }

    /// Those with room in pods of this template, if there is one.
    pub(crate) fn alike_with_room(&self, template: Option<&str>, now: Moment) -> impl Iterator<Item = Peer> {
        let is_alike = move |member: &&Member| template.is_some() && member.template.as_deref() == template;
        self.that_have_room().filter(is_alike).filter_map(move |member| member.alive(now))
    }

    fn that_have_room(&self) -> impl Iterator<Item = &Member> {
        let has_room = |member: &&Member| member.state == State::Serving && !member.shaken && !member.full;
        self.members.values().filter(has_room)
    }

    /// Those too whose server was lost soon after its handshake, which each of them is told with.
    pub fn that_serve(&self, now: Moment) -> impl Iterator<Item = (Peer, bool)> {
        let serving = self.members.values().filter(|member| member.state == State::Serving);
        serving.filter_map(move |member| Some((member.alive(now)?, member.shaken)))
    }

    /// Whether somebody else serves, or may: who served and is silent now may be slow, or have much to do.
    pub fn may_serve(&self, now: Moment) -> bool {
        let may = |member: &Member| member.refused.is_none() && member.may_live(now);
        self.members.values().any(|member| member.state == State::Serving && may(member))
    }

    /// Who serves, by their processes: a pod whose process was followed by another one is another one.
    pub fn serving_lives(&self, now: Moment) -> impl Iterator<Item = (PodId, u64)> {
        let serving = self.members.values().filter(|member| member.state == State::Serving);
        serving.filter_map(move |member| Some((member.alive(now)?.pod, member.lives)))
    }

    /// Who is alive; without this replica itself.
    pub fn alive(&self, now: Moment) -> impl Iterator<Item = (Peer, State)> {
        self.members.values().filter_map(move |member| Some((member.alive(now)?, member.state)))
    }

    /// A pod, if it is alive.
    pub fn find(&self, pod: &PodId, now: Moment) -> Option<(Peer, State)> {
        self.alive(now).find(|(peer, _)| peer.pod == *pod)
    }

    /// Where a pod was heard last, be it silent by now: since its node was started anew it has another address than before.
    pub fn last_heard(&self, pod: &PodId) -> Option<Peer> {
        let may_be = |member: &&Member| !member.superseded && member.state != State::Leaving;
        self.members.values().filter(may_be).filter_map(Member::peer).find(|peer| peer.pod == *pod)
    }

    /// Whether this replica knows enough of the others to say that nobody holds a session. DNS must have answered
    /// lately, and must list this replica; or somebody who is alive must know it, whom DNS lists, or who is settled. Of two
    /// new ones the later one listed then knows the earlier one, whatever name server each of them asked; and where DNS is
    /// behind, whoever vouches was there before both, or knows those who were, so that of each the other is told. A process
    /// that has just started may have forgotten others, who know it still, and whom DNS does not list yet: where it knows
    /// anybody, it waits for their heartbeats.
    pub fn is_settled(&self, now: Moment) -> bool {
        let can_vouch = |member: &Member| member.unlisted.is_none() || member.settled;
        let vouches = |member: &Member| can_vouch(member) && member.knows_me && member.alive(now).is_some();
        match self.dns {
            Dns::Alone => true,
            Dns::Silent => false,
            Dns::Said { lists_me, .. } => {
                let introduced = self.began.is_some_and(|began| now.since(began) >= INTRODUCED);
                self.dns_is_fresh(now)
                    && (introduced || !self.members.values().any(|member| self.may_hold(member, now)))
                    && (lists_me || self.vouched || self.members.values().any(vouches))
            }
        }
    }

    /// Whether DNS answers and does not list this replica yet. It may be so far behind that all of those whom it lists are
    /// gone, and that whoever came since is told of nobody either: then the Service knows somebody, which leads to who
    /// is ready.
    pub fn is_overlooked(&self) -> bool {
        matches!(self.dns, Dns::Said { lists_me: false, .. })
    }

    /// Notes that all was fetched that somebody knows to be ended.
    pub fn fetched(&mut self, address: IpAddr) {
        if let Some(member) = self.members.get_mut(&address) {
            member.fetched = true;
        }
    }

    /// Whether this replica has said hello to everybody who is listed and has fetched what they know to be ended, as
    /// far as they can be reached. Before that it does not serve.
    pub fn is_greeted(&self) -> bool {
        let reached = |member: &Member| match (&member.pod, member.unlisted) {
            (_, Some(_)) => true,
            _ if member.refused.is_some() || member.silent.is_some() || member.state == State::Leaving => {
                true
            }
            (Some(_), None) => member.fetched,
            (None, None) => false,
        };
        self.dns != Dns::Silent && self.members.values().all(reached)
    }

    /// How the pod stands that a session of that age names as its owner.
    pub fn standing(&self, owner: &Peer, age: Duration, now: Moment) -> Standing {
        let lately = |since| now.since(since) < RESTART;
        if let Some((peer, state)) = self.find(&owner.pod, now) {
            let back = self.members.get(&peer.address).and_then(|member| member.starting).is_some_and(lately);
            return if back { Standing::Restarting } else { Standing::Alive(peer, state) };
        }
        if self.dns == Dns::Alone {
            return Standing::Gone;
        }
        match self.members.get(&owner.address) {
            Some(member) if member.pod.as_ref().is_some_and(|pod| *pod != owner.pod) => Standing::Gone,
            Some(member) if member.superseded || member.state == State::Leaving => Standing::Gone,
            Some(member) if member.refused.is_some_and(lately) => Standing::Restarting,
            Some(member) if member.may_live(now) || !self.dns_is_fresh(now) => Standing::Unknown,
            Some(_) => Standing::Gone,
            // It was never known here: either it has been gone for long, or it is so new that DNS is behind.
            None if self.dns_is_fresh(now) && age > UNLISTED_YET => Standing::Gone,
            None => Standing::Unknown,
        }
    }

    /// Whether an address has refused connections for long enough to say that it does not just restart.
    pub fn is_down(&self, address: IpAddr, now: Moment) -> bool {
        let refused = self.members.get(&address).and_then(|member| member.refused);
        refused.is_some_and(|since| now.since(since) >= RESTART)
    }

    fn dns_is_fresh(&self, now: Moment) -> bool {
        match self.dns {
            Dns::Alone => true,
            Dns::Silent => false,
            Dns::Said { at, .. } => now.since(at) <= DNS_FRESH,
        }
    }

    fn member(&mut self, address: IpAddr, now: Moment) -> Option<&mut Member> {
        if address == self.me {
            return None;
        }
        if !self.members.contains_key(&address) && self.members.len() >= MAX_MEMBERS {
            return None;
        }
        Some(self.members.entry(address).or_insert_with(|| Member::new(address, now)))
    }
}

#[cfg(test)]
mod tests;
