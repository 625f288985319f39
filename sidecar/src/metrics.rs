//! Figures, for Prometheus. Labels are closed sets; every series is looked up once, when the process starts.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use longshore_mcp::method::{Method, NotificationMethod};
use longshore_sessions::Peer;
use longshore_sessions::membership::State;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

use crate::audit::Verdict;
use crate::upstream::stdio::Why;

/// The figures of a process.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Vec<PerMethod>,
    /// Connections of clients.
    pub(crate) connections: IntGauge,
    /// Sessions of clients.
    pub(crate) sessions: IntGauge,
    /// Calls under way.
    pub(crate) calls: IntGauge,
    /// Streams of events that are read, or kept for clients that come back.
    pub(crate) streams: IntGauge,
    /// What they hold.
    pub(crate) stream_bytes: IntGauge,
    /// Streams that were forgotten before their time, for others to have room.
    pub(crate) streams_given_up: IntCounter,
    resumptions: [IntCounter; 2],
    /// Whether the server answers.
    pub(crate) connected: IntGauge,
    handshakes: [IntCounter; 2],
    config_loads: [IntCounter; 2],
    audit_lost: IntCounter,
    /// Processes of a stdio server that run.
    pub(crate) processes: IntGauge,
    processes_started: IntCounter,
    processes_ended: Vec<(&'static str, IntCounter)>,
    /// Processes that wait for their first session.
    pub(crate) warm: IntGauge,
    /// Who waits for a process.
    pub(crate) queued: IntGauge,
    /// How many kilobytes each process has in memory, by its number in the log of the server's container.
    residents: Mutex<HashMap<u32, u64>>,
    resident: IntGauge,
    resident_largest: IntGauge,
    dropped: [IntCounter; 2],
    forwarded: [IntCounter; 4],
    sessions_opened: IntCounter,
    sessions_ended: [IntCounter; 6],
    sessions_taken: [IntCounter; 3],
    /// Ended sessions that are remembered.
    pub(crate) endings: IntGauge,
    replicas: [IntGauge; 3],
}

/// What a stdio server wrote that went to nobody.
#[derive(Clone, Copy)]
pub(crate) enum Dropped {
    /// It was no message.
    Noise,
    /// It was one that nobody waited for.
    Unasked,
}

/// What became of a request that was taken to another replica.
#[derive(Clone, Copy)]
pub(crate) enum Forward {
    /// It was answered.
    Answered,
    /// It was not served there.
    Moved,
    /// The other replica could not be reached; nothing of it was written.
    Unreachable,
    /// The other replica was lost with it.
    Lost,
}

/// Why a session is not held here any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// Its client ended it.
    Deleted,
    /// Nobody used it.
    Idle,
    /// It was too old.
    Aged,
    /// Its server had forgotten it, or never let it begin.
    Server,
    /// Its client did not hear that it had begun.
    Unheard,
    /// Another replica has it.
    Moved,
}

/// How a session came here that this process did not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionTaken {
    /// From another replica.
    Adopted,
    /// From a sidecar before this one in the same pod.
    Restarted,
    /// Not at all: what its server knew in it was lost.
    Lost,
}

struct PerMethod {
    method: &'static str,
    /// By [`Outcome`].
    outcomes: [IntCounter; 3],
    duration: Histogram,
}

/// What became of a request.
#[derive(Clone, Copy)]
enum Outcome {
    /// It was permitted and answered.
    Ok,
    /// It was permitted and failed, in the server or on the way.
    Failed,
    /// It was not permitted, or was no proper request.
    Refused,
}

const OUTCOMES: [&str; 3] = ["ok", "failed", "refused"];
const RESULTS: [&str; 2] = ["ok", "error"];
const RESUMPTIONS: [&str; 2] = ["ok", "gone"];
/// In the order of [`Dropped`].
const DROPPED: [&str; 2] = ["noise", "unasked"];
/// What other replicas are doing.
const REPLICAS: [(State, &str); 3] =
    [(State::Starting, "starting"), (State::Serving, "serving"), (State::Draining, "draining")];
/// In the order of [`Forward`].
const FORWARDS: [&str; 4] = ["answered", "moved", "unreachable", "lost"];
/// In the order of [`SessionEnd`].
const ENDS: [&str; 6] = ["deleted", "idle", "aged", "server", "unheard", "moved"];
/// In the order of [`SessionTaken`].
const TAKEN: [&str; 3] = ["adopted", "restarted", "lost"];
/// Everything that is none of the protocol's methods.
const OTHER: &str = "other";

impl Metrics {
    pub(crate) fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let counters =
            |name: &str, help: &str, labels: &[&str]| -> Result<IntCounterVec, prometheus::Error> {
                let counters = IntCounterVec::new(Opts::new(name, help), labels)?;
                registry.register(Box::new(counters.clone()))?;
                Ok(counters)
            };
        let gauge = |name: &str, help: &str| -> Result<IntGauge, prometheus::Error> {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };

        let requests = counters(
            "longshore_requests_total",
            "Requests at the MCP port, by method and by what became of them.",
            &["method", "outcome"],
        )?;
        let durations = HistogramVec::new(
            HistogramOpts::new(
                "longshore_request_duration_seconds",
                "Time from a request's head to its last byte.",
            )
            .buckets(vec![
                0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
            ]),
            &["method"],
        )?;
        registry.register(Box::new(durations.clone()))?;
        let names = Method::ALL.iter().map(|method| method.as_str());
        let names = names.chain(NotificationMethod::ALL.iter().map(|method| method.as_str()));
        let requests = names
            .chain([OTHER])
            .map(|method| PerMethod {
                method,
                outcomes: OUTCOMES.map(|outcome| requests.with_label_values(&[method, outcome])),
                duration: durations.with_label_values(&[method]),
            })
            .collect();

        let handshakes = counters(
            "longshore_handshakes_total",
            "Handshakes of the sidecar itself with its server.",
            &["result"],
        )?;
        let config_loads = counters(
            "longshore_config_loads_total",
            "Configurations read, by whether they could be used.",
            &["result"],
        )?;
        let audit_lost = IntCounter::new(
            "longshore_audit_lines_lost_total",
            "Audit lines that could not be written in time.",
        )?;
        registry.register(Box::new(audit_lost.clone()))?;
        let streams_given_up = IntCounter::new(
            "longshore_streams_given_up_total",
            "Streams that were forgotten before their time, since all of them together held too much.",
        )?;
        registry.register(Box::new(streams_given_up.clone()))?;
        let resumptions = counters(
            "longshore_resumptions_total",
            "Clients that came back for the rest of a stream, by whether it was there.",
            &["result"],
        )?;
        let processes_started = IntCounter::new(
            "longshore_processes_started_total",
            "Processes of a stdio server that were started, those of the sidecar itself included.",
        )?;
        registry.register(Box::new(processes_started.clone()))?;
        let processes_ended = counters(
            "longshore_processes_ended_total",
            "Processes of a stdio server that ended, by why.",
            &["cause"],
        )?;
        let dropped = counters(
            "longshore_dropped_lines_total",
            "Lines that a stdio server wrote to stdout and that went to nobody: noise is no message of MCP.",
            &["kind"],
        )?;
        let forwarded = counters(
            "longshore_forwarded_requests_total",
            "Requests that were taken to the replica that serves their session, by what became of that.",
            &["result"],
        )?;
        let replicas = IntGaugeVec::new(
            Opts::new("longshore_replicas", "Other replicas that are alive, by what they are doing."),
            &["state"],
        )?;
        registry.register(Box::new(replicas.clone()))?;
        let sessions_opened =
            IntCounter::new("longshore_sessions_opened_total", "Sessions that clients opened here.")?;
        registry.register(Box::new(sessions_opened.clone()))?;
        let sessions_ended = counters(
            "longshore_sessions_ended_total",
            "Sessions that are not held here any more, by why.",
            &["cause"],
        )?;
        let sessions_taken = counters(
            "longshore_sessions_taken_total",
            "Sessions that were opened elsewhere or by a sidecar before this one, by what became of them.",
            &["how"],
        )?;
        Ok(Self {
            requests,
            connections: gauge("longshore_connections", "Connections of clients.")?,
            sessions: gauge("longshore_sessions", "Sessions of clients.")?,
            calls: gauge("longshore_calls", "Calls under way.")?,
            streams: gauge(
                "longshore_streams",
                "Streams of events that are read, or kept for clients that come back.",
            )?,
            stream_bytes: gauge("longshore_stream_bytes", "What these streams hold.")?,
            streams_given_up,
            resumptions: RESUMPTIONS.map(|result| resumptions.with_label_values(&[result])),
            connected: gauge("longshore_server_connected", "1 while the MCP server answers.")?,
            handshakes: RESULTS.map(|result| handshakes.with_label_values(&[result])),
            config_loads: RESULTS.map(|result| config_loads.with_label_values(&[result])),
            audit_lost,
            processes: gauge("longshore_processes", "Processes of a stdio server that run.")?,
            processes_started,
            processes_ended: Why::LABELS
                .map(|cause| (cause, processes_ended.with_label_values(&[cause])))
                .into(),
            warm: gauge(
                "longshore_processes_warm",
                "Processes of a stdio server that were started ahead and wait for a session.",
            )?,
            queued: gauge(
                "longshore_processes_queued",
                "New sessions of a stdio server that wait for a place of a process.",
            )?,
            residents: Mutex::default(),
            resident: gauge(
                "longshore_processes_resident_bytes",
                "Memory that all processes of a stdio server have, with what they started.",
            )?,
            resident_largest: gauge(
                "longshore_process_resident_bytes_max",
                "Memory that the largest process of a stdio server has, with what it started.",
            )?,
            dropped: DROPPED.map(|kind| dropped.with_label_values(&[kind])),
            replicas: REPLICAS.map(|(_, state)| replicas.with_label_values(&[state])),
            sessions_opened,
            sessions_ended: ENDS.map(|cause| sessions_ended.with_label_values(&[cause])),
            sessions_taken: TAKEN.map(|how| sessions_taken.with_label_values(&[how])),
            endings: gauge(
                "longshore_ended_sessions",
                "Ended sessions that are remembered until they are too old.",
            )?,
            forwarded: FORWARDS.map(|result| forwarded.with_label_values(&[result])),
            registry,
        })
    }

    /// A request ended.
    pub(crate) fn request(&self, method: Option<&str>, verdict: Verdict, failed: bool, seconds: f64) {
        let outcome = match (verdict, failed) {
            (Verdict::Permit, false) => Outcome::Ok,
            (Verdict::Permit, true) => Outcome::Failed,
            (Verdict::Deny, _) => Outcome::Refused,
        };
        let method = method.unwrap_or(OTHER);
        let known = self.requests.iter().find(|series| series.method == method);
        if let Some(series) = known.or(self.requests.last()) {
            series.outcomes[outcome as usize].inc();
            series.duration.observe(seconds);
        }
    }

    /// A configuration was put into force.
    pub(crate) fn config_loaded(&self) {
        self.config_loads[0].inc();
    }

    /// A configuration was refused.
    pub(crate) fn config_refused(&self) {
        self.config_loads[1].inc();
    }

    /// A handshake with the server ended.
    pub(crate) fn handshake(&self, worked: bool) {
        self.handshakes[usize::from(!worked)].inc();
    }

    /// A client came back for the rest of a stream.
    pub(crate) fn resumption(&self, worked: bool) {
        self.resumptions[usize::from(!worked)].inc();
    }

    /// An audit line was lost.
    pub(crate) fn audit_lost(&self) {
        self.audit_lost.inc();
    }

    /// A process was started. It counts as running until somebody says that it does not.
    pub(crate) fn process_started(&self) {
        self.processes_started.inc();
        self.processes.inc();
    }

    /// A process ended, for a reason of [`Why::LABELS`].
    pub(crate) fn process_ended(&self, cause: &'static str) {
        if let Some((_, counter)) = self.processes_ended.iter().find(|(label, _)| *label == cause) {
            counter.inc();
        }
    }

    /// How many kilobytes a process has in memory now; none, once it is gone.
    pub(crate) fn resident(&self, number: u32, kilobytes: Option<u64>) {
        // Nothing that holds the lock can leave the table half changed.
        let mut residents = self.residents.lock().unwrap_or_else(PoisonError::into_inner);
        match kilobytes {
            Some(kilobytes) => residents.insert(number, kilobytes),
            None => residents.remove(&number),
        };
        let bytes = |kilobytes: u64| i64::try_from(kilobytes.saturating_mul(1024)).unwrap_or(i64::MAX);
        self.resident.set(bytes(residents.values().sum()));
        self.resident_largest.set(bytes(residents.values().copied().max().unwrap_or(0)));
    }

    /// A line of a process went to nobody.
    pub(crate) fn dropped(&self, what: Dropped) {
        self.dropped[what as usize].inc();
    }

    /// A session was opened.
    pub(crate) fn session_opened(&self) {
        self.sessions_opened.inc();
    }

    /// A session is not held here any more.
    pub(crate) fn session_ended(&self, why: SessionEnd) {
        self.sessions_ended[why as usize].inc();
    }

    /// A session came here.
    pub(crate) fn session_taken(&self, how: SessionTaken) {
        self.sessions_taken[how as usize].inc();
    }

    /// How many requests were taken to another replica and answered there.
    pub(crate) fn forwards(&self) -> usize {
        usize::try_from(self.forwarded[Forward::Answered as usize].get()).unwrap_or(0)
    }

    /// So many other replicas are alive.
    pub(crate) fn replicas(&self, alive: &[(Peer, State)]) {
        for ((state, _), gauge) in REPLICAS.iter().zip(&self.replicas) {
            let count = alive.iter().filter(|(_, of)| of == state).count();
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// A request was taken to another replica.
    pub(crate) fn forwarded(&self, result: Forward) {
        self.forwarded[result as usize].inc();
    }

    /// All figures, in Prometheus' text format.
    pub(crate) fn text(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}
