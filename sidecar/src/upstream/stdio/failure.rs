//! Why a call got no answer from a process, in words for people.

use std::sync::Arc;

use http::StatusCode;
use longshore_shim::protocol::MAX_STDERR;
use thiserror::Error;

use super::lines::{MAX_LINE, MAX_NOISE};
use crate::metrics::ProcessEnd;

/// Why a call got no answer.
#[derive(Clone, Debug, Error)]
pub(crate) enum Failure {
    /// As many processes run as may.
    #[error("{limit} processes run")]
    Full { limit: u32 },
    /// As many run for this principal as may for one.
    #[error("{limit} processes run for one principal")]
    FullForPrincipal { limit: u32 },
    /// A place came free, and somebody else was faster.
    #[error("nothing came free in time")]
    Queue,
    /// Nobody said how many processes there may be.
    #[error("the number of processes is not limited")]
    Unlimited,
    /// There are no random numbers.
    #[error("the system gives no random numbers")]
    NoNumbers,
    /// The message is none.
    #[error("not a message")]
    NotMessage,
    /// The token of its progress is longer than anybody keeps.
    #[error("the progress token is too long")]
    LongToken,
    /// A session asks for more than is remembered of one.
    #[error("too many subscriptions")]
    TooManySubscriptions,
    /// There is no such level of logging.
    #[error("an unknown level")]
    UnknownLevel,
    /// A call with the same id is under way in its session.
    #[error("the id is in use")]
    IdInUse,
    /// Its client cancelled it.
    #[error("cancelled")]
    Cancelled,
    /// Its client read nothing of what came for it, in a process that others share.
    #[error("not read")]
    Unread,
    /// Somebody ended the session meanwhile.
    #[error("the session was ended")]
    Ended,
    /// There is no such session.
    #[error("the session is unknown")]
    Forgotten,
    /// A server over HTTP does not take the message.
    #[error("the server answered with HTTP status {0}")]
    Status(StatusCode),
    /// Nothing listens where it is to be sent.
    #[error("nothing listens on port {port}")]
    Absent { port: u16 },
    /// The stream ended in which the answer would have come.
    #[error("the server's stream ended")]
    Cut,
    /// The process died too often.
    #[error("the process is not started again for {seconds} seconds")]
    Restarts { seconds: u64 },
    /// There is no process.
    #[error(transparent)]
    Process(Arc<Gone>),
}

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
    /// It did not answer the handshake that it was given when it was started again.
    #[error("the server's process, started again, did not complete the handshake")]
    Mute,
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
            Self::Mute | Self::Hung(_) => ProcessEnd::Mute,
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
            Self::Mute => "server's process did not complete the handshake",
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
        matches!(self, Self::Slow(_) | Self::Mute)
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

    #[test]
    fn the_usual_signal_is_explained() {
        assert!(Why::Killed(9).to_string().contains("memory"));
        assert!(!Why::Killed(15).to_string().contains("memory"));
    }
}
