//! Why there is no process, or not any more, in words for people.

use std::sync::Arc;

use longshore_shim::protocol::MAX_STDERR;
use thiserror::Error;

use super::Failure;
use super::lines::{MAX_LINE, MAX_NOISE};
use crate::metrics::ProcessEnd;

/// A process that is not there, or not any more.
#[derive(Debug, Error)]
#[error("{why}")]
pub(crate) struct Gone {
    pub(crate) why: Why,
    /// The end of what it wrote to stderr: lines of a stranger, without control characters.
    pub(crate) stderr: String,
}

/// Why it is not there.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Why {
    /// Nobody listens who could start one.
    #[error("the server's container does not run: {0}")]
    Unavailable(String),
    /// The shim did not answer in time.
    #[error("the server's container did not start a process within {0} seconds")]
    Slow(u64),
    /// There is no such program.
    #[error("the server's command does not exist: {0}")]
    NotFound(String),
    /// There is, and it cannot be run.
    #[error("the server's command cannot be executed: {0}")]
    NotExecutable(String),
    /// The system refused for another reason.
    #[error("the server's process cannot be started: {0}")]
    NotStarted(String),
    /// It returned.
    #[error("the server's process ended with exit status {0}")]
    Exited(i32),
    /// A signal ended it.
    #[error("the server's process was killed by signal {0}{hint}", hint = hint(*.0))]
    Killed(i32),
    /// The container ends.
    #[error("the server's container is being stopped")]
    Stopping,
    /// The container has ended, and told nobody.
    #[error("the server's container ended")]
    Lost,
    /// It closed stdin or stdout, and goes on.
    #[error("the server's process closed its stdin or stdout, so it was ended")]
    Closed,
    /// It did not answer the handshake within so many seconds, where others wait for it too, or it takes the place of
    /// another.
    #[error("a process of the server did not complete the handshake within {0} seconds")]
    Mute(u64),
    /// It said nothing for so many seconds, though it was asked whether it is there.
    #[error("the server's process was ended: it did not say anything for {0} seconds, not even to a ping")]
    Hung(u64),
    /// One line was too long.
    #[error("the server's process was ended: it wrote a line of more than {MAX_LINE} bytes to stdout")]
    LineTooLong,
    /// It wrote half of a line for which others may have to wait, and nothing more for so many seconds.
    #[error(
        "the server's process was ended: it wrote half of a large message to stdout, and nothing more for {0} seconds"
    )]
    HalfLine(u64),
    /// It wrote and wrote, and no message.
    #[error(
        "the server's process was ended: it wrote more than {MAX_NOISE} bytes to stdout without a message of MCP"
    )]
    Noise,
    /// It wrote to stderr without measure.
    #[error("the server's process was ended: it floods stderr")]
    StderrFlood,
    /// It was asked to end.
    #[error("the server's process was ended")]
    Asked,
}

/// What a signal usually means.
fn hint(signal: i32) -> &'static str {
    match signal {
        9 => " (the kernel does this where memory runs out)",
        _ => "",
    }
}

impl Why {
    /// How a process ended that ran.
    pub(crate) fn end(&self) -> ProcessEnd {
        match self {
            Self::Exited(_) => ProcessEnd::Exited,
            Self::Killed(_) => ProcessEnd::Killed,
            Self::Stopping => ProcessEnd::Stopping,
            Self::Lost => ProcessEnd::Lost,
            Self::Closed => ProcessEnd::Closed,
            Self::Mute(_) | Self::Hung(_) => ProcessEnd::Mute,
            Self::LineTooLong | Self::HalfLine(_) | Self::Noise => ProcessEnd::Stdout,
            Self::StderrFlood => ProcessEnd::Stderr,
            // Those before never ran.
            Self::Unavailable(_)
            | Self::Slow(_)
            | Self::NotFound(_)
            | Self::NotExecutable(_)
            | Self::NotStarted(_)
            | Self::Asked => ProcessEnd::Asked,
        }
    }

    /// For the log and the audit log: a closed list.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "server's container unavailable",
            Self::Slow(_) => "server's container did not start a process",
            Self::NotFound(_) => "server's command not found",
            Self::NotExecutable(_) => "server's command not executable",
            Self::NotStarted(_) => "server's process not started",
            Self::Exited(_) => "server's process exited",
            Self::Killed(_) => "server's process killed",
            Self::Stopping => "server's container stopping",
            Self::Lost => "server's container ended",
            Self::Closed => "server's process closed its pipes",
            Self::Mute(_) => "server's process did not complete the handshake",
            Self::Hung(_) => "server's process hangs",
            Self::LineTooLong => "server wrote a line that is too long",
            Self::HalfLine(_) => "server wrote half a line",
            Self::Noise => "server floods stdout",
            Self::StderrFlood => "server floods stderr",
            Self::Asked => "server's process ended",
        }
    }

    /// Whether this takes long to find out: who has waited meanwhile does not wait for the next time too.
    pub(super) fn takes_long(&self) -> bool {
        matches!(self, Self::Slow(_) | Self::Mute(_))
    }

    /// Whether it says something of the server as a whole, and not of one process.
    pub(crate) fn concerns_all(&self) -> bool {
        matches!(
            self,
            Self::Unavailable(_)
                | Self::Slow(_)
                | Self::NotFound(_)
                | Self::NotExecutable(_)
                | Self::NotStarted(_)
                | Self::Stopping
                | Self::Lost
        )
    }
}

impl Gone {
    pub(super) fn failure(why: Why, stderr: &[u8]) -> Failure {
        Failure::Process(Arc::new(Self { why, stderr: text(stderr) }))
    }
}

/// Bytes of a stranger as text that is safe to show.
fn text(bytes: &[u8]) -> String {
    let bytes = &bytes[bytes.len().saturating_sub(MAX_STDERR)..];
    let text = String::from_utf8_lossy(bytes);
    let shown: String = text.chars().filter(|char| *char == '\n' || !char.is_control()).collect();
    shown.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stranger_wrote_is_bounded_text() {
        for (bytes, expected) in [
            (&b"Traceback\r\n  \x1b[31mError\x1b[0m\n"[..], "Traceback\n  [31mError[0m"),
            (b"\xff\0a\n\n", "\u{fffd}a"),
            (b"", ""),
        ] {
            assert_eq!(text(bytes), expected);
        }
        assert_eq!(text(&vec![b'x'; 2 * MAX_STDERR]).len(), MAX_STDERR);
    }

    /// Which may be the first one too, where several sessions have it.
    #[test]
    fn what_took_too_long_is_said_with_the_time_that_it_had() {
        let words = Why::Mute(30).to_string();
        assert_eq!(words, "a process of the server did not complete the handshake within 30 seconds");
    }

    #[test]
    fn the_usual_signal_is_explained() {
        assert!(Why::Killed(9).to_string().contains("memory"));
        assert!(!Why::Killed(15).to_string().contains("memory"));
    }
}
