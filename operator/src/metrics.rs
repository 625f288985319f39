//! The operator's metrics. Every label is one of a closed set: no names, no error texts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::{
    Histogram, HistogramOpts, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::mcp_server::condition::Standing;

/// Every metric of the operator. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    reconciliations: IntCounterVec,
    duration: Histogram,
    writes: IntCounterVec,
    servers: IntGaugeVec,
    /// Those that `servers` has a figure of.
    standings: Arc<Mutex<BTreeSet<Standing>>>,
    upgrades: IntGaugeVec,
    leader: IntGauge,
    stale: IntGauge,
}

/// How a reconciliation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All was applied and said.
    Done,
    /// Something failed that may work later.
    Retry,
    /// The manifest has to change first, or something that it names.
    Refused,
}

impl Outcome {
    fn label(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Retry => "retry",
            Self::Refused => "refused",
        }
    }
}

/// Why a server goes on with pods of an earlier release of Longshore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pending {
    /// It waits for its turn to be upgraded.
    Waiting,
    /// The API server refuses it the new ones.
    Refused,
}

impl Pending {
    const ALL: [Self; 2] = [Self::Waiting, Self::Refused];

    fn label(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Refused => "refused",
        }
    }
}

/// How many servers there are.
#[derive(Debug, Default)]
pub struct Counts {
    /// Of each standing of `Ready`.
    pub standings: BTreeMap<Standing, usize>,
    /// That go on with pods of an earlier release.
    pub upgrades: BTreeMap<Pending, usize>,
}

/// What was written to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// An owned object was applied.
    Apply,
    /// An object that is no longer wanted was deleted.
    Prune,
    /// A pod was touched so that the kubelet updates its files.
    Touch,
    /// A status was written.
    Status,
}

impl Write {
    fn label(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Prune => "prune",
            Self::Touch => "touch",
            Self::Status => "status",
        }
    }
}

impl Metrics {
    /// Registers every metric. Fails only where two have the same name.
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let metrics = Self {
            reconciliations: IntCounterVec::new(
                Opts::new(
                    "longshore_reconciliations_total",
                    "Reconciliations of McpServers, by how they ended.",
                ),
                &["outcome"],
            )?,
            duration: Histogram::with_opts(
                HistogramOpts::new(
                    "longshore_reconciliation_duration_seconds",
                    "How long a reconciliation takes.",
                )
                .buckets(vec![0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0]),
            )?,
            writes: IntCounterVec::new(
                Opts::new(
                    "longshore_writes_total",
                    "Writes to the API server. None are made in a settled cluster.",
                ),
                &["write"],
            )?,
            servers: IntGaugeVec::new(
                Opts::new(
                    "longshore_servers",
                    "McpServers, by the status and the reason of their Ready condition.",
                ),
                &["ready", "reason"],
            )?,
            standings: Arc::default(),
            upgrades: IntGaugeVec::new(
                Opts::new(
                    "longshore_upgrades",
                    "McpServers whose pods are of an earlier release of Longshore, by what keeps them so.",
                ),
                &["state"],
            )?,
            leader: IntGauge::new("longshore_leader", "1 while this operator is the one that acts.")?,
            stale: IntGauge::new(
                "longshore_stale",
                "1 while a watch of the operator is down, so that it may miss changes.",
            )?,
            registry,
        };
        let Self {
            registry,
            reconciliations,
            duration,
            writes,
            servers,
            standings: _,
            upgrades,
            leader,
            stale,
        } = &metrics;
        registry.register(Box::new(reconciliations.clone()))?;
        registry.register(Box::new(duration.clone()))?;
        registry.register(Box::new(writes.clone()))?;
        registry.register(Box::new(servers.clone()))?;
        registry.register(Box::new(upgrades.clone()))?;
        registry.register(Box::new(leader.clone()))?;
        registry.register(Box::new(stale.clone()))?;
        let build = Opts::new("longshore_build_info", "1, for the version that runs.");
        let build = IntGauge::with_opts(build.const_label("version", env!("CARGO_PKG_VERSION")))?;
        build.set(1);
        registry.register(Box::new(build))?;
        // What is not there at all looks like a name that nobody knows.
        let ready = Standing { status: "True", reason: "Ready" };
        metrics.servers(|| Counts { standings: BTreeMap::from([(ready, 0)]), ..Counts::default() });
        Ok(metrics)
    }

    /// Counts a reconciliation.
    pub fn reconciled(&self, outcome: Outcome, took: std::time::Duration) {
        self.reconciliations.with_label_values(&[outcome.label()]).inc();
        self.duration.observe(took.as_secs_f64());
    }

    /// Counts a write to the API server.
    pub fn wrote(&self, write: Write) {
        self.writes.with_label_values(&[write.label()]).inc();
    }

    /// Says how many servers there are. They are counted in turn, so that nobody's count takes the place of a later one.
    pub fn servers(&self, count: impl FnOnce() -> Counts) {
        let mut known = self.standings.lock();
        let Counts { standings, upgrades } = count();
        known.extend(standings.keys());
        let set = |gauge: IntGauge, count: Option<&usize>| {
            gauge.set(count.map_or(0, |count| i64::try_from(*count).unwrap_or(i64::MAX)));
        };
        // Those of which there are none any more too: a series that ends would be taken for one that stays as it is.
        for standing in &*known {
            let gauge = self.servers.with_label_values(&[standing.status, standing.reason]);
            set(gauge, standings.get(standing));
        }
        for pending in Pending::ALL {
            set(self.upgrades.with_label_values(&[pending.label()]), upgrades.get(&pending));
        }
    }

    /// Says whether this operator leads.
    pub fn leads(&self, leads: bool) {
        self.leader.set(leads.into());
    }

    /// Says whether something may have changed that this operator does not hear of.
    pub fn stale(&self, stale: bool) {
        self.stale.set(stale.into());
    }

    /// All of them in Prometheus' text format.
    pub fn text(&self) -> prometheus::Result<String> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_exported_with_its_closed_labels() {
        let metrics = Metrics::new().unwrap();
        metrics.reconciled(Outcome::Refused, std::time::Duration::from_millis(3));
        metrics.wrote(Write::Touch);
        let standing = |status, reason| Standing { status, reason };
        let (ready, stopped) = (standing("True", "Ready"), standing("False", "ScaledToZero"));
        let counts = |standings: &[(Standing, usize)], upgrades: &[(Pending, usize)]| Counts {
            standings: standings.iter().copied().collect(),
            upgrades: upgrades.iter().copied().collect(),
        };
        metrics.servers(|| counts(&[(ready, 1), (stopped, 1)], &[(Pending::Waiting, 1)]));
        metrics.servers(|| counts(&[(ready, 2)], &[(Pending::Refused, 1)]));
        metrics.leads(true);
        metrics.stale(true);
        let text = metrics.text().unwrap();
        for line in [
            "longshore_reconciliations_total{outcome=\"refused\"} 1",
            "longshore_reconciliation_duration_seconds_count 1",
            "longshore_writes_total{write=\"touch\"} 1",
            "longshore_servers{ready=\"True\",reason=\"Ready\"} 2",
            "longshore_servers{ready=\"False\",reason=\"ScaledToZero\"} 0",
            "longshore_upgrades{state=\"waiting\"} 0",
            "longshore_upgrades{state=\"refused\"} 1",
            "longshore_leader 1",
            "longshore_stale 1",
            concat!("longshore_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in:\n{text}");
        }
    }
}
