//! How often, and for how long, looking after a server has failed.

use std::time::Duration;

use tokio::time::Instant;

use crate::api::ApiError;

/// The first delay after a failure.
const FIRST_DELAY: Duration = Duration::from_millis(200);
/// The first delay after what the API server refuses.
const FIRST_REFUSED: Duration = Duration::from_secs(1);
/// The longest delay, after either.
const LAST_DELAY: Duration = Duration::from_secs(60);
/// A failure of the API server's that has gone on for so long is no passing one. Tries do not count: each change makes
/// another one at once.
const LASTING: Duration = Duration::from_secs(12);

/// What has failed lately.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// Tries in a row that failed.
    in_a_row: u32,
    /// Tries in a row that were refused. Somebody else has to do something then, so they are further apart than those of what
    /// fails.
    refused: u32,
    /// Since when the API server has answered that it cannot do what it is asked.
    since: Option<Instant>,
    /// Since when it has not been heard at all.
    silent: Option<Instant>,
    /// Since when it has answered, but not to a write.
    unanswered: Option<Instant>,
}

/// The worst that one try met of what may pass by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Passing {
    /// Nothing: it was done, or refused.
    #[default]
    Nothing,
    /// No answer, or somebody else was faster. That tells nothing of what the API server would have said.
    Silence,
    /// It answers, but not to a write.
    Unanswered,
    /// The API server has read the request, and could not do it.
    Failure,
}

// === impl Passing ===

impl Passing {
    /// What an error is.
    pub(crate) fn of(error: &ApiError) -> Self {
        match error {
            ApiError::Refused(_) => Self::Nothing,
            error if error.failure().is_some() => Self::Failure,
            ApiError::Conflict(_) | ApiError::Unavailable(_) | ApiError::TimedOut => Self::Silence,
        }
    }
}

// === impl Failures ===

impl Failures {
    /// Takes note of the worst that a try met.
    pub(crate) fn met(&mut self, passing: Passing, now: Instant) {
        match passing {
            Passing::Nothing => (self.since, self.silent, self.unanswered) = (None, None, None),
            Passing::Silence => {
                self.silent.get_or_insert(now);
            }
            Passing::Unanswered => {
                self.silent.get_or_insert(now);
                self.unanswered.get_or_insert(now);
            }
            Passing::Failure => {
                // What it could not do before a long silence may be another matter.
                if self.silent.take().is_some_and(|silent| now.saturating_duration_since(silent) >= LASTING) {
                    self.since = None;
                }
                self.since.get_or_insert(now);
            }
        }
    }

    /// Whether what the API server cannot do now is no passing failure: it could not do it for long.
    pub(crate) fn are_lasting(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now.saturating_duration_since(since) >= LASTING)
    }

    /// Whether a write that is not answered now was not for long.
    pub(crate) fn unanswered(&self, now: Instant) -> bool {
        self.unanswered.is_some_and(|since| now.saturating_duration_since(since) >= LASTING)
    }

    /// Whether the try before this one failed too.
    pub(crate) fn has_failed(&self) -> bool {
        self.in_a_row > 0
    }

    /// Counts a failure, and says how long to wait after it. That doubles with each in a row, with some chance, so that
    /// many that failed together do not come back together.
    pub(crate) fn delay(&mut self) -> Duration {
        delay(FIRST_DELAY, &mut self.in_a_row)
    }

    /// The same of something that was refused. Failures in between do not count.
    pub(crate) fn refused(&mut self) -> Duration {
        delay(FIRST_REFUSED, &mut self.refused)
    }

    /// Nothing fails any more, though something may still be refused when it is tried again.
    pub(crate) fn end(&mut self, still_refused: bool) {
        *self = Self { refused: if still_refused { self.refused } else { 0 }, ..Self::default() };
    }
}

fn delay(first: Duration, in_a_row: &mut u32) -> Duration {
    let delay = first.saturating_mul(1_u32 << (*in_a_row).min(10)).min(LAST_DELAY);
    *in_a_row = in_a_row.saturating_add(1);
    longshore_sidecar_client::jittered(delay)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_in_a_row_is_waited_for_longer_and_none_for_ever() {
        let mut failures = Failures::default();
        let waits = |failures: &mut Failures, expected: u64| {
            let (shortest, longest) = (expected * 3 / 4, expected * 5 / 4);
            let delay = failures.delay().as_millis();
            assert!((shortest.into()..=longest.into()).contains(&delay), "{delay} for {expected}");
        };
        for expected in [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 60_000, 60_000] {
            waits(&mut failures, expected);
        }
        failures.in_a_row = u32::MAX;
        waits(&mut failures, 60_000);
        failures.end(false);
        waits(&mut failures, 200);
    }

    #[test]
    fn what_fails_does_not_wait_for_as_long_as_what_is_refused() {
        let mut failures = Failures::default();
        let longest = |first: Duration| first * 5 / 4;
        for _ in 0..10 {
            failures.refused();
            failures.end(true);
        }
        assert!(failures.delay() <= longest(FIRST_DELAY));
        assert!(failures.refused() > longest(FIRST_REFUSED), "it is refused as before");
        failures.end(false);
        assert!(failures.refused() <= longest(FIRST_REFUSED));
    }

    #[test]
    fn a_write_that_is_not_answered_is_no_passing_matter_when_it_was_not_for_long() {
        use Passing::{Failure, Nothing, Silence, Unanswered};
        let begun = Instant::now();
        for (what, tries, expected) in [
            ("nothing was heard at all", &[(0, Silence)][..], false),
            ("it was not answered lately", &[(1_000, Unanswered)], false),
            ("for a dozen seconds", &[(0, Unanswered)], true),
            ("each change makes another try", &[(0, Unanswered), (8_000, Unanswered)], true),
            ("nothing was heard in between", &[(0, Unanswered), (6_000, Silence)], true),
            ("something else failed in between", &[(0, Unanswered), (6_000, Failure)], true),
            ("it was well in between", &[(0, Unanswered), (6_000, Nothing), (7_000, Unanswered)], false),
        ] {
            let mut failures = Failures::default();
            for (millis, passing) in tries {
                failures.met(*passing, begun + Duration::from_millis(*millis));
            }
            assert_eq!(failures.unanswered(begun + LASTING), expected, "{what}");
        }
    }

    #[test]
    fn what_fails_is_no_passing_failure_when_it_has_failed_for_long() {
        use Passing::{Failure, Nothing, Silence};
        let begun = Instant::now();
        for (what, tries, expected) in [
            ("nothing fails", &[][..], false),
            ("it fails for the first time", &[(0, Failure)], false),
            ("for a dozen seconds", &[(0, Failure)], true),
            ("each change makes another try", &[(8_000, Failure); 50], false),
            ("nothing was heard in between", &[(0, Failure), (6_000, Silence)], true),
            ("nothing was heard before", &[(0, Silence), (11_000, Failure)], false),
            ("nothing was heard for long", &[(0, Failure), (100, Silence), (12_200, Failure)], false),
            ("it was well in between", &[(0, Failure), (6_000, Nothing), (7_000, Failure)], false),
            // As while somebody else has a name that the server needs.
            (
                "something was refused all the time",
                &[(0, Nothing), (6_000, Nothing), (11_900, Failure)],
                false,
            ),
        ] {
            let mut failures = Failures::default();
            for (millis, passing) in tries {
                // The delay is another matter.
                failures.delay();
                failures.met(*passing, begun + Duration::from_millis(*millis));
            }
            let now = match what {
                _ if what.contains("first") => begun,
                _ if what.contains("for long") => begun + LASTING + Duration::from_secs(1),
                _ => begun + LASTING,
            };
            assert_eq!(failures.are_lasting(now), expected, "{what}");
        }
    }
}
