//! What a client has set, and who else knows it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longshore_mcp::level::Level;
use longshore_sessions::PodId;
use longshore_sessions::bounds::{MAX_SUBSCRIPTION, MAX_SUBSCRIPTIONS};
use longshore_sessions::message::Copy;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Duration, Instant};

use super::Session;
use crate::held::{Share, Shares, subscription};
use crate::upstream::gap::SELDOM;

/// How long a session waits at first after a turn that was in vain. That doubles each time.
const AFTER_ONE_IN_VAIN: Duration = Duration::from_secs(10);

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
    /// The server here is yet to be told of it.
    unset: Option<Unset>,
    /// When it was told of it last.
    told: Option<Instant>,
}

/// What is known of that until then.
#[derive(Default)]
struct Unset {
    at: At,
    /// Who waits for it hears whether it was there.
    said: watch::Sender<bool>,
    /// For how long it was put off after the last turn that was in vain.
    pause: Duration,
}

/// Where a session is that waits for that.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum At {
    /// Behind those of its principal that somebody waits for.
    #[default]
    Behind,
    Ahead,
    /// It has its turn since then.
    Turn(Instant),
    /// That turn was in vain, and it has another one later.
    Later(Instant),
}

/// How a turn went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Told {
    /// The server was there, and had time for it.
    All,
    /// It was not, or had none.
    NotAll,
    /// It has forgotten the session. Whoever finds that out begins it again.
    Gone,
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
            .then(|| Box::new(Set { copy, share: Some(share), matters, ..Set::default() }));
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

    /// Whether the server is yet to be told.
    pub(crate) fn is_unset(&self) -> bool {
        self.set.lock().as_ref().is_some_and(|set| set.unset.is_some())
    }

    /// Whether there is nothing to tell it, or it was told since it was `lost`, if it was.
    pub(crate) fn is_set_since(&self, lost: Option<Instant>) -> bool {
        self.set.lock().as_ref().is_none_or(|set| set.is_set_since(lost))
    }

    /// It is to be told, unless it has been since it was `lost`, or is being told. If that takes one more place in line,
    /// whether somebody waits for it.
    pub(in super::super) fn unset(&self, lost: Instant) -> Option<bool> {
        let mut set = self.set.lock();
        let set = set.as_mut().filter(|set| !set.is_set_since(Some(lost)))?;
        match set.unset.as_ref().map(|unset| unset.at) {
            Some(At::Behind | At::Ahead) => return None,
            Some(At::Turn(begun) | At::Later(begun)) if begun >= lost => return None,
            Some(At::Turn(_) | At::Later(_)) | None => {}
        }
        let unset = set.unset.get_or_insert_default();
        // What was in vain was so with the server of before.
        unset.pause = Duration::ZERO;
        let is_awaited = unset.said.receiver_count() > 0;
        unset.at = if is_awaited { At::Ahead } else { At::Behind };
        Some(is_awaited)
    }

    /// The same for one whose turn was in vain that has begun then, if nobody has seen to it since. Who waits in the end has
    /// all the time there is, so it is behind others. Says whether it takes a place.
    pub(in super::super) fn unset_still(&self, begun: Instant) -> bool {
        let mut set = self.set.lock();
        let unset = set.as_mut().and_then(|set| set.unset.as_mut());
        let unset = unset.filter(|unset| unset.at == At::Later(begun));
        unset.map(|unset| unset.at = At::Behind).is_some()
    }

    /// For who waits until it is told: how it will have gone, and whether that takes a place before others. Nobody waits
    /// for one that is put off.
    pub(in super::super) fn awaits(&self) -> Option<(watch::Receiver<bool>, bool)> {
        let mut set = self.set.lock();
        let unset = set.as_mut()?.unset.as_mut().filter(|unset| !matches!(unset.at, At::Later(_)))?;
        let was_behind = unset.at == At::Behind;
        if was_behind {
            unset.at = At::Ahead;
        }
        Some((unset.said.subscribe(), was_behind))
    }

    /// The same for who has all the time there is.
    pub(in super::super) fn awaits_in_the_end(&self) -> Option<watch::Receiver<bool>> {
        self.set.lock().as_ref()?.unset.as_ref().map(|unset| unset.said.subscribe())
    }

    /// Its turn begins, if it has yet to come. Says besides whether one before was in vain.
    pub(in super::super) fn begin_to_set(&self) -> Option<(Instant, bool)> {
        let mut set = self.set.lock();
        let unset =
            set.as_mut()?.unset.as_mut().filter(|unset| matches!(unset.at, At::Behind | At::Ahead))?;
        let begun = Instant::now();
        unset.at = At::Turn(begun);
        Some((begun, !unset.pause.is_zero()))
    }

    /// The turn is over that has begun then. If the server is to be told anew by now, that is nothing. Says for how long the
    /// session is put off, if it is.
    pub(in super::super) fn note_set(&self, begun: Instant, how: Told) -> Option<Duration> {
        let mut set = self.set.lock();
        let Set { unset, told, .. } = &mut **set.as_mut()?;
        let mut over = unset.take_if(|unset| unset.at == At::Turn(begun))?;
        *told = Some(begun).filter(|_| how == Told::All);
        over.said.send_replace(how == Told::All);
        if how != Told::NotAll {
            return None;
        }
        over.at = At::Later(begun);
        over.pause = (over.pause * 2).clamp(AFTER_ONE_IN_VAIN, SELDOM);
        Some(unset.insert(over).pause)
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

impl Set {
    fn is_set_since(&self, lost: Option<Instant>) -> bool {
        self.copy.log_level.is_none() && self.copy.subscriptions.is_empty() || self.told >= lost
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::session;
    use super::*;
    use crate::held::Bounds;
    use crate::sessions::Places;
    use crate::sessions::places::tests::limits;

    #[tokio::test(start_paused = true)]
    async fn the_server_is_told_once_for_each_time_that_it_was_lost() {
        let shares = Shares::new(Bounds { total: 1_000, per_principal: 1_000 });
        let session = session(Arc::new(Places::default()).take(&"a".into(), &limits()).ok().unwrap());
        let moment = || tokio::time::advance(Duration::from_secs(1));
        let lost = Instant::now();
        assert!(session.unset(lost).is_none() && !session.is_unset(), "there is nothing to say");
        session.change(Change::Subscribe("a:1".into()), &shares);
        assert_eq!((session.unset(lost), session.unset(lost)), (Some(false), None), "one place in line");
        let (mut said, is_ahead) = session.awaits().unwrap();
        assert!(is_ahead && !session.awaits().unwrap().1);
        moment().await;
        let (begun, is_second) = session.begin_to_set().unwrap();
        assert!(!is_second && session.begin_to_set().is_none() && session.unset(lost).is_none());
        moment().await;
        // What is said meanwhile is said to one that is gone.
        let lost_again = Instant::now();
        assert_eq!(session.unset(lost_again), Some(true));
        assert_eq!(session.note_set(begun, Told::All), None);
        assert!(session.is_unset() && !session.is_set_since(Some(lost)));
        let (begun, _) = session.begin_to_set().unwrap();
        assert_eq!(session.note_set(begun, Told::All), None);
        assert!(
            !session.is_unset() && session.is_set_since(Some(lost_again)) && session.unset(lost).is_none()
        );
        said.changed().await.unwrap();
        assert!(*said.borrow());
        moment().await;
        let lost = Instant::now();
        assert_eq!(session.unset(lost), Some(false));
        for pause in [10, 20, 40, 80, 160, 300, 300].map(Duration::from_secs) {
            let (begun, is_second) = session.begin_to_set().unwrap();
            assert_eq!(is_second, pause > AFTER_ONE_IN_VAIN);
            assert_eq!(session.note_set(begun, Told::NotAll), Some(pause));
            assert!(session.is_unset() && !session.is_set_since(Some(lost)));
            assert!(session.awaits().is_none() && session.begin_to_set().is_none(), "it is put off");
            assert!(session.unset(lost).is_none(), "whoever says that it was lost before");
            moment().await;
            let in_the_end = session.awaits_in_the_end().unwrap();
            assert_eq!((session.unset_still(begun), session.unset_still(begun)), (true, false));
            drop(in_the_end);
        }
        let (begun, _) = session.begin_to_set().unwrap();
        assert!(session.note_set(begun, Told::NotAll).is_some());
        moment().await;
        assert_eq!(session.unset(Instant::now()), Some(false), "it is another server by now");
        assert!(!session.unset_still(begun));
        let (begun, _) = session.begin_to_set().unwrap();
        assert_eq!(session.note_set(begun, Told::NotAll), Some(AFTER_ONE_IN_VAIN));
        moment().await;
        assert!(session.unset_still(begun));
        let (begun, _) = session.begin_to_set().unwrap();
        assert_eq!(session.note_set(begun, Told::Gone), None);
        assert!(!session.is_unset() && session.unset(lost).is_some(), "it was not there");
    }

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
