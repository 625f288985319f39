//! How many processes there may be, and who waits for one.

use std::collections::HashMap;
use std::sync::Arc;

use longshore_sidecar_config::{Isolation, Processes};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Duration, timeout};

use super::Failure;
use super::queue::{Queue, Waits};
use crate::counts_by_owner::Tally;

/// The places that are taken. A session keeps its place while it has no process, so that its next call is not refused.
#[derive(Default)]
pub(super) struct Places {
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Default)]
struct State {
    /// Those that are in force.
    limits: Option<Processes>,
    total: u32,
    by_principal: Tally<Arc<str>>,
    waiting: Queue<oneshot::Sender<Place>>,
}

/// Who waits for places that are taken.
#[derive(Default)]
pub(super) struct Wanted {
    /// How many of each principal whose part is full: no other's place is of use to them.
    pub(super) own: HashMap<Arc<str>, usize>,
    /// How many may have anybody's.
    pub(super) any: usize,
}

/// A place; dropped, it is free again.
pub(super) struct Place {
    places: Arc<Places>,
    /// Whose it is; nobody's where a process is shared by all, or waits for its first session.
    principal: Option<Arc<str>>,
}

impl Place {
    /// Whose it is.
    pub(super) fn principal(&self) -> Option<&Arc<str>> {
        self.principal.as_ref()
    }
}

impl Places {
    /// Takes a place, or waits for one for at most so long. Nobody's, if no principal is named.
    pub(super) async fn take(
        self: &Arc<Self>,
        principal: Option<&Arc<str>>,
        patience: Duration,
    ) -> Result<Place, Failure> {
        self.take_longer(principal, patience, || Duration::ZERO).await
    }

    /// The same, and if none has come by then, waits for as long as is said then.
    pub(super) async fn take_longer(
        self: &Arc<Self>,
        principal: Option<&Arc<str>>,
        patience: Duration,
        longer: impl FnOnce() -> Duration,
    ) -> Result<Place, Failure> {
        let mut waiting = {
            let mut state = self.state.lock();
            let Some(refusal) = state.refusal_now(principal) else {
                return Ok(self.place(&mut state, principal.cloned()));
            };
            if patience.is_zero() {
                return Err(refusal);
            }
            let (grant, granted) = oneshot::channel();
            let who = principal.cloned().unwrap_or_else(|| "".into());
            if state.waiting.push(who, grant, |waits| !waits.is_closed()).is_err() {
                return Err(refusal);
            }
            Waits { granted, leave: || self.state.lock().waiting.tidy() }
        };
        let mut granted = timeout(patience, &mut waiting.granted).await;
        if granted.is_err() {
            granted = timeout(longer(), &mut waiting.granted).await;
        }
        match granted {
            Ok(Ok(place)) => Ok(place),
            // What has come meanwhile is given back.
            Ok(Err(_)) | Err(_) => Err(self.state.lock().refusal(principal).unwrap_or(Failure::Queue)),
        }
    }

    /// Why this principal would have to wait for one, if it would.
    pub(super) fn refusal(&self, principal: Option<&Arc<str>>) -> Option<Failure> {
        self.state.lock().refusal_now(principal)
    }

    /// What whoever got none is told. Where one caller may have all of them, as where nobody says who they are, it is not
    /// the caller's part that is full.
    pub(super) fn told(&self, failure: Failure) -> Failure {
        let total = self.state.lock().limits.map_or(0, |limits| limits.total);
        match failure {
            Failure::FullForPrincipal { limit, again } if limit >= total => Failure::Full { limit, again },
            failure => failure,
        }
    }

    /// Takes a place for a process that nobody needs yet. Whoever waits for one, and may have it, needs it more.
    pub(super) fn take_ahead(self: &Arc<Self>) -> Option<Place> {
        let mut state = self.state.lock();
        let free = state.limits.is_some_and(|limits| state.total < limits.total) && state.is_anybodys();
        free.then(|| self.place(&mut state, None))
    }

    /// Takes a place for a process that has run all the time.
    pub(super) fn take_back(self: &Arc<Self>, principal: Option<&Arc<str>>) -> Place {
        self.place(&mut self.state.lock(), principal.cloned())
    }

    /// Whether there are more places than are taken.
    pub(super) fn have_room(&self) -> bool {
        let state = self.state.lock();
        state.limits.is_some_and(|limits| state.total < limits.total)
    }

    /// Whether none is left, where sessions share none.
    pub(super) fn are_taken_by_sessions(&self) -> bool {
        let state = self.state.lock();
        let alone = state.limits.filter(|limits| limits.isolation == Isolation::Session);
        alone.is_some_and(|limits| state.total >= limits.total)
    }

    /// Whether somebody waits who is this principal.
    pub(super) fn is_waited_for_by(&self, principal: &Arc<str>) -> bool {
        self.state.lock().waiting.has(principal)
    }

    /// How many wait who would get a place if one were given back.
    pub(super) fn wanted(&self) -> Wanted {
        let state = self.state.lock();
        let mut wanted = Wanted::default();
        let Some(limits) = state.limits.filter(|limits| state.total <= limits.total) else { return wanted };
        for (who, count) in state.waiting.counts() {
            if !may_have_more(&state.by_principal, limits, who) {
                wanted.own.insert(who.clone(), count);
            } else if state.total == limits.total {
                wanted.any += count;
            }
        }
        wanted
    }

    /// How many wait.
    pub(super) fn queued(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// How many each principal has.
    pub(super) fn taken(&self) -> Tally<Arc<str>> {
        self.state.lock().by_principal.clone()
    }

    /// Waits until one is given back.
    pub(super) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Whether this principal may have one more, if there is one.
    pub(super) fn allow(&self, principal: Option<&Arc<str>>) -> bool {
        !matches!(
            self.state.lock().refusal(principal),
            Some(Failure::FullForPrincipal { .. } | Failure::Unlimited)
        )
    }

    /// From now on these are in force.
    pub(super) fn limit(self: &Arc<Self>, limits: Option<Processes>) {
        self.state.lock().limits = limits;
        self.grant();
    }

    /// What is in force now for who came under these.
    pub(super) fn in_force(&self, then: Processes) -> Processes {
        self.state.lock().limits.map_or(then, |now| Processes { isolation: then.isolation, ..now })
    }

    fn place(self: &Arc<Self>, state: &mut State, principal: Option<Arc<str>>) -> Place {
        state.total += 1;
        state.count(principal.as_ref());
        Place { places: self.clone(), principal }
    }

    /// Gives what is free to those who wait.
    fn grant(self: &Arc<Self>) {
        loop {
            let (waits, place) = {
                let mut state = self.state.lock();
                let Some(limits) = state.limits.filter(|limits| state.total < limits.total) else { return };
                let State { waiting, by_principal, .. } = &mut *state;
                let next = waiting.next(|who| may_have_more(by_principal, limits, who));
                let Some((who, waits)) = next else { return };
                let principal = Some(who).filter(|who| !who.is_empty());
                (waits, self.place(&mut state, principal))
            };
            // Not while the state is locked: the place of one who has gone comes back.
            let _ = waits.send(place);
        }
    }
}

/// Whether a principal may have one more, if there is one.
fn may_have_more(by_principal: &Tally<Arc<str>>, limits: Processes, who: &str) -> bool {
    by_principal.of(who) < limits.per_principal as usize
}

impl State {
    /// Why there is no place for this principal.
    fn refusal(&self, principal: Option<&Arc<str>>) -> Option<Failure> {
        // Never so in a configuration that was loaded.
        let Some(Processes { total, per_principal, .. }) = self.limits else {
            return Some(Failure::Unlimited);
        };
        // What the caller can do something about comes first.
        if principal.is_some_and(|principal| self.by_principal.of(principal) >= per_principal as usize) {
            return Some(Failure::FullForPrincipal { limit: per_principal, again: None });
        }
        (self.total >= total).then_some(Failure::Full { limit: total, again: None })
    }

    /// The same, for who has not waited.
    fn refusal_now(&self, principal: Option<&Arc<str>>) -> Option<Failure> {
        self.refusal(principal).or_else(|| {
            // What is free is on its way to somebody who came earlier. Those who may not have it hold nobody up.
            let limit = self.limits.map_or(0, |limits| limits.total);
            (!self.is_anybodys()).then_some(Failure::Full { limit, again: None })
        })
    }

    /// Whether nobody waits who may have what is free.
    fn is_anybodys(&self) -> bool {
        let Some(limits) = self.limits else { return true };
        !self.waiting.has_any(|who| may_have_more(&self.by_principal, limits, who))
    }

    fn count(&mut self, principal: Option<&Arc<str>>) {
        if let Some(principal) = principal {
            self.by_principal.more(principal.clone(), 1);
        }
    }
}

impl Place {
    /// Makes nobody's place this principal's, if it may have one more.
    pub(super) fn assign(&mut self, principal: Option<&Arc<str>>) -> bool {
        let mut state = self.places.state.lock();
        let refused = matches!(state.refusal(principal), Some(Failure::FullForPrincipal { .. }));
        if !refused && self.principal.is_none() {
            state.count(principal);
            self.principal = principal.cloned();
        }
        !refused
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        {
            let mut state = self.places.state.lock();
            state.total -= 1;
            if let Some(principal) = &self.principal {
                state.by_principal.less(principal, 1);
            }
        }
        self.places.grant();
        self.places.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processes(total: u32, per_principal: u32) -> Option<Processes> {
        Some(Processes {
            isolation: Isolation::Session,
            total,
            per_principal,
            warm: 0,
            queue_ms: 0,
            idle_ms: 60_000,
            max_age_ms: None,
        })
    }

    fn name(principal: &str) -> Option<Arc<str>> {
        (!principal.is_empty()).then(|| principal.into())
    }

    fn take(places: &Arc<Places>, principal: &str) -> Result<Place, Failure> {
        let principal = name(principal);
        let mut taking = std::pin::pin!(places.take(principal.as_ref(), Duration::ZERO));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match taking.as_mut().poll(&mut context) {
            std::task::Poll::Ready(taken) => taken,
            std::task::Poll::Pending => panic!("nobody waits without patience"),
        }
    }

    #[test]
    fn places_are_counted_for_all_and_for_each() {
        let places = Arc::<Places>::default();
        assert!(matches!(take(&places, "a"), Err(Failure::Unlimited)));
        places.limit(processes(3, 2));
        let a = take(&places, "a").unwrap();
        let _a = take(&places, "a").unwrap();
        assert!(matches!(take(&places, "a"), Err(Failure::FullForPrincipal { limit: 2, .. })));
        let _b = take(&places, "b").unwrap();
        assert!(matches!(take(&places, "c"), Err(Failure::Full { limit: 3, .. })));
        assert!(places.take_ahead().is_none());
        // The configuration that is in force counts, and not the one from before.
        places.limit(processes(4, 2));
        let mut ahead = places.take_ahead().unwrap();
        assert!(matches!(take(&places, ""), Err(Failure::Full { limit: 4, .. })));
        assert!(ahead.assign(name("c").as_ref()));
        drop(a);
        let _c = take(&places, "c").unwrap();
        assert!(matches!(take(&places, "c"), Err(Failure::FullForPrincipal { limit: 2, .. })));
    }

    #[test]
    fn who_may_have_all_of_them_is_not_told_of_a_part() {
        let places = Arc::<Places>::default();
        for (total, part) in [(1, false), (2, true)] {
            places.limit(processes(total, 1));
            let _a = take(&places, "a").unwrap();
            let told = places.told(take(&places, "a").err().unwrap());
            assert_eq!(matches!(told, Failure::FullForPrincipal { limit: 1, .. }), part, "{told}");
            assert_eq!(matches!(told, Failure::Full { limit: 1, .. }), !part, "{told}");
        }
    }

    #[test]
    fn nothing_is_left_of_those_who_left() {
        let places = Arc::<Places>::default();
        places.limit(processes(1, 1));
        drop(take(&places, "a").unwrap());
        let taken = places.state.lock();
        assert_eq!((taken.total, taken.by_principal.len()), (0, 0));
    }

    #[tokio::test]
    async fn whoever_waits_gets_what_is_free_in_turn() {
        let places = Arc::<Places>::default();
        places.limit(processes(2, 1));
        let mut taken = vec![take(&places, "a").unwrap(), take(&places, "b").unwrap()];
        let wait = |who: &'static str, milliseconds| {
            let places = places.clone();
            let patience = Duration::from_millis(milliseconds);
            tokio::spawn(async move { places.take(name(who).as_ref(), patience).await })
        };
        // The first has its part already and holds up nobody.
        let waiting = [wait("a", 300), wait("c", 60_000), wait("c", 60_000), wait("d", 60_000)];
        tokio::task::yield_now().await;
        assert!(places.take_ahead().is_none());
        taken.pop();
        let [a, c, again, d] = waiting;
        let c = c.await.unwrap().unwrap();
        assert!(!a.is_finished() && !again.is_finished() && !d.is_finished());
        // One more for each, by a change of the configuration.
        places.limit(processes(3, 1));
        let d = d.await.unwrap().unwrap();
        drop(c);
        let again = again.await.unwrap().unwrap();
        assert!(matches!(a.await.unwrap(), Err(Failure::FullForPrincipal { limit: 1, .. })), "in vain");
        drop((again, d, taken));
        assert_eq!(places.state.lock().total, 0);
    }

    /// What comes free is given to who waits a moment later, and nobody comes in between.
    #[tokio::test]
    async fn whoever_comes_does_not_pass_those_who_wait() {
        let places = Arc::<Places>::default();
        places.limit(processes(1, 1));
        let _a = take(&places, "a").unwrap();
        let b = tokio::spawn({
            let places = places.clone();
            async move { places.take(name("b").as_ref(), Duration::from_secs(60)).await }
        });
        tokio::task::yield_now().await;
        places.state.lock().limits = processes(2, 1);
        assert!(matches!(take(&places, "c"), Err(Failure::Full { limit: 2, .. })));
        places.grant();
        assert!(b.await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn who_has_enough_holds_up_nothing_that_is_for_all() {
        let places = Arc::<Places>::default();
        places.limit(processes(2, 1));
        let taken = take(&places, "a").unwrap();
        let again = tokio::spawn({
            let places = places.clone();
            async move { places.take(name("a").as_ref(), Duration::from_secs(60)).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(places.queued(), 1);
        let ahead = places.take_ahead().unwrap();
        assert!(places.take_ahead().is_none(), "all are taken");
        drop((taken, ahead));
        assert!(again.await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn a_place_for_somebody_who_has_gone_is_anothers() {
        let places = Arc::<Places>::default();
        places.limit(processes(1, 1));
        let taken = take(&places, "a").unwrap();
        let wait = |who: &'static str| {
            let places = places.clone();
            tokio::spawn(async move { places.take(name(who).as_ref(), Duration::from_secs(10)).await })
        };
        let (gone, stays) = (wait("b"), wait("c"));
        tokio::task::yield_now().await;
        gone.abort();
        assert!(gone.await.is_err());
        drop(taken);
        assert!(stays.await.unwrap().is_ok());
    }
}
