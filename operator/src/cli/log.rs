//! What long-running commands log, and how: one JSON object a line.

use clap::ValueEnum;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// From now on everything is logged from this level on.
pub(super) fn start(level: LogLevel) {
    let lines = tracing_subscriber::fmt::layer().json().flatten_event(true);
    tracing_subscriber::registry().with(lines).with(filter(level)).init();
}

/// Libraries speak one level later than Longshore.
fn filter(level: LogLevel) -> Targets {
    let (own, others) = match level {
        LogLevel::Error => (LevelFilter::ERROR, LevelFilter::ERROR),
        LogLevel::Warn => (LevelFilter::WARN, LevelFilter::WARN),
        LogLevel::Info => (LevelFilter::INFO, LevelFilter::WARN),
        LogLevel::Debug => (LevelFilter::DEBUG, LevelFilter::INFO),
        LogLevel::Trace => (LevelFilter::TRACE, LevelFilter::DEBUG),
    };
    Targets::new().with_target("longshore", own).with_default(others)
}
