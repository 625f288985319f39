//! What long-running commands log, and how: one JSON object a line.

use clap::ValueEnum;

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
    tracing_subscriber::fmt().json().flatten_event(true).with_env_filter(filter(level)).init();
}

/// Libraries speak one level later than Longshore.
fn filter(level: LogLevel) -> tracing_subscriber::EnvFilter {
    tracing_subscriber::EnvFilter::new(match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "warn,longshore=info",
        LogLevel::Debug => "info,longshore=debug",
        LogLevel::Trace => "debug,longshore=trace",
    })
}
