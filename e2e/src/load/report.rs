//! What has happened.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::Seen;

/// How many failures a lane remembers in full, and how many wrong answers. More are only counted.
const MAX_REMEMBERED: usize = 2_000;

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A JSON-RPC error with this code.
    Rpc(i64),
    /// This status, without a JSON-RPC error.
    Status(u16),
    /// The connection broke after the request was sent.
    Broken,
    /// No connection could be made for all the time that a call may take.
    Unreachable,
    /// No answer came in the time that a call may take.
    TimedOut,
    /// An answer that is none.
    Nonsense,
}

/// A call that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// When the call was made, since the load began.
    pub began: Duration,
    /// When it failed.
    pub at: Duration,
    /// In which session.
    pub session: usize,
    /// Which process had answered in it before.
    pub instance: Option<std::sync::Arc<str>>,
    /// What went wrong.
    pub kind: Kind,
    /// What was said about it.
    pub message: String,
}

/// What one lane has seen.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) answered: u64,
    pub(super) failed: u64,
    pub(super) failures: Vec<Failure>,
    pub(super) wrong: u64,
    pub(super) wrong_answers: Vec<String>,
    pub(super) lost: u64,
    pub(super) opened: u64,
    pub(super) connections: u64,
    pub(super) refused: u64,
    pub(super) unsent: u64,
    pub(super) longest_gap: Duration,
    /// In microseconds.
    pub(super) latencies: Vec<u32>,
}

/// What all lanes have seen.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Calls that got their answer.
    pub answered: u64,
    /// Calls that got none, or an error. Those in a session that is gone are not among them.
    pub failed: u64,
    /// Of those, the first.
    pub failures: Vec<Failure>,
    /// Answers that were somebody else's.
    pub wrong: u64,
    /// Of those, the first.
    pub wrong_answers: Vec<String>,
    /// Sessions that were gone.
    pub lost: u64,
    /// Sessions that were opened.
    pub opened: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Connections that could not be made at once. The call waited, and nothing of it had been sent.
    pub refused: u64,
    /// Requests that another connection was made for, because the first was closed before anything was sent.
    pub unsent: u64,
    /// The longest time that a lane was without an answer.
    pub longest_gap: Duration,
    /// How long it all took.
    pub took: Duration,
    /// What was seen of each session.
    pub sessions: Vec<Seen>,
    latencies: Vec<u32>,
}

/// A report in one line.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a>(&'a Report);

// === impl Tally ===

impl Tally {
    pub(super) fn fails(&mut self, failure: Failure) {
        self.failed += 1;
        if self.failures.len() < MAX_REMEMBERED {
            self.failures.push(failure);
        }
    }

    pub(super) fn note_wrong(&mut self, what: String) {
        self.wrong += 1;
        if self.wrong_answers.len() < MAX_REMEMBERED {
            self.wrong_answers.push(what);
        }
    }

    pub(super) fn answered_in(&mut self, time: Duration) {
        self.answered += 1;
        self.latencies.push(u32::try_from(time.as_micros()).unwrap_or(u32::MAX));
    }
}

// === impl Report ===

impl Report {
    pub(super) fn add(&mut self, lane: Tally) {
        self.answered += lane.answered;
        self.failed += lane.failed;
        self.failures.extend(lane.failures);
        self.wrong += lane.wrong;
        self.wrong_answers.extend(lane.wrong_answers);
        self.lost += lane.lost;
        self.opened += lane.opened;
        self.connections += lane.connections;
        self.refused += lane.refused;
        self.unsent += lane.unsent;
        self.longest_gap = self.longest_gap.max(lane.longest_gap);
        self.latencies.extend(lane.latencies);
    }

    pub(super) fn finish(&mut self, took: Duration, sessions: Vec<Seen>) {
        self.latencies.sort_unstable();
        self.failures.sort_by_key(|failure| failure.at);
        self.took = took;
        self.sessions = sessions;
    }

    /// The time within which this part of the answers came (0.99: all but the slowest hundredth).
    #[must_use]
    pub fn latency(&self, part: f64) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "an index into what is in memory"
        )]
        let index = (last as f64 * part) as usize;
        Duration::from_micros(self.latencies.get(index).copied().unwrap_or_default().into())
    }

    /// How many calls failed in which way, of those that are remembered.
    #[must_use]
    pub fn kinds(&self) -> BTreeMap<Kind, usize> {
        let mut kinds = BTreeMap::new();
        for failure in &self.failures {
            *kinds.entry(failure.kind).or_default() += 1;
        }
        kinds
    }

    /// Whether every call was answered, in the session that it was made in, which was never gone.
    #[must_use]
    pub fn nothing_lost(&self) -> bool {
        (self.failed, self.wrong, self.lost) == (0, 0, 0)
    }

    /// All of it in one line.
    #[must_use]
    pub fn summary(&self) -> Summary<'_> {
        Summary(self)
    }
}

// === impl Summary ===

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(report) = self;
        #[expect(clippy::cast_precision_loss, reason = "for people to read")]
        let rate = report.answered as f64 / report.took.as_secs_f64().max(0.001);
        write!(
            f,
            "{} calls answered ({rate:.0}/s), {} failed, {} sessions lost of {}, {} wrong answers; \
             p50 {:.1} ms, p99 {:.1} ms, longest gap {:.2} s; {} connections",
            report.answered,
            report.failed,
            report.lost,
            report.sessions.len(),
            report.wrong,
            report.latency(0.5).as_secs_f64() * 1e3,
            report.latency(0.99).as_secs_f64() * 1e3,
            report.longest_gap.as_secs_f64(),
            report.connections,
        )?;
        if (report.refused, report.unsent) != (0, 0) {
            write!(f, " ({} refused at first, {} closed before use)", report.refused, report.unsent)?;
        }
        for (kind, count) in report.kinds() {
            write!(f, ", {count}x {kind:?}")?;
        }
        Ok(())
    }
}
