//! How many processes there may be.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use longshore_sidecar_config::Processes;

use super::Failure;

/// The places that are taken. A session keeps its place while it has no process, so that its next call is not refused.
#[derive(Default)]
pub(super) struct Places(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    total: u32,
    by_principal: HashMap<Arc<str>, u32>,
}

/// A place; dropped, it is free again.
pub(super) struct Place {
    places: Arc<Places>,
    principal: Arc<str>,
}

impl Places {
    /// Takes a place for this principal.
    pub(super) fn take(
        self: &Arc<Self>,
        principal: Arc<str>,
        limits: Option<Processes>,
    ) -> Result<Place, Failure> {
        // Never so in a configuration that was loaded.
        let Processes { total, per_principal, .. } = limits.ok_or(Failure::Unlimited)?;
        // Nothing that holds the lock can leave the counts half changed.
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // What the caller can do something about comes first.
        if taken.by_principal.get(&principal).copied().unwrap_or(0) >= per_principal {
            return Err(Failure::FullForPrincipal { limit: per_principal });
        }
        if taken.total >= total {
            return Err(Failure::Full { limit: total });
        }
        taken.total += 1;
        *taken.by_principal.entry(principal.clone()).or_default() += 1;
        Ok(Place { places: self.clone(), principal })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.total -= 1;
        if let Some(count) = taken.by_principal.get_mut(&self.principal) {
            *count -= 1;
            if *count == 0 {
                taken.by_principal.remove(&self.principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use longshore_sidecar_config::Isolation;

    use super::*;

    fn processes(total: u32, per_principal: u32) -> Processes {
        Processes {
            isolation: Isolation::Session,
            total,
            per_principal,
            warm: 0,
            queue_ms: 0,
            idle_ms: 60_000,
            max_age_ms: None,
        }
    }

    #[test]
    fn places_are_counted_for_all_and_for_each() {
        let places = Arc::<Places>::default();
        let limits = |total, per_principal| Some(processes(total, per_principal));
        let a = places.take("a".into(), limits(3, 2)).unwrap();
        let _a = places.take("a".into(), limits(3, 2)).unwrap();
        assert!(matches!(places.take("a".into(), limits(3, 2)), Err(Failure::FullForPrincipal { limit: 2 })));
        let _b = places.take("b".into(), limits(3, 2)).unwrap();
        assert!(matches!(places.take("c".into(), limits(3, 2)), Err(Failure::Full { limit: 3 })));
        // The configuration that is in force counts, and not the one from before.
        let _c = places.take("c".into(), limits(4, 2)).unwrap();
        drop(a);
        assert!(matches!(places.take("b".into(), limits(3, 2)), Err(Failure::Full { limit: 3 })));
        let _b = places.take("b".into(), limits(4, 2)).unwrap();
        assert!(matches!(places.take("d".into(), None), Err(Failure::Unlimited)));
    }

    #[test]
    fn nothing_is_left_of_those_who_left() {
        let places = Arc::<Places>::default();
        drop(places.take("a".into(), Some(processes(1, 1))).unwrap());
        let taken = places.0.lock().unwrap();
        assert_eq!((taken.total, taken.by_principal.len()), (0, 0));
    }
}
