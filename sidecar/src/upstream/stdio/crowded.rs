//! Who lacks a place for a process: a session whose client has gone makes room, or it is said when one may.

use std::collections::HashSet;
use std::sync::Arc;

use http::HeaderValue;
use longshore_sessions::SessionKey;
use tokio::time::Duration;

use super::{Failure, Name, Stdio, name_of};
use crate::sessions::{Lacking, Room};

impl Stdio {
    /// Has a process end that nobody uses, for a principal that lacks a place so: one that rests, or else that of a session
    /// whose client has gone. Says whether one ends.
    pub(super) fn make_room(&self, failure: &Failure, principal: Option<&Arc<str>>) -> bool {
        let of = principal.filter(|_| matches!(failure, Failure::FullForPrincipal { .. }));
        // By itself, since the other one needs the lock too.
        let rests = self.open.lock().ask_empty(of);
        rests || self.end_abandoned(failure, principal)
    }

    /// Whether a process ends for somebody who lacks a place and has waited for one. From now on it is theirs to wait for.
    pub(super) fn claims_one(&self, principal: Option<&Arc<str>>) -> bool {
        let claim = || self.open.lock().claim(principal.filter(|_| !self.places.allow(principal)));
        if claim() {
            return true;
        }
        let lacks = self.places.refusal(principal);
        lacks.is_some_and(|failure| self.end_abandoned(&failure, principal)) && claim()
    }

    fn end_abandoned(&self, failure: &Failure, principal: Option<&Arc<str>>) -> bool {
        let places = self.open.lock().places();
        let ended = self.sessions.end_for(&self.lacking(failure, principal), has_one_of(&places));
        let Some((session, whose)) = ended else { return false };
        if let Some(name) = name_of(&session) {
            self.open.lock().end_for_another(name, whose);
        }
        true
    }

    /// Whether there is such a session.
    pub(super) fn has_abandoned(&self, failure: &Failure, principal: Option<&Arc<str>>) -> bool {
        matches!(self.room(failure, principal), Room::Now(_))
    }

    /// What is said to whom no place was given: in how many seconds one may come free, if that is known. It is counted.
    pub(super) fn refused(&self, failure: Failure, principal: Option<&Arc<str>>) -> Failure {
        if !matches!(failure, Failure::Unlimited) {
            self.metrics.process_refused();
        }
        let after = match self.room(&failure, principal) {
            Room::Now(_) => Some(Duration::ZERO),
            Room::In(time) => Some(time),
            Room::None => None,
        };
        // Not sooner: what is asked for again at once waits in vain once more.
        let again = after.map(|time| time.as_secs() + 1);
        match self.places.told(failure) {
            Failure::Full { limit, .. } => Failure::Full { limit, again },
            Failure::FullForPrincipal { limit, .. } => Failure::FullForPrincipal { limit, again },
            failure => failure,
        }
    }

    fn room(&self, failure: &Failure, principal: Option<&Arc<str>>) -> Room<SessionKey> {
        let places = self.open.lock().places();
        self.sessions.room_for(&self.lacking(failure, principal), has_one_of(&places))
    }

    fn lacking<'a>(&self, failure: &Failure, principal: Option<&'a Arc<str>>) -> Lacking<'a> {
        Lacking {
            principal: principal.map(|principal| &**principal),
            own: matches!(failure, Failure::FullForPrincipal { .. }),
            taken: self.places.taken(),
        }
    }
}

/// Whether the session that is called so has one of these places.
fn has_one_of(places: &HashSet<Name>) -> impl Fn(&HeaderValue) -> bool {
    |session| name_of(session).is_some_and(|name| places.contains(&name))
}
