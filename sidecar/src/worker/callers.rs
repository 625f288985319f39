//! Whose connections are busy. Nobody's keep out all others: of one caller no more are than a part of all places, and whoever
//! asks for more is told so.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Those who have connections, whichever threads carry them. There are so many places in all.
pub(crate) struct Callers {
    places: usize,
    known: Mutex<HashMap<Arc<str>, Weak<Caller>>>,
}

/// One of them. A connection keeps its caller, so that nobody is looked up for each request.
pub(super) struct Caller {
    principal: Arc<str>,
    /// How many of its connections are busy.
    busy: AtomicUsize,
    callers: Arc<Callers>,
}

impl Callers {
    pub(crate) fn new(places: usize) -> Arc<Self> {
        Arc::new(Self { places, known: Mutex::default() })
    }

    /// The caller of this name.
    pub(super) fn of(self: &Arc<Self>, principal: &Arc<str>) -> Arc<Caller> {
        let mut known = self.known.lock();
        if let Some(caller) = known.get(principal).and_then(Weak::upgrade) {
            return caller;
        }
        let (principal, busy, callers) = (principal.clone(), AtomicUsize::default(), self.clone());
        let caller = Arc::new(Caller { principal, busy, callers });
        known.insert(caller.principal.clone(), Arc::downgrade(&caller));
        caller
    }
}

impl Caller {
    /// Whether it has this name.
    pub(super) fn is(&self, principal: &Arc<str>) -> bool {
        Arc::ptr_eq(&self.principal, principal) || self.principal == *principal
    }

    /// One more of its connections is busy.
    pub(super) fn begins(&self) {
        self.busy.fetch_add(1, Ordering::Relaxed);
    }

    /// One fewer is.
    pub(super) fn ends(&self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many may be, if more are. What `makes_room` may have some more: otherwise nobody could take back what keeps the
    /// others busy.
    pub(super) fn exceeds(&self, makes_room: bool) -> Option<usize> {
        let places = self.callers.places;
        let part = places.div_ceil(2);
        let most = if makes_room { part + places / 8 } else { part };
        (self.busy.load(Ordering::Relaxed) > most).then_some(part)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let mut known = self.callers.known.lock();
        // Another thread may have made it anew.
        if known.get(&self.principal).is_some_and(|caller| caller.strong_count() == 0) {
            known.remove(&self.principal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_places_are_left_to_others() {
        let callers = Callers::new(16);
        let (one, other) = (callers.of(&"a".into()), callers.of(&"b".into()));
        assert!(Arc::ptr_eq(&one, &callers.of(&"a".into())) && one.is(&"a".into()) && !other.is(&"a".into()));
        for (busy, exceeds, makes_room) in [(8, None, None), (9, Some(8), None), (11, Some(8), Some(8))] {
            while one.busy.load(Ordering::Relaxed) < busy {
                one.begins();
            }
            assert_eq!((one.exceeds(false), one.exceeds(true)), (exceeds, makes_room), "{busy}");
        }
        assert_eq!(other.exceeds(false), None);
        (0..3).for_each(|_| one.ends());
        assert_eq!(one.exceeds(false), None);
        drop((one, other));
        assert!(callers.known.lock().is_empty(), "nobody is remembered who has no connection");
        for (places, part) in [(1, 1), (2, 1), (3, 2), (4096, 2048)] {
            let caller = Callers::new(places).of(&"a".into());
            (0..=part).for_each(|_| caller.begins());
            assert_eq!(caller.exceeds(false), Some(part), "{places}");
        }
    }
}
