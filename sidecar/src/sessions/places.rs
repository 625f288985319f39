//! How many sessions there may be: in all, and of one principal. The numbers are those of one pod. Who listens without
//! a session holds as much, and is counted by the same numbers, beside them.

use std::sync::Arc;

use longshore_sidecar_config::Sessions as Limits;
use parking_lot::Mutex;

use crate::counts_by_owner::Tally;

/// The places that are taken.
#[derive(Default)]
pub(crate) struct Places(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    total: u32,
    by_principal: Tally<Arc<str>>,
}

/// A place for one session. It is free again when this is dropped.
pub(crate) struct Place {
    principal: Arc<str>,
    places: Arc<Places>,
}

/// There are as many sessions as there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// In all.
    Total,
    /// Of this principal, who may have so many.
    Principal(u32),
}

impl Places {
    /// Takes a place, if there is one.
    pub(crate) fn take(self: &Arc<Self>, principal: &Arc<str>, limits: &Limits) -> Result<Place, Full> {
        self.take_of(principal, limits.total, limits.per_principal)
    }

    /// The same where there are so many, and so many of one principal.
    pub(crate) fn take_of(
        self: &Arc<Self>,
        principal: &Arc<str>,
        total: u32,
        per_principal: u32,
    ) -> Result<Place, Full> {
        let mut taken = self.0.lock();
        if taken.total >= total {
            return Err(Full::Total);
        }
        if taken.by_principal.of(principal) >= per_principal as usize {
            return Err(Full::Principal(per_principal));
        }
        taken.total += 1;
        taken.by_principal.more(principal.clone(), 1);
        drop(taken);
        Ok(Place { principal: principal.clone(), places: self.clone() })
    }

    /// Whether there is none for anybody.
    pub(super) fn are_taken(&self, limits: &Limits) -> bool {
        self.0.lock().total >= limits.total
    }
}

impl Place {
    /// Whose it is.
    pub(crate) fn principal(&self) -> &Arc<str> {
        &self.principal
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock();
        taken.total -= 1;
        taken.by_principal.less(&self.principal, 1);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use longshore_sidecar_config::{OnOwnerLoss, Resume};

    use super::*;

    /// Three, of which two may be one principal's.
    pub(in crate::sessions) fn limits() -> Limits {
        Limits {
            idle_timeout_ms: 0,
            max_age_ms: 0,
            total: 3,
            per_principal: 2,
            streams: 0,
            on_owner_loss: OnOwnerLoss::NotFound,
            resume: Resume { max_bytes: 0, ttl_ms: 0 },
            seal_with: 0,
        }
    }

    #[test]
    fn places_are_bounded_and_given_back() {
        let limits = limits();
        let places = Arc::new(Places::default());
        let take = |name: &str| places.take(&name.into(), &limits);
        let first = take("a").ok();
        let _second = take("a").ok();
        assert_eq!(take("a").err(), Some(Full::Principal(2)));
        let third = take("b").ok();
        assert_eq!(take("c").err(), Some(Full::Total));
        assert!(places.are_taken(&limits));
        drop(third);
        assert!(!places.are_taken(&limits));
        assert!(take("c").is_ok());
        drop(first);
        assert!(take("a").is_ok());
        assert_eq!(places.0.lock().by_principal.len(), 1, "nobody is remembered who has none");
    }
}
