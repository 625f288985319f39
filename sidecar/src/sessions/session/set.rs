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

use super::{Said, Session};
use crate::held::{Share, Shares, subscription};
use crate::upstream::gap::SELDOM;

/// How long a session waits after a turn for the next one. That doubles with each in which its server takes nothing.
const AFTER_A_TURN: Duration = Duration::from_secs(10);

/// What a client has set, and who else knows it.
#[derive(Default)]
pub(super) struct Set {
    copy: Copy,
    /// What its subscriptions hold.
    share: Option<Share>,
    /// There is something of which another replica is to keep a copy.
    matters: bool,
    /// The pod that has a copy of it as it is now.
    kept_at: Option<PodId>,
    /// What is known of telling the server here, while it is yet to be told.
    unset: Option<Unset>,
    /// When it was told of it last.
    told: Option<Instant>,
}

/// A session whose server is yet to be told what its client has set.
#[derive(Default)]
struct Unset {
    at: At,
    /// Who waits for it hears whether it was told all.
    told: watch::Sender<bool>,
    /// For how long it was put off after its last turn.
    pause: Duration,
    /// What it was told since it was lost.
    said: Said,
    /// When the first turn since then began. None during a turn: the server was lost once more meanwhile.
    since: Option<Instant>,
}

/// Where such a session stands.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum At {
    /// In line, behind those of its principal that somebody waits for.
    #[default]
    Behind,
    /// In line, and somebody waits for it.
    Ahead,
    /// It has its turn.
    Turn,
    /// Its turn was not enough: it is in line again from then on.
    Later(Instant),
}

/// When a session has its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Next {
    /// It is in line, and this is whether somebody waits for it.
    InLine(bool),
    /// After so long.
    Later(Duration),
}

/// Something that a client sets in its session, and that has to be set again where the session is begun again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Change {
    /// The level of log messages.
    LogLevel(Level),
    /// It wants to hear of a resource.
    Subscribe(Arc<str>),
    /// It does not any more.
    Unsubscribe(Arc<str>),
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

    /// The server, which was `lost` then, is to be told all, unless a turn for that has begun since. `Some` if the session is to
    /// take one more place in line: whether somebody waits for it.
    pub(in super::super) fn unset(&self, lost: Instant) -> Option<bool> {
        let mut set = self.set.lock();
        let set = set.as_mut().filter(|set| !set.is_set_since(Some(lost)))?;
        let takes_place = set.unset.as_ref().is_none_or(|unset| matches!(unset.at, At::Later(_)));
        let unset = set.unset.get_or_insert_default();
        if unset.since.is_some_and(|since| since >= lost) {
            return None;
        }
        // What it was told, or had no time for, is of the server of before.
        (unset.said, unset.since, unset.pause) = (Said::default(), None, Duration::ZERO);
        takes_place.then(|| unset.line_up())
    }

    /// The same for a session that was put off until now, unless it is in line already. Only those wait for it who have all
    /// the time there is, so it is behind others. Says whether it takes a place.
    pub(in super::super) fn unset_still(&self) -> bool {
        let mut set = self.set.lock();
        let unset = set.as_mut().and_then(|set| set.unset.as_mut());
        let unset = unset.filter(|unset| matches!(unset.at, At::Later(due) if due <= Instant::now()));
        unset.map(|unset| unset.at = At::Behind).is_some()
    }

    /// For those who wait until the server is told: hears whether it was told all; and whether the session is to take a place
    /// before others now. Nobody waits so for a session that is put off.
    pub(in super::super) fn awaits(&self) -> Option<(watch::Receiver<bool>, bool)> {
        let mut set = self.set.lock();
        let unset = set.as_mut()?.unset.as_mut().filter(|unset| !matches!(unset.at, At::Later(_)))?;
        let was_behind = unset.at == At::Behind;
        if was_behind {
            unset.at = At::Ahead;
        }
        Some((unset.told.subscribe(), was_behind))
    }

    /// The same for those who have all the time there is: they wait for a session that is put off too.
    pub(in super::super) fn awaits_in_the_end(&self) -> Option<watch::Receiver<bool>> {
        self.set.lock().as_ref()?.unset.as_ref().map(|unset| unset.told.subscribe())
    }

    /// Whether nobody waits any more for one that is before others: it is behind them from now on.
    pub(in super::super) fn falls_behind(&self) -> bool {
        let mut set = self.set.lock();
        let unset = set.as_mut().and_then(|set| set.unset.as_mut());
        unset.filter(|unset| unset.at == At::Ahead).is_some_and(|unset| !unset.line_up())
    }

    /// Its turn begins, if the session is in line at this place: gives what the server was told in earlier turns, and whether
    /// there were any.
    pub(in super::super) fn begin_to_set(&self, is_ahead: bool) -> Option<(Said, bool)> {
        let mut set = self.set.lock();
        let place = if is_ahead { At::Ahead } else { At::Behind };
        let unset = set.as_mut()?.unset.as_mut().filter(|unset| unset.at == place)?;
        let comes_again = unset.since.is_some();
        unset.since.get_or_insert_with(Instant::now);
        unset.at = At::Turn;
        Some((std::mem::take(&mut unset.said), comes_again))
    }

    /// Whether it has its turn, and the server was not lost since that began.
    pub(in super::super) fn is_in_turn(&self) -> bool {
        let set = self.set.lock();
        let unset = set.as_ref().and_then(|set| set.unset.as_ref());
        unset.is_some_and(|unset| unset.at == At::Turn && unset.since.is_some())
    }

    /// Its turn is over: `said` is what the server was told in all of them, and `has_taken` whether it took anything in this
    /// one. Says when the session has another turn, if anything is left.
    pub(in super::super) fn note_set(&self, said: Said, has_taken: bool) -> Option<Next> {
        let mut set = self.set.lock();
        let Set { copy, unset, told, .. } = &mut **set.as_mut()?;
        let mut over = unset.take_if(|unset| unset.at == At::Turn)?;
        if over.since.is_none() {
            return Some(Next::InLine(unset.insert(over).line_up()));
        }
        let is_all = said.left(copy).is_empty();
        *told = over.since.filter(|_| is_all);
        over.told.send_replace(is_all);
        if is_all {
            return None;
        }
        let longer = if has_taken { Duration::ZERO } else { over.pause * 2 };
        (over.said, over.pause) = (said, longer.clamp(AFTER_A_TURN, SELDOM));
        over.at = At::Later(Instant::now() + over.pause);
        Some(Next::Later(unset.insert(over).pause))
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

impl Unset {
    /// It takes a place. Says whether somebody waits for it.
    fn line_up(&mut self) -> bool {
        let is_awaited = self.told.receiver_count() > 0;
        self.at = if is_awaited { At::Ahead } else { At::Behind };
        is_awaited
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
        let wanted = Change::Subscribe("a:1".into());
        let over = || {
            let mut said = Said::default();
            said.note(wanted.clone());
            session.note_set(said, true)
        };
        let begin = || session.begin_to_set(true).map(|(_, comes_again)| comes_again);
        let lost = Instant::now();
        assert!(session.unset(lost).is_none() && !session.is_unset(), "there is nothing to say");
        session.change(wanted.clone(), &shares);
        assert_eq!((session.unset(lost), session.unset(lost)), (Some(false), None), "one place in line");
        let (mut told, is_ahead) = session.awaits().unwrap();
        assert!(is_ahead && !session.awaits().unwrap().1);
        assert!(session.begin_to_set(false).is_none(), "it is ahead");
        moment().await;
        assert_eq!((begin(), begin(), session.unset(lost)), (Some(false), None, None));
        moment().await;
        // What is said meanwhile is said to one that is gone.
        let lost_again = Instant::now();
        assert!(session.is_in_turn() && session.unset(lost_again).is_none() && !session.is_in_turn());
        assert_eq!((begin(), over()), (None, Some(Next::InLine(true))), "one turn at a time");
        assert!(session.is_unset() && !session.is_set_since(Some(lost)) && !told.has_changed().unwrap());
        assert_eq!((begin(), over()), (Some(false), None));
        assert!(
            !session.is_unset() && session.is_set_since(Some(lost_again)) && session.unset(lost).is_none()
        );
        told.changed().await.unwrap();
        assert!(*told.borrow());
        moment().await;
        assert_eq!(session.unset(Instant::now()), Some(false));
        let waits = session.awaits();
        assert!(waits.as_ref().unwrap().1 && !session.falls_behind());
        drop(waits);
        assert!(session.falls_behind() && !session.falls_behind() && begin().is_none());
        assert!(session.begin_to_set(false).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_is_said_later_and_ever_later_where_nothing_is_taken() {
        let shares = Shares::new(Bounds { total: 1_000, per_principal: 1_000 });
        let session = session(Arc::new(Places::default()).take(&"a".into(), &limits()).ok().unwrap());
        let moment = || tokio::time::advance(Duration::from_secs(1));
        let [wanted, other] = ["a:1", "a:2"].map(|uri| Change::Subscribe(uri.into()));
        session.change(wanted.clone(), &shares);
        session.change(other.clone(), &shares);
        let lost = Instant::now();
        assert_eq!(session.unset(lost), Some(false));
        moment().await;
        let began = Instant::now();
        let turns = [10, 20, 40, 80, 160, 300, 300].map(|pause| (false, pause));
        for (number, (has_taken, pause)) in turns.into_iter().chain([(true, 10)]).enumerate() {
            let (mut said, comes_again) = session.begin_to_set(false).unwrap();
            assert_eq!(comes_again, number > 0);
            let pause = Duration::from_secs(pause);
            if has_taken {
                said.note(wanted.clone());
            }
            assert_eq!(session.note_set(said, has_taken), Some(Next::Later(pause)));
            assert!(session.is_unset() && !session.is_set_since(Some(lost)));
            assert!(session.awaits().is_none() && session.begin_to_set(false).is_none(), "it is put off");
            assert!(session.unset(began).is_none(), "whoever says that it was lost before");
            moment().await;
            assert!(!session.unset_still(), "it is early");
            let in_the_end = session.awaits_in_the_end().unwrap();
            tokio::time::advance(pause).await;
            assert_eq!((session.unset_still(), session.unset_still()), (true, false));
            drop(in_the_end);
        }
        // What it has taken in all those turns counts from the first one on.
        let (said, _) = session.begin_to_set(false).unwrap();
        assert_eq!(
            (said.left(&session.copy()), session.note_set(said, false)),
            (vec![other.clone()], Some(Next::Later(AFTER_A_TURN * 2)))
        );
        assert_eq!(
            session.unset(began + Duration::from_millis(1)),
            Some(false),
            "it is another server by now"
        );
        let (said, comes_again) = session.begin_to_set(false).unwrap();
        assert!(!comes_again && said.left(&session.copy()) == [wanted, other], "which knows nothing of that");
        assert_eq!(session.note_set(said, false), Some(Next::Later(AFTER_A_TURN)));
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
