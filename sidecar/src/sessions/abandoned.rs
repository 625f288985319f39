//! Sessions whose clients have gone without a word. Where each session has a process of its own and there is no place for
//! one more, one of them ends for whoever asks. One that is in use never does.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use longshore_sessions::{Replica, SessionKey};

use super::errands::Errand;
use super::{Session, Sessions};
use crate::counts_by_owner::Tally;
use crate::metrics::SessionEnd;

/// After how long without a word a client counts as gone, whatever it did before. People who work with a server think for
/// less between two calls, mostly, and programs for much less; who comes back later begins another session, which costs
/// less than to be turned away. It is what `resume.ttl` is by default, for which a client is waited for that has lost its
/// connection.
const SILENT: Duration = Duration::from_secs(300);

/// A process that is needed and has no place, for which a session may end.
pub(crate) struct Lacking<'a> {
    /// Whose process it would be; nobody's, where it is for all.
    pub(crate) principal: Option<&'a str>,
    /// The principal's own part of the places is full: only the end of a session of its own helps.
    pub(crate) own: bool,
    /// How many places each has.
    pub(crate) taken: Tally<Arc<str>>,
}

/// Whether a session makes room for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room<K> {
    /// This one does.
    Now(K),
    /// One does in so long, if its client does not come back.
    In(Duration),
    /// All that could are in use.
    None,
}

/// How the client of a session stands to it.
#[derive(Debug)]
pub(super) struct Standing {
    /// In how long nothing is left that it may come back to. None: a call is under way, or a stream is open.
    pub(super) free_in: Option<Duration>,
    /// For how long it has said nothing.
    pub(super) silent: Duration,
    /// It has listened and does not any more, or never said that it knows of the session.
    pub(super) left: bool,
}

/// What holds for all sessions.
#[derive(Clone, Copy)]
struct Terms {
    /// For how long a client is waited for that has lost its connection.
    ttl: Duration,
    /// For how long one that is there may say nothing.
    idle: Duration,
}

impl Standing {
    /// In how long the session may end for another one. None: nobody knows.
    fn goes_in(&self, terms: Terms) -> Option<Duration> {
        let patience = if self.left { terms.ttl.min(SILENT) } else { SILENT };
        let silent = patience.min(terms.idle).saturating_sub(self.silent);
        self.free_in.map(|free| free.max(silent))
    }
}

/// Which of these sessions ends to make room: one of the principal with most places, and never of one with fewer than the
/// principal that lacks one; among those the one whose client has been silent for longest.
fn choose<'a, K: Copy>(
    lacking: &Lacking<'_>,
    terms: Terms,
    sessions: impl Iterator<Item = (K, &'a str, Standing)>,
) -> Room<K> {
    let has = |who: &str| lacking.taken.of(who);
    let least = lacking.principal.map_or(0, has);
    let (mut most, mut soonest) = (None, None);
    for (key, principal, standing) in sessions {
        let is_of_use =
            if lacking.own { lacking.principal == Some(principal) } else { has(principal) >= least };
        let Some(after) = standing.goes_in(terms).filter(|_| is_of_use) else { continue };
        let rank = (has(principal), standing.silent);
        if !after.is_zero() {
            soonest = Some(soonest.map_or(after, |soonest: Duration| soonest.min(after)));
        } else if most.is_none_or(|(before, _)| before < rank) {
            most = Some((rank, key));
        }
    }
    match (most, soonest) {
        (Some((_, key)), _) => Room::Now(key),
        (None, Some(after)) => Room::In(after),
        (None, None) => Room::None,
    }
}

impl Sessions {
    /// Whether a session makes room for who lacks a place. `has_place` says which have one, by what the server calls them.
    pub(crate) fn room_for(
        &self,
        lacking: &Lacking<'_>,
        has_place: impl Fn(&HeaderValue) -> bool,
    ) -> Room<SessionKey> {
        self.room_among(&self.lock(), lacking, has_place)
    }

    /// Ends a session for who lacks a place, if one may end. Gives what the server calls it, which is yet to be told, and
    /// whose it was.
    pub(crate) fn end_for(
        &self,
        lacking: &Lacking<'_>,
        has_place: impl Fn(&HeaderValue) -> bool,
    ) -> Option<(HeaderValue, Arc<str>)> {
        let (session, tombstone) = {
            let mut replica = self.lock();
            // Nobody begins to use it in between.
            let Room::Now(key) = self.room_among(&replica, lacking, has_place) else { return None };
            let tombstone = Self::tombstone(&replica.held(&key)?.capsule);
            (replica.end(tombstone)?, tombstone)
        };
        self.keep_endings(&[tombstone]);
        self.metrics.session_ended(SessionEnd::Abandoned);
        session.streams.close();
        // Who does not hear it now finds out that it knows less.
        self.send(Errand::Tell(tombstone));
        tracing::debug!("a session whose client has gone has ended for another one");
        Some((session.upstream()?, session.principal().clone()))
    }

    fn room_among(
        &self,
        replica: &Replica<Arc<Session>>,
        lacking: &Lacking<'_>,
        has_place: impl Fn(&HeaderValue) -> bool,
    ) -> Room<SessionKey> {
        let Some(snapshot) = self.snapshot.load_full() else { return Room::None };
        let now = self.now();
        let limits = &snapshot.config.sessions;
        let terms = Terms {
            ttl: Duration::from_millis(limits.resume.ttl_ms),
            idle: Duration::from_millis(limits.idle_timeout_ms),
        };
        let with_place = |session: &Session| session.upstream().is_some_and(|id| has_place(&id));
        let sessions = replica.all_held().filter(|(_, session)| with_place(session));
        let sessions = sessions.map(|(key, session)| (*key, &**session.principal(), session.standing(now)));
        choose(lacking, terms, sessions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: u64 = 60;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn terms(idle: u64) -> Terms {
        Terms { ttl: seconds(TTL), idle: seconds(idle) }
    }

    /// One that nothing holds open.
    fn rests(silent: u64, left: bool) -> Standing {
        Standing { free_in: Some(Duration::ZERO), silent: seconds(silent), left }
    }

    #[test]
    fn a_session_goes_whose_client_has_gone() {
        let silent = SILENT.as_secs();
        let kept =
            |seconds_left, silent| Standing { free_in: Some(seconds(seconds_left)), ..rests(silent, true) };
        for (standing, idle, expected) in [
            (Standing { free_in: None, ..rests(10 * silent, true) }, 1_800, None),
            (rests(silent, false), 1_800, Some(0)),
            (rests(silent - 1, false), 1_800, Some(1)),
            // It listened once, or never said a second word.
            (rests(TTL, true), 1_800, Some(0)),
            (rests(TTL - 1, true), 1_800, Some(1)),
            (rests(TTL, false), 1_800, Some(silent - TTL)),
            // It is promised what is kept, whether or not it has been silent for longer.
            (kept(40, 10 * silent), 1_800, Some(40)),
            (kept(40, 10), 1_800, Some(TTL - 10)),
            // One that ends by itself in a moment.
            (rests(9, false), 10, Some(1)),
            (rests(10, false), 10, Some(0)),
        ] {
            let goes_in = standing.goes_in(terms(idle));
            assert_eq!(goes_in, expected.map(seconds), "{:?} {standing:?}", standing.silent);
        }
        let terms = Terms { ttl: 2 * SILENT, idle: 10 * SILENT };
        assert_eq!(rests(silent, true).goes_in(terms), Some(Duration::ZERO), "longer than anybody is silent");
    }

    #[test]
    fn whose_session_goes() {
        let gone = |silent: u64| rests(1_000 + silent, false);
        let used = || Standing { free_in: None, ..rests(0, false) };
        // Who asks and whether their own part is full, the sessions, and the one that goes; "a" has two places, "b" three, "c" as
        // many, and "d" one.
        for (who, own, sessions, expected) in [
            ("a", true, vec![], Room::None),
            ("a", true, vec![("a", gone(1)), ("a", gone(2))], Room::Now(1)),
            ("a", true, vec![("b", gone(9)), ("a", gone(2))], Room::Now(1)),
            ("a", true, vec![("b", gone(9)), ("a", used())], Room::None),
            ("a", true, vec![("b", rests(299, false)), ("a", rests(290, false))], Room::In(seconds(10))),
            ("a", true, vec![("a", rests(290, false)), ("a", rests(297, false))], Room::In(seconds(3))),
            ("a", true, vec![("a", rests(290, false)), ("a", gone(1))], Room::Now(1)),
            ("a", false, vec![("a", gone(9)), ("b", gone(1)), ("d", gone(9))], Room::Now(1)),
            ("a", false, vec![("b", gone(1)), ("c", gone(2)), ("b", gone(1))], Room::Now(1)),
            ("a", false, vec![("b", used()), ("a", gone(1)), ("d", gone(9))], Room::Now(1)),
            ("a", false, vec![("d", gone(9)), ("b", used())], Room::None),
            ("b", false, vec![("a", gone(9)), ("c", gone(1))], Room::Now(1)),
            ("b", false, vec![("a", gone(9)), ("b", used())], Room::None),
            ("d", false, vec![("d", gone(9)), ("a", gone(1))], Room::Now(1)),
            // Nobody's: it has none.
            ("", false, vec![("d", gone(1))], Room::Now(0)),
        ] {
            let mut taken = Tally::default();
            for (who, count) in [("a", 2), ("b", 3), ("c", 3), ("d", 1)] {
                taken.more(who.into(), count);
            }
            let lacking = Lacking { principal: Some(who).filter(|who| !who.is_empty()), own, taken };
            let case = format!("{who} {own} {sessions:?}");
            let numbered = sessions.into_iter().enumerate();
            let room =
                choose(&lacking, terms(1_800), numbered.map(|(key, (who, standing))| (key, who, standing)));
            assert_eq!(room, expected, "{case}");
        }
    }
}
