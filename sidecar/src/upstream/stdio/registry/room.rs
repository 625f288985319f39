//! Conversations that end for others, which need their places: whose nobody needs, and for whom.

use std::sync::Arc;

use super::{Group, Host, Open};
use crate::upstream::stdio::limits::Wanted;
use crate::upstream::stdio::{Control, Name};

/// A conversation that ends for somebody.
pub(super) struct GivesWay {
    /// Whose it is; nobody's where it is for all.
    principal: Option<Arc<str>>,
    /// Somebody waits until it has ended, however long that takes.
    claimed: bool,
}

impl Open {
    /// Whether there is a conversation without sessions that could end for another one: of this principal, if one is
    /// named.
    pub(in super::super) fn has_empty(&self, of: Option<&Arc<str>>) -> bool {
        self.empty(of).is_some()
    }

    /// Asks such a conversation to end. Says whether there is one.
    pub(in super::super) fn ask_empty(&mut self, of: Option<&Arc<str>>) -> bool {
        let Some(host) = self.empty(of) else { return false };
        self.give_way(host)
    }

    /// Whether one gives way until whose end nobody waits yet, of this principal, if one is named. From now on somebody
    /// does.
    pub(in super::super) fn claim(&mut self, of: Option<&Arc<str>>) -> bool {
        let suits = |it: &&mut GivesWay| !it.claimed && (of.is_none() || it.principal.as_ref() == of);
        self.giving_way.values_mut().find(suits).map(|it| it.claimed = true).is_some()
    }

    /// Ends such a session of this principal's for another one.
    pub(in super::super) fn end_for_another(&mut self, name: Name, principal: Arc<str>) {
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
    pub(super) fn make_room(&mut self, wanted: &Wanted) {
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
}

impl Host {
    /// Whether nobody would miss it, and it is of this principal, if one is named. The sidecar's own takes nobody's place.
    fn is_empty(&self, of: Option<&Arc<str>>) -> bool {
        let suits = |group: &Group| !group.own && (of.is_none() || group.principal.as_ref() == of);
        self.sessions.is_empty() && self.group.as_ref().is_some_and(suits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::stdio::{Begins, Channel};

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
            began: None,
            max_age: None,
        };
        let mut open = Open::default();
        for (host, own, sessions) in [(1, true, vec![]), (2, false, vec![]), (3, false, vec![7])] {
            let (channel, group) = (channel.clone(), Some(group(own, None)));
            open.hosts.insert(host, Host { channel, group, sessions, tired: None });
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
        open.hosts.insert(4, Host { channel, group, sessions: vec![], tired: None });
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
