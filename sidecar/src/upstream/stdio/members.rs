//! The sessions that a process serves, and what each of them has asked it for.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::Name;
use super::call::Caller;
use super::handshake::Abilities;
use crate::held::{Share, subscription};
use longshore_mcp::level::Level;
use longshore_mcp::listen::{MAX_URI, is_in};

/// How many resources a session may be subscribed to.
const MAX_SUBSCRIPTIONS: usize = 1024;

/// Sessions, by name.
#[derive(Default)]
pub(super) struct Members(HashMap<Name, Member>);

/// A session.
#[derive(Default)]
pub(super) struct Member {
    /// What its client understands.
    pub(super) abilities: Abilities,
    /// Who hears what belongs to no call.
    pub(super) listener: Option<Caller>,
    /// How much it wants to hear. None: nobody has said.
    pub(super) level: Option<Level>,
    /// The same, of what a process that it shares has agreed to last.
    agreed: Option<Level>,
    subscriptions: BTreeSet<String>,
    /// What these hold, and whose they are, if they are a client's.
    share: Option<Share>,
}

impl Members {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn join(&mut self, name: Name, abilities: Abilities, share: Option<Share>) {
        self.0.insert(name, Member { abilities, share, ..Member::default() });
    }

    pub(super) fn leave(&mut self, name: Name) -> Option<Member> {
        self.0.remove(&name)
    }

    pub(super) fn get(&self, name: Name) -> Option<&Member> {
        self.0.get(&name)
    }

    pub(super) fn get_mut(&mut self, name: Name) -> Option<&mut Member> {
        self.0.get_mut(&name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = Name> {
        self.0.keys().copied()
    }

    /// Takes the listener of this number away, who has gone.
    pub(super) fn gone(&mut self, number: u64) {
        for member in self.0.values_mut() {
            member.listener.take_if(|listener| listener.number == number);
        }
    }

    /// Whether this one is subscribed to anything, and listens.
    pub(super) fn awaits_updates(&self, name: Name) -> bool {
        self.get(name).is_some_and(|member| member.listener.is_some() && !member.subscriptions.is_empty())
    }

    /// Ends the streams of those who would wait in vain, since there is no process that could tell them anything. They
    /// are asked for again.
    pub(super) fn end_listening(&mut self) {
        for member in self.0.values_mut().filter(|member| !member.subscriptions.is_empty()) {
            if let Some(listener) = member.listener.take() {
                listener.end(Ok(None));
            }
        }
    }

    /// The most that any of them wants to hear.
    pub(super) fn level(&self) -> Option<Level> {
        self.0.values().filter_map(|member| member.level).min()
    }

    /// The process has agreed to say as much as this one asked for, and with that what others want who want no more.
    pub(super) fn agreed(&mut self, of: Name, level: Option<Level>) {
        for (name, member) in &mut self.0 {
            if *name == of {
                member.agreed = level;
            } else if level.is_some() && level <= member.level {
                member.agreed = member.level;
            }
        }
    }

    /// The process does not say so much: for those who have asked for nothing else since, what it agreed to before holds.
    pub(super) fn refused(&mut self, level: Option<Level>) {
        for member in self.0.values_mut().filter(|member| member.level == level) {
            member.level = member.agreed;
        }
    }

    /// Whether any of them is subscribed to this.
    pub(super) fn is_subscribed(&self, uri: &str) -> bool {
        self.0.values().any(|member| member.subscriptions.contains(uri))
    }

    /// Whether any of them is subscribed to anything.
    pub(super) fn have_subscriptions(&self) -> bool {
        self.0.values().any(|member| !member.subscriptions.is_empty())
    }

    /// What they are subscribed to, each once.
    pub(super) fn subscriptions(&self) -> BTreeSet<String> {
        self.0.values().flat_map(|member| &member.subscriptions).cloned().collect()
    }

    /// Those who want to hear of a change of this.
    pub(super) fn hearing_of(&self, uri: &str) -> Vec<Name> {
        let hears = |member: &Member| member.subscriptions.iter().any(|subscribed| is_in(uri, subscribed));
        self.0.iter().filter(|(_, member)| hears(member)).map(|(name, _)| *name).collect()
    }
}

impl Member {
    /// Whose it is, if it is a client's.
    pub(super) fn principal(&self) -> Option<&Arc<str>> {
        self.share.as_ref().map(Share::principal)
    }

    /// Whether there is room for one more subscription.
    pub(super) fn may_subscribe(&self, uri: &str) -> bool {
        self.subscriptions.contains(uri)
            || uri.len() <= MAX_URI
                && self.subscriptions.len() < MAX_SUBSCRIPTIONS
                && self.share.as_ref().is_none_or(|share| share.has_room(subscription(uri)))
    }

    /// Notes it, if there is room.
    pub(super) fn subscribe(&mut self, uri: &str) {
        if !self.may_subscribe(uri) || self.subscriptions.contains(uri) {
            return;
        }
        // Another session may have taken the room just now.
        if self.share.as_mut().is_none_or(|share| share.add(subscription(uri))) {
            self.subscriptions.insert(uri.to_owned());
        }
    }

    pub(super) fn unsubscribe(&mut self, uri: &str) {
        if self.subscriptions.remove(uri)
            && let Some(share) = &mut self.share
        {
            drop(share.split(subscription(uri)));
        }
    }

    pub(super) fn into_subscriptions(self) -> BTreeSet<String> {
        self.subscriptions
    }

    /// Whether it wants to hear this. Without a level it has not asked for anything.
    pub(super) fn hears(&self, level: Option<Level>) -> bool {
        match (self.level, level) {
            (Some(wanted), Some(level)) => wanted <= level,
            // A level that nobody knows is not worth more than the least.
            (Some(wanted), None) => wanted == Level::Debug,
            (None, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held::{Bounds, Shares};

    fn members(count: Name) -> Members {
        let mut members = Members::default();
        (0..count).for_each(|name| members.join(name, Abilities::default(), None));
        members
    }

    #[test]
    fn subscriptions_are_each_sessions_own() {
        let mut members = members(3);
        for (name, uri) in [(0, "a:b"), (1, "a:b"), (1, "a:b"), (2, "a:c/")] {
            members.get_mut(name).unwrap().subscribe(uri);
        }
        let hearing = |members: &Members, uri: &str| {
            let mut names = members.hearing_of(uri);
            names.sort_unstable();
            names
        };
        for (uri, names) in [
            ("a:b", &[0, 1][..]),
            ("a:b/x", &[0, 1]),
            ("a:b#x", &[0, 1]),
            ("a:bx", &[]),
            ("a:c/d", &[2]),
            ("a:c", &[]),
        ] {
            assert_eq!(hearing(&members, uri), names, "{uri}");
        }
        members.get_mut(1).unwrap().unsubscribe("a:b");
        assert!(members.is_subscribed("a:b"));
        members.leave(0);
        assert!(!members.is_subscribed("a:b"));
        assert_eq!(members.subscriptions().into_iter().collect::<Vec<_>>(), ["a:c/"]);
    }

    #[test]
    fn subscriptions_are_bounded() {
        let mut member = Member::default();
        (0..=MAX_SUBSCRIPTIONS).for_each(|number| member.subscribe(&number.to_string()));
        assert_eq!(member.subscriptions.len(), MAX_SUBSCRIPTIONS);
        assert!(member.may_subscribe("0") && !member.may_subscribe("x"));
        assert!(!Member::default().may_subscribe(&"x".repeat(MAX_URI + 1)));
    }

    #[test]
    fn subscriptions_of_all_sessions_are_bounded_together() {
        let room = subscription("a:1");
        let shares = Shares::new(Bounds { total: 3 * room, per_principal: 2 * room });
        let mut members = Members::default();
        for (name, who) in ["a", "a", "b", "b"].into_iter().enumerate() {
            members.join(name as Name, Abilities::default(), Some(shares.nothing(&who.into())));
        }
        let subscribe = |members: &mut Members, name: Name, uri: &str| {
            let member = members.get_mut(name).unwrap();
            let may = member.may_subscribe(uri);
            member.subscribe(uri);
            assert_eq!(member.subscriptions.contains(uri), may, "{name} {uri}");
            may
        };
        for (name, uri, room) in [
            (0, "a:1", true),
            (0, "a:1", true),
            (1, "a:1", true),
            (1, "a:2", false),
            (2, "a:1", true),
            // There is as much as there is.
            (3, "a:1", false),
        ] {
            assert_eq!(subscribe(&mut members, name, uri), room, "{name} {uri}");
        }
        members.get_mut(0).unwrap().unsubscribe("a:1");
        members.get_mut(0).unwrap().unsubscribe("a:1");
        assert!(subscribe(&mut members, 1, "a:2"));
        // With its session.
        drop(members.leave(1).map(Member::into_subscriptions));
        assert!(subscribe(&mut members, 0, "a:3") && subscribe(&mut members, 3, "a:3"));
    }

    #[test]
    fn what_is_refused_changes_nothing() {
        let (notice, info, debug) = (Some(Level::Notice), Some(Level::Info), Some(Level::Debug));
        // Who asks for what, and whether the answer is yes; some answers come after the next question, and a question for
        // what is asked already goes nowhere.
        for (asked, answers, left) in [
            (&[(0, debug)][..], &[(0, debug, false)][..], [None, None]),
            (&[(0, notice)], &[(0, notice, true)], [notice, None]),
            (&[(0, debug), (0, info)], &[(0, debug, false), (0, info, true)], [info, None]),
            (&[(0, info), (0, debug)], &[(0, info, true), (0, debug, false)], [info, None]),
            (&[(0, debug), (0, info)], &[(0, debug, false), (0, info, false)], [None, None]),
            (&[(0, debug), (1, debug)], &[(0, debug, false)], [None, None]),
            (&[(0, debug), (1, debug), (1, info)], &[(0, debug, true), (0, info, false)], [debug, info]),
            (&[(0, info), (1, notice), (1, debug)], &[(0, info, true), (1, debug, false)], [info, None]),
        ] {
            let mut members = members(2);
            for (name, level) in asked {
                members.get_mut(*name).unwrap().level = *level;
            }
            for (name, level, agreed) in answers {
                if *agreed { members.agreed(*name, *level) } else { members.refused(*level) }
            }
            assert_eq!([0, 1].map(|name| members.get(name).unwrap().level), left, "{asked:?}");
        }
    }

    #[test]
    fn each_hears_what_it_asked_for_and_the_process_says_enough_for_all() {
        let mut members = members(3);
        assert_eq!(members.level(), None);
        members.get_mut(0).unwrap().level = Some(Level::Error);
        members.get_mut(1).unwrap().level = Some(Level::Info);
        assert_eq!(members.level(), Some(Level::Info));
        for (level, heard) in [
            (Some(Level::Debug), [false, false, false]),
            (Some(Level::Info), [false, true, false]),
            (Some(Level::Emergency), [true, true, false]),
            (None, [false, false, false]),
        ] {
            let hears: Vec<_> = (0..3).map(|name| members.get(name).unwrap().hears(level)).collect();
            assert_eq!(hears, heard, "{level:?}");
        }
    }
}
