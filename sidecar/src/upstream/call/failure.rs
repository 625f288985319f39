//! Why a call got no answer, where many share one way to the server.

use std::sync::Arc;

use http::StatusCode;
use thiserror::Error;

use crate::upstream::stdio::Gone;

/// Why a call got no answer.
#[derive(Clone, Debug, Error)]
pub(crate) enum Failure {
    /// As many processes run as may; in so many seconds one may not, if that is known.
    #[error("{limit} processes run")]
    Full { limit: u32, again: Option<u64> },
    /// As many run for this principal as may for one; the same of these.
    #[error("{limit} processes run for one principal")]
    FullForPrincipal { limit: u32, again: Option<u64> },
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
    /// It names a resource by a URI that is longer than what is remembered.
    #[error("the URI is too long")]
    LongSubscription,
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
