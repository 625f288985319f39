//! What became of a request elsewhere, as a refusal.

use longshore_mcp::listen::Full;
use longshore_mcp::params::Invalid;

use super::Refusal;
use crate::streams;
use crate::upstream::source::Unread;
use crate::upstream::{Broken, EDITABLE, Failure, NoRoom, Unanswered, call, modern_as_legacy, sse};

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Http(Unanswered::Refused { .. }) => Self::ServerDown,
            Failure::Http(Unanswered::Lost(_)) => Self::ServerLost,
            Failure::Call(failure) => failure.into(),
            Failure::LegacyAsModern(failure) => failure.into(),
            Failure::Unknown => Self::ServerDown,
            Failure::ModernAsLegacy(failure) => failure.into(),
            Failure::Sse(sse::Failure::NoEndpoint { seconds }) => Self::ServerTimedOut { seconds },
            Failure::Sse(sse::Failure::Ended) => Self::ServerLost,
            Failure::Sse(sse::Failure::NotEvents | sse::Failure::Endpoint(_)) => Self::ServerNonsense,
        }
    }
}

impl From<modern_as_legacy::Failure> for Refusal {
    fn from(failure: modern_as_legacy::Failure) -> Self {
        use modern_as_legacy::Failure;
        match failure {
            Failure::Cancelled => Self::Cancelled,
            Failure::Ended => Self::SessionEnded,
            Failure::Forgotten => Self::SessionLost,
            Failure::BrokenOff | Failure::Late => Self::ServerLost,
            Failure::TooLarge => Self::AnswerTooLarge { limit: EDITABLE },
            Failure::NotHeld => Self::AnswerNotHeld,
            Failure::NotKept => Self::TooMuchKept,
            Failure::NoRoom(why) => why.into(),
            Failure::Nonsense => Self::ServerNonsense,
            Failure::Status(status) => Self::ServerStatus { status },
            Failure::TooManySubscriptions => Self::TooManySubscriptions,
            // There is nothing to give up for it, and nothing to wait for.
            Failure::LongSubscription => Self::InvalidParams(Invalid::Unreadable(failure.to_string())),
            Failure::TooManyQuestions => Self::TooManyQuestions,
            Failure::IdInUse => Self::IdInUse,
            Failure::NoNumbers => Self::Internal,
        }
    }
}

impl From<NoRoom> for Refusal {
    fn from(why: NoRoom) -> Self {
        match why {
            NoRoom::Now => Self::TooMuchHeld,
            NoRoom::Ever { most } => Self::BodyTooLarge { limit: most },
        }
    }
}

impl From<Broken> for Refusal {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Http(_) => Self::ServerLost,
            Broken::Call(failure) => failure.into(),
            Broken::Made(failure) => failure.into(),
        }
    }
}

impl From<Unread> for Refusal {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::NotHeld => Self::AnswerNotHeld,
            Unread::TooLarge => Self::AnswerTooLarge { limit: EDITABLE },
            Unread::Broken(broken) => broken.into(),
        }
    }
}

impl From<streams::Refused> for Refusal {
    fn from(refused: streams::Refused) -> Self {
        use streams::Refused;
        match refused {
            Refused::TooMany { limit } => Self::TooManyStreams { limit },
            Refused::Taken | Refused::Opening => Self::SecondStream,
            Refused::Closed => Self::UnknownSession,
            Refused::NoNumbers => Self::Internal,
        }
    }
}

impl From<call::Failure> for Refusal {
    fn from(failure: call::Failure) -> Self {
        use call::Failure;
        match failure {
            Failure::LongToken => Self::InvalidParams(Invalid::Unreadable(failure.to_string())),
            Failure::UnknownLevel => Self::InvalidParams(Invalid::Unreadable(failure.to_string())),
            Failure::TooManySubscriptions => Self::TooManySubscriptions,
            Failure::LongSubscription => Self::InvalidParams(Full::Uri.into()),
            Failure::Queue => Self::NothingFree,
            Failure::Full { limit, again } => Self::TooManyProcesses { limit, again },
            Failure::FullForPrincipal { limit, again } => Self::TooManyOwnProcesses { limit, again },
            Failure::IdInUse => Self::IdInUse,
            Failure::Cancelled => Self::Cancelled,
            Failure::Unread => Self::Unread,
            Failure::Ended => Self::SessionEnded,
            Failure::Forgotten => Self::SessionLost,
            Failure::Status(status) => Self::ServerStatus { status: status.as_u16() },
            Failure::Absent { .. } => Self::ServerDown,
            Failure::Cut => Self::ServerLost,
            Failure::Restarts { seconds } => Self::ProcessKeepsDying { seconds },
            Failure::Process(gone) => Self::Process(gone),
            Failure::Unlimited | Failure::NoNumbers | Failure::NotMessage => Self::Internal,
        }
    }
}
