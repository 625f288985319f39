//! What long-running commands log, and how in a cluster: one JSON object a line. Nothing waits until somebody reads it.

use std::time::{Duration, Instant};

use clap::ValueEnum;
use longshore_sidecar::log::lost;
use longshore_sidecar::output::Output;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// How long the last lines may take.
const LAST_LINES: Duration = Duration::from_secs(1);
/// While so much waits, more is lost.
const ROOM: usize = 1 << 20;

static STDOUT: Output = Output::new("log", ROOM, || Box::new(std::io::stdout()), lost);

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
    let lines = lines.with_writer(|| STDOUT.lines());
    tracing_subscriber::registry().with(lines).with(filter(level)).init();
}

/// Waits a moment until all lines are written, if there have been any.
pub(super) fn flush() {
    STDOUT.flush(Instant::now() + LAST_LINES);
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

/// Libraries speak one level later than Longshore.
fn filter(level: LogLevel) -> Targets {
    let others = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn | LogLevel::Info => LevelFilter::WARN,
        LogLevel::Debug => LevelFilter::INFO,
        LogLevel::Trace => LevelFilter::DEBUG,
    };
    // Of an answer that it cannot read `kube` logs the whole text, which may be a Secret.
    let client = others.min(LevelFilter::ERROR);
    Targets::new()
        .with_target("longshore", level)
        .with_target("kube_client::client", client)
        // Below that nobody does, and the former tells of a CA that cannot be read anew.
        .with_target("kube_client::client::tls", others)
        .with_target("kube_client::client::builder", others)
        .with_default(others)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn no_text_of_the_api_servers_is_logged() {
        for level in [LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace] {
            let filter = filter(level);
            assert!(!filter.would_enable("kube_client::client", &Level::WARN), "{level:?}");
            for target in
                ["kube_runtime::watcher", "kube_client::client::tls", "kube_client::client::builder"]
            {
                assert!(filter.would_enable(target, &Level::WARN), "{target} at {level:?}");
            }
        }
    }
}
