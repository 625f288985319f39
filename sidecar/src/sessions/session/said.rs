//! What a server was told of what a client has set, over as many turns as that takes.

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_mcp::level::Level;
use longshore_sessions::message::Copy;

use super::Change;

/// What it was told since it was lost.
#[derive(Debug, Default)]
pub(in super::super) struct Said {
    log_level: Option<Level>,
    /// The resources that it may tell of, and whether it surely does.
    subscriptions: BTreeMap<Arc<str>, bool>,
}

impl Said {
    /// What it is yet to be told so that it knows what the client has set by now.
    pub(in super::super) fn left(&self, now: &Copy) -> Vec<Change> {
        let level = now.log_level.filter(|_| now.log_level != self.log_level);
        let left = self.subscriptions.keys().filter(|uri| !now.subscriptions.contains(*uri));
        let new = now.subscriptions.iter().filter(|uri| self.subscriptions.get(*uri) != Some(&true));
        let level = level.map(Change::LogLevel).into_iter();
        level
            .chain(left.cloned().map(Change::Unsubscribe))
            .chain(new.cloned().map(Change::Subscribe))
            .collect()
    }

    /// It is being told this. Until it has taken that nobody knows which of the two is so there.
    pub(in super::super) fn begin(&mut self, change: &Change) {
        match change {
            Change::LogLevel(_) => self.log_level = None,
            Change::Subscribe(uri) | Change::Unsubscribe(uri) => {
                self.subscriptions.insert(uri.clone(), false);
            }
        }
    }

    /// It has taken it.
    pub(in super::super) fn note(&mut self, change: Change) {
        match change {
            Change::LogLevel(level) => self.log_level = Some(level),
            Change::Subscribe(uri) => {
                self.subscriptions.insert(uri, true);
            }
            Change::Unsubscribe(uri) => {
                self.subscriptions.remove(&uri);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_surely_so_is_said_once_more_and_what_was_left_is_taken_back() {
        let (mut said, mut now) = (Said::default(), Copy::default());
        let [a, b] = ["a", "b"].map(Arc::<str>::from);
        now.subscriptions = [a.clone(), b.clone()].into();
        now.log_level = Some(Level::Info);
        let level = Change::LogLevel(Level::Info);
        let [first, second] = [&a, &b].map(|uri| Change::Subscribe(uri.clone()));
        assert_eq!(said.left(&now), [level.clone(), first.clone(), second.clone()]);
        said.begin(&first);
        said.note(first.clone());
        said.begin(&second);
        assert_eq!(said.left(&now), [level.clone(), second.clone()], "it may have taken that, or not");
        said.note(level);
        now.subscriptions.clear();
        let leaves = [a, b].map(Change::Unsubscribe);
        assert_eq!(said.left(&now), leaves);
        said.begin(&leaves[0]);
        now.subscriptions.insert("a".into());
        assert_eq!(said.left(&now), [leaves[1].clone(), first], "which it may have left");
        now.subscriptions.clear();
        leaves.into_iter().for_each(|change| said.note(change));
        assert!(said.left(&now).is_empty() && said.subscriptions.is_empty());
    }
}
