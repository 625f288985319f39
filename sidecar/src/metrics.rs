//! Figures, for Prometheus. Labels are closed sets; every series is looked up once, when the process starts.

mod family;
mod labels;

use std::collections::HashMap;

use longshore_mcp::method::{Method, NotificationMethod};
use longshore_sessions::Peer;
use longshore_sessions::membership::State;
use parking_lot::Mutex;
use prometheus::{Histogram, IntCounter, IntGauge, Registry, TextEncoder};

use family::{Counters, Registering};
pub(crate) use labels::{Dropped, Forward, ProcessEnd, SessionEnd, SessionTaken, Verdict};
use labels::{Outcome, Resumed, Worked};

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
    resumptions: Counters<Resumed>,
    /// Whether the server answers.
    pub(crate) connected: IntGauge,
    handshakes: Counters<Worked>,
    config_loads: Counters<Worked>,
    /// Whether the configuration that was read last is refused, for as long as it is.
    pub(crate) config_refused: IntGauge,
    audit_lost: IntCounter,
    /// Processes of a stdio server that run.
    pub(crate) processes: IntGauge,
    processes_started: IntCounter,
    processes_ended: Counters<ProcessEnd>,
    /// Processes that wait for their first session.
    pub(crate) warm: IntGauge,
    /// Who waits for a process.
    pub(crate) queued: IntGauge,
    /// Processes that have a place, and wait until others have started.
    pub(crate) unstarted: IntGauge,
    processes_refused: IntCounter,
    /// How many kilobytes each process has in memory, by its number in the log of the server's container.
    residents: Mutex<HashMap<u32, u64>>,
    resident: IntGauge,
    resident_largest: IntGauge,
    dropped: Counters<Dropped>,
    forwarded: Counters<Forward>,
    sessions_opened: IntCounter,
    sessions_ended: Counters<SessionEnd>,
    sessions_taken: Counters<SessionTaken>,
    /// Ended sessions that are remembered.
    pub(crate) endings: IntGauge,
    replicas: [(State, IntGauge); 3],
}

struct PerMethod {
    method: &'static str,
    outcomes: Counters<Outcome>,
    duration: Histogram,
}

/// What other replicas are doing.
const REPLICAS: [(State, &str); 3] =
    [(State::Starting, "starting"), (State::Serving, "serving"), (State::Draining, "draining")];
/// Everything that is none of the protocol's methods.
const OTHER: &str = "other";

impl Metrics {
    pub(crate) fn new() -> Result<Self, prometheus::Error> {
        let figures = Registering(Registry::new());
        let version = env!("CARGO_PKG_VERSION");
        figures.info("longshore_build_info", "1, for the version that runs.", "version", version)?;
        Ok(Self {
            requests: per_method(&figures)?,
            connections: figures.gauge("longshore_connections", "Connections of clients.")?,
            sessions: figures.gauge("longshore_sessions", "Sessions of clients.")?,
            calls: figures.gauge("longshore_calls", "Calls under way.")?,
            streams: figures.gauge(
                "longshore_streams",
                "Streams of events that are read, or kept for clients that come back.",
            )?,
            stream_bytes: figures.gauge("longshore_stream_bytes", "What these streams hold.")?,
            streams_given_up: figures.counter(
                "longshore_streams_given_up_total",
                "Streams that were forgotten before their time, since all of them together held too much.",
            )?,
            resumptions: figures.counters(
                "longshore_resumptions_total",
                "Clients that came back for the rest of a stream, by whether it was there.",
                "result",
            )?,
            connected: figures.gauge("longshore_server_connected", "1 while the MCP server answers.")?,
            handshakes: figures.counters(
                "longshore_handshakes_total",
                "Handshakes of the sidecar itself with its server.",
                "result",
            )?,
            config_loads: figures.counters(
                "longshore_config_loads_total",
                "Configurations read, by whether they could be used.",
                "result",
            )?,
            config_refused: figures.gauge(
                "longshore_config_refused",
                "1 while the configuration on disk cannot be used: the previous one, if any, stays in force.",
            )?,
            audit_lost: figures.counter(
                "longshore_audit_lines_lost_total",
                "Audit lines that could not be written, or not in time.",
            )?,
            processes: figures.gauge("longshore_processes", "Processes of a stdio server that run.")?,
            processes_started: figures.counter(
                "longshore_processes_started_total",
                "Processes of a stdio server that were started, those of the sidecar itself included.",
            )?,
            processes_ended: figures.counters(
                "longshore_processes_ended_total",
                "Processes of a stdio server that ended, by why.",
                "cause",
            )?,
            warm: figures.gauge(
                "longshore_processes_warm",
                "Processes of a stdio server that were started ahead and wait for a session.",
            )?,
            queued: figures.gauge(
                "longshore_processes_queued",
                "New sessions of a stdio server that wait for a place of a process.",
            )?,
            unstarted: figures.gauge(
                "longshore_processes_unstarted",
                "Processes of a stdio server that have a place and wait for their turn to start.",
            )?,
            processes_refused: figures.counter(
                "longshore_processes_refused_total",
                "Times that a place for a process of a stdio server was waited for in vain.",
            )?,
            residents: Mutex::default(),
            resident: figures.gauge(
                "longshore_processes_resident_bytes",
                "Memory that all processes of a stdio server have, with what they started.",
            )?,
            resident_largest: figures.gauge(
                "longshore_process_resident_bytes_max",
                "Memory that the largest process of a stdio server has, with what it started.",
            )?,
            dropped: figures.counters(
                "longshore_dropped_lines_total",
                "What a server over stdio or HTTP+SSE wrote that went to nobody: noise is no message of MCP.",
                "kind",
            )?,
            forwarded: figures.counters(
                "longshore_forwarded_requests_total",
                "Requests that were taken to the replica that serves their session, by what became of that.",
                "result",
            )?,
            sessions_opened: figures
                .counter("longshore_sessions_opened_total", "Sessions that clients opened here.")?,
            sessions_ended: figures.counters(
                "longshore_sessions_ended_total",
                "Sessions that are not held here any more, by why.",
                "cause",
            )?,
            sessions_taken: figures.counters(
                "longshore_sessions_taken_total",
                "Sessions that were opened elsewhere or by a sidecar before this one, by what became of them.",
                "how",
            )?,
            endings: figures.gauge(
                "longshore_ended_sessions",
                "Ended sessions that are remembered until they are too old.",
            )?,
            replicas: replicas(&figures)?,
            registry: figures.0,
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
            series.outcomes.inc(outcome);
            series.duration.observe(seconds);
        }
    }

    /// A configuration was put into force.
    pub(crate) fn config_loaded(&self) {
        self.config_loads.inc(Worked::Yes);
    }

    /// A configuration could not be used.
    pub(crate) fn config_failed(&self) {
        self.config_loads.inc(Worked::No);
    }

    /// A handshake with the server ended.
    pub(crate) fn handshake(&self, worked: bool) {
        self.handshakes.inc(if worked { Worked::Yes } else { Worked::No });
    }

    /// A client came back for the rest of a stream.
    pub(crate) fn resumption(&self, worked: bool) {
        self.resumptions.inc(if worked { Resumed::Yes } else { Resumed::Gone });
    }

    /// So many audit lines were lost.
    pub(crate) fn audit_lost(&self, lines: u64) {
        self.audit_lost.inc_by(lines);
    }

    /// A process was started. It counts as running until somebody says that it does not.
    pub(crate) fn process_started(&self) {
        self.processes_started.inc();
        self.processes.inc();
    }

    /// A process ended.
    pub(crate) fn process_ended(&self, cause: ProcessEnd) {
        self.processes_ended.inc(cause);
    }

    /// Somebody got no place for a process.
    pub(crate) fn process_refused(&self) {
        self.processes_refused.inc();
    }

    /// How many kilobytes a process has in memory now; none, once it is gone.
    pub(crate) fn resident(&self, number: u32, kilobytes: Option<u64>) {
        let mut residents = self.residents.lock();
        match kilobytes {
            Some(kilobytes) => residents.insert(number, kilobytes),
            None => residents.remove(&number),
        };
        let bytes = |kilobytes: u64| i64::try_from(kilobytes.saturating_mul(1024)).unwrap_or(i64::MAX);
        self.resident.set(bytes(residents.values().sum()));
        self.resident_largest.set(bytes(residents.values().copied().max().unwrap_or(0)));
    }

    /// Something that the server wrote went to nobody.
    pub(crate) fn dropped(&self, what: Dropped) {
        self.dropped.inc(what);
    }

    /// A session was opened.
    pub(crate) fn session_opened(&self) {
        self.sessions_opened.inc();
    }

    /// A session is not held here any more.
    pub(crate) fn session_ended(&self, why: SessionEnd) {
        self.sessions_ended.inc(why);
    }

    /// A session came here.
    pub(crate) fn session_taken(&self, how: SessionTaken) {
        self.sessions_taken.inc(how);
    }

    /// How many requests were taken to another replica and answered there.
    pub(crate) fn forwards(&self) -> usize {
        usize::try_from(self.forwarded.get(Forward::Answered)).unwrap_or(0)
    }

    /// So many other replicas are alive.
    pub(crate) fn replicas(&self, alive: &[(Peer, State)]) {
        for (state, gauge) in &self.replicas {
            let count = alive.iter().filter(|(_, of)| of == state).count();
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// A request was taken to another replica.
    pub(crate) fn forwarded(&self, result: Forward) {
        self.forwarded.inc(result);
    }

    /// All figures, in Prometheus' text format.
    pub(crate) fn text(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

/// What is counted and timed of each of the protocol's methods, and last of all others together.
fn per_method(figures: &Registering) -> Result<Vec<PerMethod>, prometheus::Error> {
    let outcomes = figures.counter_family(
        "longshore_requests_total",
        "Requests at the MCP port, by method and by what became of them.",
        ["method", "outcome"],
    )?;
    let duration = figures.durations(
        "longshore_request_duration_seconds",
        "Time from a request's head to its last byte.",
        "method",
    )?;
    let names = Method::ALL.iter().map(|method| method.as_str());
    let names = names.chain(NotificationMethod::ALL.iter().map(|method| method.as_str()));
    let series = names.chain([OTHER]).map(|method| PerMethod {
        method,
        outcomes: Counters::of(|outcome| outcomes.with_label_values(&[method, outcome])),
        duration: duration(method),
    });
    Ok(series.collect())
}

fn replicas(figures: &Registering) -> Result<[(State, IntGauge); 3], prometheus::Error> {
    let gauges = figures.gauges(
        "longshore_replicas",
        "Other replicas that are alive, by what they are doing.",
        "state",
    )?;
    Ok(REPLICAS.map(|(state, name)| (state, gauges.with_label_values(&[name]))))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn operating_names_every_metric_and_no_other() {
        let page = include_str!("../../docs/operating.md");
        let (_, table) = page.split_once("| sidecar | |").unwrap();
        let (table, _) = table.split_once("\n\n").unwrap();
        let cells = table.lines().filter_map(|row| row.split(" | ").next());
        let names = cells.flat_map(|cell| cell.split('`')).filter(|word| word.starts_with("longshore_"));
        let told: BTreeSet<_> = names.filter_map(|name| name.split('{').next()).collect();
        let metrics = Metrics::new().unwrap();
        let text = metrics.text().unwrap();
        let names: BTreeSet<_> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        assert_eq!(told, names);
    }
}
