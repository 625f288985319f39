//! The log: JSON lines on standard error. (Standard output is the audit log's.) Nothing waits until somebody reads them: what
//! writes one may be what carries requests.

use std::error::Error;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use longshore_sidecar_config::LogLevel;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

use crate::output::Output;

/// How long the end of the process waits for the last lines to be written. Whoever reads them takes a fraction of that; and of
/// a pod's grace period little more is left for what comes last.
const LAST_LINES: Duration = Duration::from_millis(500);
/// While so much waits, more is lost: the container's memory is needed for what clients send.
const ROOM: usize = 256 * 1024;

static STDERR: Output = Output::new("log", ROOM, || Box::new(std::io::stderr()), lost);
static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// Starts the log. Until a configuration is loaded it is written at level `info`.
pub fn start() {
    let (filter, handle) = reload::Layer::new(LevelFilter::INFO);
    let format = tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_writer(|| STDERR.lines());
    // Only the first start in a process counts; there is no second one outside tests.
    if tracing_subscriber::registry().with(filter).with(format).try_init().is_ok() {
        let _ = LEVEL.set(handle);
    }
}

/// Waits a moment until all lines are written: before the process ends.
pub fn flush() {
    STDERR.flush(Instant::now() + LAST_LINES);
}

/// The line that says how many are lost.
pub fn lost(lines: u64) -> String {
    format!(r#"{{"level":"WARN","message":"nobody has read the log in time","lost":{lines}}}"#)
}

/// Changes what is written from now on.
pub(crate) fn set_level(level: LogLevel) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    if let Some(handle) = LEVEL.get()
        && let Err(error) = handle.reload(level)
    {
        tracing::warn!(%error, "cannot change the log's level");
    }
}

/// An error with the reasons that it does not name itself, as one sentence: some name them, and some leave that to whoever
/// reads them.
pub fn sentence(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let reasons = std::iter::successors(error.source(), |&reason| reason.source());
    for reason in reasons.map(ToString::to_string) {
        if !text.contains(&reason) {
            text.push_str(": ");
            text.push_str(&reason);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use thiserror::Error;

    use super::*;

    #[derive(Debug, Error)]
    #[error("it was refused")]
    struct Root;

    #[derive(Debug, Error)]
    enum Outer {
        #[error("there is no connection")]
        Silent(#[source] Root),
        #[error("there is no connection, since {0}")]
        Speaking(#[source] Root),
    }

    #[test]
    fn each_reason_is_said_once() {
        assert_eq!(sentence(&Outer::Silent(Root)), "there is no connection: it was refused");
        assert_eq!(sentence(&Outer::Speaking(Root)), "there is no connection, since it was refused");
    }
}
