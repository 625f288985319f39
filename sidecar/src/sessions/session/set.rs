//! What a client has set, and who else knows it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longshore_mcp::level::Level;
use longshore_sessions::PodId;
use longshore_sessions::bounds::{MAX_SUBSCRIPTION, MAX_SUBSCRIPTIONS};
use longshore_sessions::message::Copy;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::Session;
use crate::held::{Share, Shares, subscription};

/// What a client has set, and who else knows it.
#[derive(Default)]
pub(super) struct Set {
    copy: Copy,
    /// What its subscriptions hold.
    share: Option<Share>,
    /// Another replica is to keep it.
    matters: bool,
    /// Which one keeps it as it is now.
    kept_at: Option<PodId>,
    /// The server here is yet to be told of it. Who waits for that hears whether it was there.
    unset: Option<watch::Sender<bool>>,
}

/// Something that a client sets in its session, and that has to be set again where the session is begun again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The level of log messages.
    LogLevel(Level),
    /// It wants to hear of a resource.
    Subscribe(Box<str>),
    /// It does not any more.
    Unsubscribe(Box<str>),
}

impl Session {
    /// The same with what its client has set.
    pub(in super::super) fn with(self, mut copy: Copy, shares: &Arc<Shares>) -> Self {
        let matters = copy.log_level.is_some() || !copy.subscriptions.is_empty();
        let mut share = shares.nothing(self.place.principal());
        copy.subscriptions.retain(|uri| share.add(subscription(uri)));
        let set = (copy != Copy::default())
            .then(|| Box::new(Set { copy, share: Some(share), matters, kept_at: None, unset: None }));
        self.streams.were_elsewhere();
        // It goes on: its client has used it.
        Self { set: Mutex::new(set), known: AtomicBool::new(true), ..self }
    }

    /// What its client has set.
    pub(crate) fn copy(&self) -> Copy {
        self.set.lock().as_ref().map(|set| set.copy.clone()).unwrap_or_default()
    }

    /// Whether there is anything that another replica is to keep.
    pub(in super::super) fn has_copy(&self) -> bool {
        self.set.lock().as_ref().is_some_and(|set| set.matters)
    }

    /// The server is yet to be told of it.
    pub(in super::super) fn note_unset(&self) {
        if let Some(set) = self.set.lock().as_mut() {
            set.unset.get_or_insert_with(|| watch::Sender::new(true));
        }
    }

    /// The server has been told, if it was there.
    pub(in super::super) fn note_set(&self, was_there: bool) {
        let unset = self.set.lock().as_mut().and_then(|set| set.unset.take());
        if let Some(unset) = unset {
            unset.send_replace(was_there);
        }
    }

    /// Whether the server is yet to be told.
    pub(crate) fn is_unset(&self) -> bool {
        self.set.lock().as_ref().is_some_and(|set| set.unset.is_some())
    }

    /// Where the server is yet to be told: whether it was there, once it has been.
    pub(in super::super) async fn until_set(&self) -> Option<bool> {
        let unset = self.set.lock().as_ref().and_then(|set| Some(set.unset.as_ref()?.subscribe()));
        let mut unset = unset?;
        // It is dropped with the session at the latest.
        let _ = unset.changed().await;
        Some(*unset.borrow())
    }

    /// What this replica is to keep, if it does not.
    pub(in super::super) fn to_copy(&self, buddy: &PodId) -> Option<Copy> {
        let set = self.set.lock();
        let set = set.as_ref().filter(|set| set.matters && set.kept_at.as_ref() != Some(buddy))?;
        Some(set.copy.clone())
    }

    /// Notes that another replica keeps what was set then.
    pub(in super::super) fn copied(&self, version: u64, buddy: PodId) {
        if let Some(set) = self.set.lock().as_mut().filter(|set| set.copy.version == version) {
            set.kept_at = Some(buddy);
        }
    }

    /// Notes that these replicas keep nothing of it.
    pub(in super::super) fn lost_at(&self, pods: &[PodId]) {
        if let Some(set) = self.set.lock().as_mut() {
            set.kept_at.take_if(|pod| pods.contains(pod));
        }
    }

    /// Notes what its client sets. What is over the bounds is not kept: it is lost with the replica.
    pub(in super::super) fn change(&self, change: Change, shares: &Arc<Shares>) {
        let mut set = self.set.lock();
        let set = set.get_or_insert_default();
        let copy = &mut set.copy;
        let share = set.share.get_or_insert_with(|| shares.nothing(self.place.principal()));
        match change {
            Change::LogLevel(level) => copy.log_level = Some(level),
            Change::Subscribe(uri) => {
                if uri.len() <= MAX_SUBSCRIPTION
                    && copy.subscriptions.len() < MAX_SUBSCRIPTIONS
                    && !copy.subscriptions.contains(&uri)
                    && share.add(subscription(&uri))
                {
                    copy.subscriptions.insert(uri);
                }
            }
            Change::Unsubscribe(uri) => {
                if copy.subscriptions.remove(&uri) {
                    drop(share.split(subscription(&uri)));
                }
            }
        }
        copy.version += 1;
        (set.matters, set.kept_at) = (true, None);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::session;
    use super::*;
    use crate::held::Bounds;
    use crate::sessions::Places;
    use crate::sessions::places::tests::limits;

    #[test]
    fn subscriptions_of_all_sessions_are_bounded_together() {
        let room = subscription("a:1");
        let shares = Shares::new(Bounds { total: 3 * room, per_principal: 2 * room });
        let places = Arc::new(Places::default());
        let open = |who: &str| session(places.take(&who.into(), &limits()).ok().unwrap());
        let kept = |session: &Session, uri: &str| {
            session.change(Change::Subscribe(uri.into()), &shares);
            session.copy().subscriptions.contains(uri)
        };
        let (first, second, other) = (open("a"), open("a"), open("b"));
        assert!(kept(&first, "a:1") && kept(&first, "a:1") && kept(&second, "a:1") && !kept(&second, "a:2"));
        // There is as much as there is.
        assert!(kept(&other, "a:1") && !kept(&other, "a:2"));
        for _ in 0..2 {
            first.change(Change::Unsubscribe("a:1".into()), &shares);
        }
        assert!(kept(&other, "a:2") && !kept(&first, "a:1"));
        // With its session; and one that goes on here has them as far as there is room.
        let copy = other.copy();
        drop((second, other));
        assert_eq!(first.with(copy.clone(), &shares).copy().subscriptions.len(), 2);
        let _full = open("a").with(copy.clone(), &shares);
        assert_eq!(open("b").with(copy, &shares).copy().subscriptions.len(), 1);
    }
}
