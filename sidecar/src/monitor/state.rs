//! How the connection to the server is, as a pure function of what happened.

use longshore_sidecar_config::inventory::{Connection, ConnectionReason, ConnectionState};
use tokio::time::{Duration, Instant};

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) reason: ConnectionReason,
    /// For people.
    pub(super) message: String,
    /// The server is there, and has no time.
    pub(super) is_busy: bool,
}

impl Problem {
    pub(super) fn new(reason: ConnectionReason, message: String) -> Self {
        Self { reason, message, is_busy: false }
    }

    /// A process that ended, and nothing is known but that.
    pub(super) fn died_soon() -> Self {
        let message = "the server's process ended soon after its handshake".to_owned();
        Self::new(ConnectionReason::ConnectionLost, message)
    }

    /// Whether nobody is there, if it happens in a handshake.
    pub(super) fn is_absence(&self) -> bool {
        matches!(
            self.reason,
            ConnectionReason::ConnectionRefused
                | ConnectionReason::ShimUnavailable
                | ConnectionReason::InitializeTimeout
        )
    }
}

/// The state of the connection.
#[derive(Clone, Debug)]
pub(super) struct Link {
    state: ConnectionState,
    problem: Option<Problem>,
    /// Since when the state and the reason are what they are.
    since: String,
    /// When this started: the process, or the failing after a success.
    trouble_since: Instant,
    attempts: u32,
    ever: bool,
    trust: Trust,
}

/// Whether a server is believed that its answers last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// There is nothing against it; since when it answers, if it does.
    Fresh(Option<Instant>),
    /// It was lost soon after it was greeted, and since when it answers again, if it does.
    Shaken(Option<Instant>),
    /// It has stayed.
    Proven,
}

/// How long a server has to stay after its handshake to be believed for good. No shorter than its Deployment waits before
/// a pod of the version before goes, so that one which goes round in a circle of starting and dying is never believed.
const STAYS: Duration = Duration::from_secs(10);
/// How long after its death it is seen that a server is gone of which nothing but a ping tells.
const SEEN: Duration = Duration::from_secs(6);

/// How often a server is looked for that is not there: at first, after a while, and if looking means to start it or it has
/// no time.
const OFTEN: Duration = Duration::from_millis(50);
const SELDOM: Duration = Duration::from_secs(1);
const HARDLY: Duration = Duration::from_secs(10);

/// How long a server may take to start before it is called failed. Nothing listening is what a start looks like from
/// here; whatever else is wrong is hardly ever right a moment later.
fn grace(reason: ConnectionReason) -> Duration {
    match reason {
        ConnectionReason::ConnectionRefused | ConnectionReason::ShimUnavailable => Duration::from_secs(5),
        ConnectionReason::InitializeRefused | ConnectionReason::NotMcp | ConnectionReason::ListFailed => {
            Duration::from_secs(2)
        }
        // Not there now is not there later: what is in an image does not change.
        ConnectionReason::CommandNotFound
        | ConnectionReason::CommandNotExecutable
        | ConnectionReason::ProcessExited
        // Its time is over already when it is reported.
        | ConnectionReason::InitializeTimeout
        | ConnectionReason::UnsupportedRevision
        | ConnectionReason::ConnectionLost => Duration::ZERO,
    }
}

impl Link {
    pub(super) fn new(now: Instant, date: String) -> Self {
        Self {
            state: ConnectionState::Connecting,
            problem: None,
            since: date,
            trouble_since: now,
            attempts: 0,
            ever: false,
            trust: Trust::Fresh(None),
        }
    }

    /// A handshake succeeded.
    pub(super) fn succeeded(&mut self, now: Instant, date: String) {
        (self.attempts, self.ever, self.trouble_since) = (0, true, now);
        self.trust = match self.trust {
            // Each greeting has to last by itself: one that forgets its sessions may have been started anew.
            Trust::Fresh(_) => Trust::Fresh(Some(now)),
            Trust::Shaken(_) => Trust::Shaken(Some(now)),
            Trust::Proven => Trust::Proven,
        };
        let problem = self.problem.take().filter(|_| !self.is_ready());
        self.set(ConnectionState::Connected, problem, date);
    }

    /// Whether clients should be sent here: from the first handshake on. A server that dies later is an error that they
    /// are told, and no endpoint that vanishes; but one that died soon after it was greeted has to stay first.
    pub(super) fn is_ready(&self) -> bool {
        self.ever && !self.is_shaken()
    }

    /// Whether it died soon after it was greeted, and has not stayed since.
    pub(super) fn is_shaken(&self) -> bool {
        matches!(self.trust, Trust::Shaken(_))
    }

    /// When the server will have stayed, if it answers and has not yet.
    pub(super) fn stays_at(&self) -> Option<Instant> {
        match self.trust {
            Trust::Fresh(since) | Trust::Shaken(since) => Some(since? + STAYS),
            Trust::Proven => None,
        }
    }

    /// That time has come, and it has just answered.
    pub(super) fn stayed(&mut self, date: String) {
        self.trust = Trust::Proven;
        self.set(ConnectionState::Connected, None, date);
    }

    /// A handshake failed, or a connected server does not answer any more.
    pub(super) fn failed(&mut self, problem: Problem, now: Instant, date: String) {
        if self.state == ConnectionState::Connected {
            (self.attempts, self.trouble_since) = (0, now);
            // One that only takes its time is not gone.
            let is_slow =
                matches!(problem.reason, ConnectionReason::InitializeTimeout | ConnectionReason::ListFailed);
            // That one is gone is seen a ping later at most; that one is silent, later than that.
            if self.stays_at().is_some_and(|end| now < end + SEEN) && !is_slow {
                self.trust = Trust::Shaken(None);
            }
        }
        self.attempts = self.attempts.saturating_add(1);
        let problem = match problem.reason {
            // Once it has answered, not being there is another thing than not being there yet.
            ConnectionReason::ConnectionRefused
            | ConnectionReason::ShimUnavailable
            | ConnectionReason::InitializeTimeout
                if self.ever =>
            {
                Problem { reason: ConnectionReason::ConnectionLost, ..problem }
            }
            _ => problem,
        };
        let waited = now.saturating_duration_since(self.trouble_since);
        let failed = self.ever || self.state == ConnectionState::Failed || waited >= grace(problem.reason);
        let state = if failed { ConnectionState::Failed } else { ConnectionState::Connecting };
        self.set(state, Some(problem), date);
    }

    /// When to try again: often while a server is likely to be starting, and then less and less often, so that nobody
    /// waits for the sidecar much longer than for the server. A server that does answer is not pressed, and one that each
    /// try starts anew even less.
    pub(super) fn retry_in(&self, now: Instant, starts_anew: bool) -> Duration {
        let problem = self.problem.as_ref();
        let most = match problem.map(|problem| problem.reason) {
            // Each greeting and what comes of it is some requests more.
            _ if problem.is_some_and(|problem| problem.is_busy) => HARDLY,
            Some(
                ConnectionReason::ConnectionRefused
                | ConnectionReason::ShimUnavailable
                | ConnectionReason::ConnectionLost,
            ) => (now.saturating_duration_since(self.trouble_since) / 20).clamp(OFTEN, SELDOM),
            // To start a process over and over is not free, and what is in an image does not change.
            _ if starts_anew => HARDLY,
            _ => SELDOM,
        };
        Duration::from_millis(10_u64 << self.attempts.saturating_sub(1).min(10)).min(most)
    }

    /// For the inventory.
    pub(super) fn connection(&self) -> Connection {
        Connection {
            state: self.state,
            since: self.since.clone(),
            reason: self.problem.as_ref().map(|problem| problem.reason),
            message: self.problem.as_ref().map(|problem| problem.message.clone()).unwrap_or_default(),
        }
    }

    fn set(&mut self, state: ConnectionState, problem: Option<Problem>, date: String) {
        let reason = |problem: &Option<Problem>| problem.as_ref().map(|problem| problem.reason);
        if self.state != state || reason(&self.problem) != reason(&problem) {
            self.since = date;
        }
        (self.state, self.problem) = (state, problem);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ConnectionReason::{
        CommandNotFound, ConnectionLost, ConnectionRefused, InitializeRefused, InitializeTimeout, ListFailed,
        NotMcp, ProcessExited, ShimUnavailable, UnsupportedRevision,
    };
    use ConnectionState::{Connected, Connecting, Failed};

    fn problem(reason: ConnectionReason) -> Problem {
        Problem::new(reason, "m".to_owned())
    }

    #[test]
    fn a_start_is_not_a_failure() {
        for (events, state, reason) in [
            (vec![(0, Some(ConnectionRefused))], Connecting, Some(ConnectionRefused)),
            (
                vec![(0, Some(ConnectionRefused)), (6, Some(ConnectionRefused))],
                Failed,
                Some(ConnectionRefused),
            ),
            (vec![(0, Some(NotMcp))], Connecting, Some(NotMcp)),
            (vec![(0, Some(ConnectionRefused)), (3, Some(NotMcp))], Failed, Some(NotMcp)),
            (vec![(0, Some(UnsupportedRevision))], Failed, Some(UnsupportedRevision)),
            (vec![(3, Some(InitializeTimeout))], Failed, Some(InitializeTimeout)),
            (vec![(0, Some(ConnectionRefused)), (1, None)], Connected, None),
            (vec![(1, None), (2, Some(ConnectionRefused))], Failed, Some(ConnectionLost)),
            (vec![(1, None), (2, Some(ConnectionRefused)), (3, None)], Connected, Some(ConnectionLost)),
            (vec![(0, Some(ShimUnavailable)), (4, Some(ShimUnavailable))], Connecting, Some(ShimUnavailable)),
            (vec![(5, Some(ShimUnavailable))], Failed, Some(ShimUnavailable)),
            (vec![(1, None), (2, Some(ShimUnavailable))], Failed, Some(ConnectionLost)),
            (vec![(0, Some(ShimUnavailable)), (1, Some(CommandNotFound))], Failed, Some(CommandNotFound)),
            (vec![(0, Some(ProcessExited))], Failed, Some(ProcessExited)),
            // It does not go back from failed to connecting while the reasons change.
            (
                vec![(6, Some(ConnectionRefused)), (6, Some(NotMcp)), (7, Some(ConnectionRefused))],
                Failed,
                Some(ConnectionRefused),
            ),
        ] {
            let start = Instant::now();
            let mut link = Link::new(start, "start".to_owned());
            for (seconds, event) in &events {
                let now = start + Duration::from_secs(*seconds);
                match event {
                    Some(reason) => link.failed(problem(*reason), now, seconds.to_string()),
                    None => link.succeeded(now, seconds.to_string()),
                }
            }
            let connection = link.connection();
            assert_eq!((connection.state, connection.reason), (state, reason), "{events:?}");
            assert_eq!(connection.message.is_empty(), reason.is_none());
        }
    }

    #[test]
    fn one_that_dies_soon_has_to_stay_once() {
        // Seconds, and what happens then: a handshake, a failure, or that the time has come to believe it. What readiness
        // is then, and when the server is believed.
        type Row<'a> = (&'a str, &'a [(u64, Event)], bool, Option<u64>);
        #[derive(Clone, Copy, Debug)]
        enum Event {
            Greeted,
            Fails(ConnectionReason),
            Stays,
        }
        use Event::{Fails, Greeted, Stays};
        let table: &[Row<'_>] = &[
            ("not there yet", &[(0, Fails(ConnectionRefused))], false, None),
            ("there", &[(0, Fails(ConnectionRefused)), (1, Greeted)], true, Some(11)),
            ("greeted again", &[(1, Greeted), (6, Greeted)], true, Some(16)),
            ("dies soon", &[(1, Greeted), (10, Fails(ConnectionLost))], false, None),
            ("dies soon, and that is seen late", &[(1, Greeted), (12, Fails(ConnectionLost))], false, None),
            // Three pings take longer.
            ("one that is silent", &[(1, Greeted), (21, Fails(ConnectionLost))], true, None),
            ("back", &[(1, Greeted), (3, Fails(ConnectionLost)), (4, Greeted)], false, Some(14)),
            ("one that only takes its time", &[(1, Greeted), (9, Fails(InitializeTimeout))], true, None),
            ("stays", &[(1, Greeted), (3, Fails(ConnectionLost)), (4, Greeted), (14, Stays)], true, None),
            ("dies later", &[(1, Greeted), (11, Stays), (12, Fails(ConnectionLost))], true, None),
            (
                "at once again",
                &[(1, Greeted), (11, Stays), (12, Fails(ConnectionLost)), (13, Greeted)],
                true,
                None,
            ),
        ];
        for (name, events, is_ready, stays_at) in table {
            let start = Instant::now();
            let mut link = Link::new(start, String::new());
            for (seconds, event) in *events {
                let now = start + Duration::from_secs(*seconds);
                match event {
                    Greeted => link.succeeded(now, String::new()),
                    Fails(reason) => link.failed(problem(*reason), now, String::new()),
                    Stays => link.stayed(String::new()),
                }
            }
            assert_eq!(link.is_ready(), *is_ready, "{name}");
            if link.connection().state == Connected {
                let stays_at = stays_at.map(|seconds| start + Duration::from_secs(seconds));
                assert_eq!(link.stays_at(), stays_at, "{name}");
                assert_eq!(link.connection().reason.is_some(), !is_ready, "{name}: what was wrong is said");
            }
        }
    }

    #[test]
    fn since_changes_with_state_and_reason_only() {
        let now = Instant::now();
        let mut link = Link::new(now, "a".to_owned());
        link.failed(problem(NotMcp), now, "b".to_owned());
        assert_eq!(link.connection().since, "b");
        link.failed(problem(NotMcp), now, "c".to_owned());
        assert_eq!(link.connection().since, "b");
        link.succeeded(now, "d".to_owned());
        link.succeeded(now, "e".to_owned());
        assert_eq!(link.connection().since, "d");
    }

    #[test]
    fn a_starting_server_is_tried_often() {
        let start = Instant::now();
        let mut link = Link::new(start, String::new());
        let mut waits = Vec::new();
        for _ in 0..5 {
            link.failed(problem(ConnectionRefused), start, String::new());
            waits.push(link.retry_in(start, false).as_millis());
        }
        assert_eq!(waits, [10, 20, 40, 50, 50]);
        for _ in 0..40 {
            link.failed(problem(ConnectionRefused), start, String::new());
        }
        for (waited, wait) in [(1, 50), (2, 100), (10, 500), (20, 1000), (61, 1000)] {
            assert_eq!(
                link.retry_in(start + Duration::from_secs(waited), false).as_millis(),
                wait,
                "after {waited} s"
            );
        }
        for _ in 0..40 {
            link.failed(problem(NotMcp), start, String::new());
        }
        assert_eq!(link.retry_in(start, false).as_millis(), 1000);
        link.failed(Problem { is_busy: true, ..problem(ListFailed) }, start, String::new());
        assert_eq!(link.retry_in(start, false).as_millis(), 10_000);
        // Whatever is wrong with it, each try would be another process.
        for (reason, wait) in [
            (ProcessExited, 10_000),
            (ListFailed, 10_000),
            (InitializeRefused, 10_000),
            (UnsupportedRevision, 10_000),
            // Nothing is started where nobody starts it.
            (ShimUnavailable, 50),
        ] {
            link.failed(problem(reason), start, String::new());
            assert_eq!(link.retry_in(start, true).as_millis(), wait, "{reason:?}");
        }
    }
}
