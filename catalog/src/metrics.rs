//! The catalog's metrics. Every label is one of a closed set.

use std::time::Duration;

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::model::State;

/// Every metric of the catalog. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    servers: IntGaugeVec,
    tools: IntGauge,
    left_out: IntGaugeVec,
    stale: IntGauge,
    requests: IntCounterVec,
    duration: HistogramVec,
    indexing: Histogram,
}

/// What there is of a server.
pub(crate) struct Listed {
    pub(crate) state: State,
    pub(crate) tools: usize,
    pub(crate) tools_left_out: usize,
    pub(crate) words_left_out: usize,
}

impl Metrics {
    /// Registers every metric. Fails only where two have the same name.
    pub fn new() -> prometheus::Result<Self> {
        let buckets = vec![0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5];
        let metrics = Self {
            servers: IntGaugeVec::new(
                Opts::new("longshore_catalog_servers", "Listed servers, by their state."),
                &["state"],
            )?,
            tools: IntGauge::new("longshore_catalog_tools", "Listed tools.")?,
            left_out: IntGaugeVec::new(
                Opts::new(
                    "longshore_catalog_left_out",
                    "What servers have beyond what is listed of them: tools, and words that they are not found by.",
                ),
                &["of"],
            )?,
            stale: IntGauge::new("longshore_catalog_stale", "1 while the catalog cannot hear what changes.")?,
            requests: IntCounterVec::new(
                Opts::new("longshore_catalog_requests_total", "Requests, by route and status."),
                &["route", "status"],
            )?,
            duration: HistogramVec::new(
                HistogramOpts::new("longshore_catalog_request_duration_seconds", "How long a request takes.")
                    .buckets(buckets.clone()),
                &["route"],
            )?,
            indexing: Histogram::with_opts(
                HistogramOpts::new(
                    "longshore_catalog_indexing_duration_seconds",
                    "How long it takes to index one server.",
                )
                .buckets(buckets),
            )?,
            registry: Registry::new(),
        };
        let Self { registry, servers, tools, left_out, stale, requests, duration, indexing } = &metrics;
        registry.register(Box::new(servers.clone()))?;
        registry.register(Box::new(tools.clone()))?;
        registry.register(Box::new(left_out.clone()))?;
        registry.register(Box::new(stale.clone()))?;
        registry.register(Box::new(requests.clone()))?;
        registry.register(Box::new(duration.clone()))?;
        registry.register(Box::new(indexing.clone()))?;
        let build = Opts::new("longshore_build_info", "1, for the version that runs.");
        let build = IntGauge::with_opts(build.const_label("version", env!("CARGO_PKG_VERSION")))?;
        build.set(1);
        registry.register(Box::new(build))?;
        Ok(metrics)
    }

    /// All of them in Prometheus' text format.
    pub fn text(&self) -> prometheus::Result<String> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }

    pub(crate) fn listed(&self, servers: impl Iterator<Item = Listed>) {
        let (mut up, mut down, mut unknown) = (0, 0, 0);
        let (mut tools, mut tools_left_out, mut words_left_out) = (0_usize, 0_usize, 0_usize);
        for server in servers {
            match server.state {
                State::Up => up += 1,
                State::Down => down += 1,
                State::Unknown => unknown += 1,
            }
            tools += server.tools;
            // What a stranger says it has.
            tools_left_out = tools_left_out.saturating_add(server.tools_left_out);
            words_left_out += server.words_left_out;
        }
        for (state, count) in [("Up", up), ("Down", down), ("Unknown", unknown)] {
            self.servers.with_label_values(&[state]).set(count);
        }
        self.tools.set(number(tools));
        for (of, count) in [("tools", tools_left_out), ("words", words_left_out)] {
            self.left_out.with_label_values(&[of]).set(number(count));
        }
    }

    pub(crate) fn stale(&self, stale: bool) {
        self.stale.set(stale.into());
    }

    /// `route` is the path's pattern, or `other`.
    pub(crate) fn answered(&self, route: &str, status: u16, took: Duration) {
        self.requests.with_label_values(&[route, &status.to_string()]).inc();
        self.duration.with_label_values(&[route]).observe(took.as_secs_f64());
    }

    pub(crate) fn indexed(&self, took: Duration) {
        self.indexing.observe(took.as_secs_f64());
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn operating_names_every_metric_and_no_other() {
        let page = include_str!("../../docs/operating.md");
        let (_, table) = page.split_once("| catalog | |").unwrap();
        let (table, _) = table.split_once("\n\n").unwrap();
        let cells = table.lines().filter_map(|row| row.split(" | ").next());
        let names = cells.flat_map(|cell| cell.split('`')).filter(|word| word.starts_with("longshore_"));
        let told: BTreeSet<_> = names.filter_map(|name| name.split('{').next()).collect();
        let metrics = Metrics::new().unwrap();
        // Without a series a family is not in the text.
        let server = Listed { state: State::Up, tools: 1, tools_left_out: 0, words_left_out: 0 };
        metrics.listed([server].into_iter());
        metrics.answered("/v1/tools", 200, Duration::ZERO);
        let text = metrics.text().unwrap();
        let names: BTreeSet<_> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        assert_eq!(told, names);
    }
}
