//! Which conversations one that comes may join: by whose they are, by the revision that is spoken, and by their age.

use std::sync::Arc;

use longshore_sidecar_config::Processes;
use tokio::time::{Duration, Instant};

use crate::upstream::stdio::Begins;

/// Who may join a conversation.
#[derive(Clone, Debug)]
pub(in super::super) struct Group {
    /// The sidecar alone.
    pub(in super::super) own: bool,
    /// Requests that stand alone, and no sessions.
    pub(in super::super) alone: bool,
    /// Sessions of this principal, or of everybody.
    pub(in super::super) principal: Option<Arc<str>>,
    /// How the session begins that came first.
    pub(in super::super) begins: Begins,
    /// The revision that its server was asked for.
    pub(in super::super) asked: String,
    /// The one that it chose, once that is known.
    pub(in super::super) version: Option<String>,
    /// When its process began. None: there is none, and the next one will be young.
    pub(in super::super) began: Option<Instant>,
    /// Nobody once it is as old as that, as long as there is another place to go to.
    pub(in super::super) max_age: Option<Duration>,
}

/// What a conversation has to be for one that comes to it. Whoever may have no other is translated for, and comes to an old
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Need {
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
    pub(in super::super) idle: Duration,
    /// When no more of them may come.
    pub(in super::super) aged: Option<Instant>,
}

impl Group {
    fn aged(&self) -> Option<Instant> {
        self.max_age.zip(self.began).map(|(age, began)| began + age)
    }

    /// What holds for its process.
    pub(in super::super) fn limits(&self, limits: &Processes) -> Limits {
        Limits { idle: Duration::from_millis(limits.idle_ms), aged: self.aged() }
    }

    /// Whether one that wants such a conversation may have this one.
    pub(super) fn takes(&self, wanted: &Self, need: Need) -> bool {
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
        let is_new = matches!(wanted.begins, Begins::Anew | Begins::Alone);
        let will_do = |version: &str| version == revision || (is_new && version < revision);
        let speaks = || self.asked == revision || self.version.as_deref().is_some_and(will_do);
        match need {
            Need::Young(now) => speaks() && self.aged().is_none_or(|aged| now < aged),
            Need::Spoken => speaks(),
            Need::Any => wanted.begins != Begins::AgainOrElsewhere || speaks(),
        }
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
                    began: Some(began),
                    max_age: None,
                }
            };
            let (group, wanted) = (group(asked, version), group(revision, None));
            assert_eq!(group.takes(&wanted, young), suits, "{group:?} {revision}");
            let alone = Group { begins: Begins::Alone, ..wanted.clone() };
            assert_eq!(group.takes(&alone, young), suits, "{group:?} {revision}: no client's");
            for need in [young, Need::Any] {
                assert!(!group.takes(&Group { alone: true, ..wanted.clone() }, need), "no session");
                assert!(!group.takes(&Group { own: true, ..wanted.clone() }, need), "the sidecar's");
                assert!(
                    !group.takes(&Group { principal: Some("p".into()), ..wanted.clone() }, need),
                    "somebody's"
                );
            }
            let unborn = Group { max_age: Some(Duration::ZERO), began: None, ..group.clone() };
            assert_eq!(unborn.suits(&wanted, young), suits, "no process is no old one");
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
            let began = Some(began);
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
}
