//! Load: many clients with many sessions of many principals, who call without end while something happens to the
//! server, and who notice everything that goes wrong. It needs the server of `e2e/echo-server`, whose answers say who
//! asked and which process answered.
//!
//! A lane is one client's connection with one call in flight. Every lane uses every session, so that a session has
//! several calls in flight at times, over different connections and through different replicas. Nothing is tried again
//! but what was never sent, and that is counted.

mod answer;
mod connection;
mod lane;
mod report;
mod session;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use tokio::task::JoinSet;

use self::lane::Lane;
use self::session::Session;
use crate::mcp_client::Endpoint;

pub use report::{Failure, Kind, Report, Summary};
pub use session::Seen;

/// How often it is looked whether as many calls were answered as somebody waits for.
const LOOK: Duration = Duration::from_millis(10);

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the server is.
    pub endpoint: Endpoint,
    /// The keys of the principals, who have the sessions in turn. Empty: nobody has a key.
    pub keys: Vec<String>,
    /// How many sessions there are.
    pub sessions: usize,
    /// How many calls are in flight.
    pub lanes: usize,
    /// After how many calls a lane makes another connection, which may lead to another replica.
    pub per_connection: u64,
    /// How long a lane waits after each call.
    pub pause: Duration,
    /// Calls that take their time.
    pub slow: Option<Slow>,
    /// Who may have the same process of the server.
    pub separation: Separation,
    /// Whether a session that is gone is opened anew, as clients do; otherwise it is left alone.
    pub renew: bool,
    /// After how many calls it ends by itself.
    pub calls: Option<u64>,
}

/// Calls that take their time, so that there is always one to interrupt.
#[derive(Clone, Copy, Debug)]
pub struct Slow {
    /// One call of so many takes its time.
    pub every: u64,
    /// So many milliseconds.
    pub milliseconds: u64,
}

/// Whose name the server may know in a session: the name is given by whoever began the server's own session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Separation {
    /// Only that of the session itself.
    #[default]
    Session,
    /// That of any session of the same principal.
    Principal,
    /// Anybody's.
    Shared,
}

/// Why there is no load.
#[derive(Debug, thiserror::Error)]
#[error("cannot open session {session}: {failure}")]
pub struct OpenError {
    /// The number of the session.
    pub session: usize,
    /// What went wrong.
    pub failure: String,
}

/// What the lanes share.
#[derive(Debug)]
struct Shared {
    plan: Plan,
    began: Instant,
    sessions: Vec<Session>,
    stopped: AtomicBool,
    /// How many calls have been begun.
    begun: AtomicU64,
    /// How many calls have been answered.
    answered: AtomicU64,
}

/// Load that is under way. It ends when this value does.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    lanes: JoinSet<report::Tally>,
}

// === impl Plan ===

impl Plan {
    /// A plan for this endpoint: so many sessions, so many calls in flight; everything else as it is simplest.
    #[must_use]
    pub fn new(endpoint: Endpoint, sessions: usize, lanes: usize) -> Self {
        Self {
            endpoint,
            keys: Vec::new(),
            sessions,
            lanes,
            per_connection: 50,
            pause: Duration::ZERO,
            slow: None,
            separation: Separation::Session,
            renew: false,
            calls: None,
        }
    }
}

// === impl Load ===

impl Load {
    /// Opens the sessions, and begins to call.
    pub async fn start(plan: Plan) -> Result<Self, OpenError> {
        let principals = plan.keys.len().max(1);
        let sessions = (0..plan.sessions).map(|number| Session::new(number, number % principals)).collect();
        let lanes = plan.lanes;
        let shared = Arc::new(Shared {
            plan,
            began: Instant::now(),
            sessions,
            stopped: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            answered: AtomicU64::new(0),
        });
        let mut opening: Vec<_> = (0..lanes).map(|number| Lane::new(shared.clone(), number)).collect();
        try_join_all(opening.iter_mut().map(Lane::open_sessions)).await?;
        let mut lanes = JoinSet::new();
        for lane in opening {
            lanes.spawn(lane.run());
        }
        Ok(Self { shared, lanes })
    }

    /// How long it has been under way.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.shared.began.elapsed()
    }

    /// How many calls have been answered so far.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// Waits until so many more calls have been answered. Whoever cannot wait for ever says so outside of it.
    pub async fn more(&self, calls: u64) {
        let enough = self.answered() + calls;
        while self.answered() < enough {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What was seen of each session.
    #[must_use]
    pub fn sessions(&self) -> Vec<Seen> {
        self.shared.sessions.iter().map(Session::seen).collect()
    }

    /// Forgets which processes have answered, to look anew.
    pub fn forget_instances(&self) {
        self.shared.sessions.iter().for_each(Session::forget_instances);
    }

    /// Waits for the plan's end: all calls that it names.
    pub async fn finish(mut self) -> Report {
        let mut report = Report::default();
        while let Some(lane) = self.lanes.join_next().await {
            // A lane does not panic and is not aborted while somebody waits for it.
            if let Ok(tally) = lane {
                report.add(tally);
            }
        }
        report.finish(self.shared.began.elapsed(), self.sessions());
        report
    }

    /// Begins no more calls, waits for those in flight, and tells what happened.
    pub async fn stop(self) -> Report {
        self.shared.stopped.store(true, Ordering::Relaxed);
        self.finish().await
    }
}

// === impl Shared ===

impl Shared {
    /// Whether one more call is to be made.
    fn goes_on(&self) -> bool {
        !self.stopped.load(Ordering::Relaxed)
            && self.plan.calls.is_none_or(|calls| self.begun.fetch_add(1, Ordering::Relaxed) < calls)
    }
}
