//! Calls to the API server: every one has a deadline, and its failures are sorted by what helps against them.
//!
//! * `yaml`: how what is applied is written.

mod yaml;

use std::future::Future;
use std::time::Duration;

use longshore_sidecar::log::sentence;
use thiserror::Error;

pub(crate) use yaml::applied;

/// How long one call may take. `kube` itself would wait for ever. A webhook that does not answer is waited for by the API
/// server, ten seconds where nobody says how long: it has to be heard out, since it names the webhook then or goes on
/// without it, and drops the request of whoever has gone. (Shorter than `watching::SILENT`: a call is no dead connection.)
const DEADLINE: Duration = Duration::from_secs(20);

/// Why a call failed.
#[derive(Debug, Error)]
pub(crate) enum ApiError {
    /// The API server read the request and will not do it. The same request will fail again.
    #[error("{}", .0.message)]
    Refused(Box<kube::core::Status>),
    /// What there is is not what the request expects: somebody was faster. Looking at it helps.
    #[error("{}", .0.message)]
    Conflict(Box<kube::core::Status>),
    /// The API server could not be asked, or not now.
    #[error("the request to the API server failed: {}", sentence(.0))]
    Unavailable(#[source] Box<kube::Error>),
    /// It did not answer in time.
    #[error("the API server did not answer within {} seconds", DEADLINE.as_secs())]
    TimedOut,
}

/// What a write that was not answered is said to be. A webhook may be waited for longer than anybody here waits.
pub(crate) fn unanswered() -> String {
    format!(
        "it did not answer this request within {} seconds: an admission webhook of the cluster may be hanging",
        DEADLINE.as_secs()
    )
}

/// Waits for a call, up to [`DEADLINE`].
pub(crate) async fn call<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, ApiError> {
    match tokio::time::timeout(DEADLINE, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(ApiError::Conflict(status)),
        Ok(Err(kube::Error::Api(status))) if is_final(&status) => Err(ApiError::Refused(status)),
        Ok(Err(error)) => Err(ApiError::Unavailable(Box::new(error))),
        Err(_) => Err(ApiError::TimedOut),
    }
}

/// Whether the same request would get the same answer. Overload and failures of the server itself pass.
fn is_final(status: &kube::core::Status) -> bool {
    (400..500).contains(&status.code) && !matches!(status.code, 401 | 408 | 425 | 429)
}

// === impl ApiError ===

impl ApiError {
    /// Whether the object that the call was about does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(status) if status.is_not_found())
    }

    /// The API server's words where it has read the request and cannot do it now: it may lack something itself, or a
    /// webhook that it asks does not answer.
    pub(crate) fn failure(&self) -> Option<&str> {
        let Self::Unavailable(error) = self else { return None };
        match &**error {
            kube::Error::Api(status) if status.code >= 500 => Some(&status.message),
            _ => None,
        }
    }

    /// The API server's words where it gives no hope, or where it has failed for long.
    pub(crate) fn lasting(&self, for_long: bool) -> Option<&str> {
        match self {
            Self::Refused(status) => Some(&status.message),
            Self::Conflict(_) | Self::Unavailable(_) | Self::TimedOut => self.failure().filter(|_| for_long),
        }
    }

    /// Whether the object has a field that the API server does not know: the kind is of an older release than whoever
    /// wrote it.
    pub(crate) fn is_of_older_kind(&self) -> bool {
        let words = match self {
            Self::Refused(status) => Some(&*status.message),
            Self::Conflict(_) | Self::Unavailable(_) | Self::TimedOut => self.failure(),
        };
        words.is_some_and(|words| words.contains("field not declared in schema"))
    }

    /// Whether nothing can be made any more because the namespace is being deleted.
    pub(crate) fn is_namespace_ending(&self) -> bool {
        let Self::Refused(status) = self else { return false };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[tokio::test]
    async fn what_is_refused_is_said_at_once_and_what_fails_when_it_has_for_long() {
        for (code, at_once, at_last) in [
            (403, true, true),
            (404, true, true),
            (500, false, true),
            (503, false, true),
            (401, false, false),
            (409, false, false),
            (429, false, false),
        ] {
            let words = format!("the words of {code}");
            let status = Status { code, ..Status::failure(&words, "") };
            let answer = std::future::ready(Err::<(), _>(kube::Error::Api(Box::new(status))));
            let error = call(answer).await.unwrap_err();
            assert_eq!(error.lasting(false), at_once.then_some(&*words), "{code}");
            assert_eq!(error.lasting(true), at_last.then_some(&*words), "{code}");
        }
    }
}
