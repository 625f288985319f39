//! What a cluster's supervisor and whoever started it say to each other: one JSON value a line, over the supervisor's
//! standard input and output. The input is the cluster's lifeline too: when it closes, the cluster ends.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::component::Component;

/// From whoever started the cluster. Each is answered by [`Report::Done`] or [`Report::Failed`], in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Kill a component, and leave it dead.
    Stop(Component),
    /// Start it again, and wait until it is ready.
    Start(Component),
    /// Keep the logs when the cluster ends.
    KeepLogs,
}

/// From the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The cluster has its place.
    Placed(PathBuf),
    /// Every component is ready.
    Ready,
    /// An order was carried out.
    Done,
    /// The cluster failed, and has ended or ends now.
    Failed(Failure),
}

/// Why a cluster failed, with the end of the log that says more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What happened.
    pub what: String,
    /// The last lines of the log of the component that it happened to.
    pub log: Option<LogTail>,
    /// Where the logs are kept.
    pub logs: Option<PathBuf>,
}

/// The end of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogTail {
    /// Whose log.
    pub component: Component,
    /// Its last lines.
    pub lines: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(log) = &self.log {
            write!(f, "\nthe end of {}:", log.component.log())?;
            for line in &log.lines {
                write!(f, "\n  | {line}")?;
            }
        }
        if let Some(logs) = &self.logs {
            write!(f, "\nall logs are kept in {}", logs.display())?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// The last lines of a log, as far as it can be read.
pub(crate) fn tail(text: &str, lines: usize) -> Vec<String> {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].iter().map(|line| (*line).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_the_end_of_the_log_and_where_the_rest_is() {
        let failure = Failure {
            what: "etcd ended with exit status: 1".into(),
            log: Some(LogTail { component: Component::Etcd, lines: tail("one\ntwo\nthree\n", 2) }),
            logs: Some("/logs/x".into()),
        };
        let shown = "etcd ended with exit status: 1\nthe end of etcd.log:\n  | two\n  | three\nall logs are kept in /logs/x";
        assert_eq!(failure.to_string(), shown);
    }
}
