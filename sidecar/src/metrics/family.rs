//! Families of series, made and registered in one step.

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

use super::labels::Label;

/// A registry that fills.
pub(super) struct Registering(pub(super) Registry);

/// A counter for each value of a label.
pub(super) struct Counters<L>(Box<[(L, IntCounter)]>);

impl Registering {
    pub(super) fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.register(IntGauge::new(name, help)?)
    }

    /// A series that is always 1: its label says something.
    pub(super) fn info(
        &self,
        name: &str,
        help: &str,
        label: &str,
        value: &str,
    ) -> Result<(), prometheus::Error> {
        self.register(IntGauge::with_opts(Opts::new(name, help).const_label(label, value))?)?.set(1);
        Ok(())
    }

    pub(super) fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        self.register(IntCounter::new(name, help)?)
    }

    pub(super) fn counters<L: Label>(
        &self,
        name: &str,
        help: &str,
        label: &str,
    ) -> Result<Counters<L>, prometheus::Error> {
        let family = self.register(IntCounterVec::new(Opts::new(name, help), &[label])?)?;
        Ok(Counters::of(|value| family.with_label_values(&[value])))
    }

    /// Counters with two labels, of which the caller knows the first.
    pub(super) fn counter_family(
        &self,
        name: &str,
        help: &str,
        labels: [&str; 2],
    ) -> Result<IntCounterVec, prometheus::Error> {
        self.register(IntCounterVec::new(Opts::new(name, help), &labels)?)
    }

    pub(super) fn gauges(
        &self,
        name: &str,
        help: &str,
        label: &str,
    ) -> Result<IntGaugeVec, prometheus::Error> {
        self.register(IntGaugeVec::new(Opts::new(name, help), &[label])?)
    }

    /// Histograms of seconds.
    pub(super) fn durations(
        &self,
        name: &str,
        help: &str,
        label: &str,
    ) -> Result<impl Fn(&str) -> Histogram + use<>, prometheus::Error> {
        let buckets =
            [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        let family = self.register(HistogramVec::new(options, &[label])?)?;
        Ok(move |value: &str| family.with_label_values(&[value]))
    }

    fn register<C: Collector + Clone + 'static>(&self, family: C) -> Result<C, prometheus::Error> {
        self.0.register(Box::new(family.clone()))?;
        Ok(family)
    }
}

impl<L: Label> Counters<L> {
    pub(super) fn of(counter: impl Fn(&'static str) -> IntCounter) -> Self {
        Self(L::ALL.iter().map(|label| (*label, counter(label.value()))).collect())
    }

    pub(super) fn inc(&self, label: L) {
        if let Some(counter) = self.counter(label) {
            counter.inc();
        }
    }

    pub(super) fn get(&self, label: L) -> u64 {
        self.counter(label).map_or(0, IntCounter::get)
    }

    /// There is one for each.
    fn counter(&self, label: L) -> Option<&IntCounter> {
        self.0.iter().find(|(of, _)| *of == label).map(|(_, counter)| counter)
    }
}
