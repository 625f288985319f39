//! Why a server with sessions could not be asked, beyond what its transport says.

use longshore_mcp::detect::Wrong;
use longshore_mcp::meta::{CLIENT_CAPABILITIES, Incomplete};
use longshore_mcp::parked::TooManyRounds;
use thiserror::Error;

use crate::refusal::Refusal;
use crate::upstream::NoRoom;
use crate::upstream::source::Unread;

/// Why not.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// There are as many sessions as may be.
    #[error("as many sessions are open as may be")]
    Full,
    /// There are as many of one principal as may be.
    #[error("as many sessions of one principal are open as may be ({limit})")]
    FullForPrincipal { limit: u32 },
    /// As many calls are under way in one session, or wait for their clients' answers, as may.
    #[error("as many calls are under way as may be")]
    Busy,
    /// The server answered with this HTTP status.
    #[error("the server answered with HTTP status {0}")]
    Status(u16),
    /// The server refused the handshake, in these words.
    #[error("the server refused the handshake, with error {code}: {words}")]
    Refused { code: i64, words: String },
    /// What the server answered is no answer.
    #[error("the server's answer is not usable")]
    Nonsense,
    /// As many listen in one session as may.
    #[error("as many subscriptions are open as may be")]
    Listeners,
    /// The server has forgotten the session while a call was under way.
    #[error("the server has forgotten the session")]
    Forgotten,
    /// Nobody listens any more where the server did that a call is under way with, or it has ended its stream.
    #[error("the server has gone in the middle of the call")]
    Gone,
    /// Another server is configured by now.
    #[error("another server is configured by now")]
    Left,
    /// The server chose a revision that nobody knows.
    #[error("the server speaks revision {0:?}")]
    Revision(String),
    /// What the server answers could not be read to its end.
    #[error(transparent)]
    Unread(Box<Unread>),
    /// There is no room for the request.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The server asks and asks.
    #[error(transparent)]
    TooManyRounds(TooManyRounds),
    /// What the client says that it can do cannot be read, so no server can be told.
    #[error("the client's capabilities cannot be read")]
    Capabilities,
    /// There are no random numbers, or nothing can be sealed; or the request is none.
    #[error("an internal error")]
    Internal,
}

impl From<Unread> for Failure {
    fn from(unread: Unread) -> Self {
        Self::Unread(Box::new(unread))
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Full => Self::TooManySessions,
            Failure::FullForPrincipal { limit } => Self::TooManyOwnSessions { limit },
            Failure::Busy => Self::TooManyCalls,
            Failure::Listeners => Self::TooManyListeners,
            Failure::Status(status) => Self::ServerStatus { status },
            Failure::Refused { code, words } => Self::HandshakeRefused { code, words },
            Failure::Nonsense | Failure::TooManyRounds(_) => Self::ServerNonsense,
            Failure::Forgotten | Failure::Gone => Self::ServerLost,
            Failure::Left => Self::ServerReplaced,
            Failure::Revision(version) => Self::ServerRevision { version },
            Failure::Unread(unread) => (*unread).into(),
            Failure::NoRoom(why) => why.into(),
            Failure::Capabilities => Self::Mistake(Wrong::Envelope(Incomplete::Wrong(CLIENT_CAPABILITIES))),
            Failure::Internal => Self::Internal,
        }
    }
}
