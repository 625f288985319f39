//! What a failure means by how far the call has come.

use http::StatusCode;
use longshore_mcp::error::Code;

use crate::upstream::Failure as Any;
use crate::upstream::modern_as_legacy::Failure;
use crate::upstream::modern_as_legacy::way::Way;

/// What it means that no answer came.
pub(super) async fn unanswered(way: &Way, status: StatusCode) -> Any {
    if status.is_success() {
        return Failure::BrokenOff.into();
    }
    match way.is_modern().await {
        Ok(false) => Failure::Forgotten.into(),
        // Whoever has answered so and is not there any more has seen the call all the same.
        Ok(true) | Err(_) => Failure::Status(status.as_u16()).into(),
    }
}

/// What a failure means once the server has answered: that it is not there any more says no longer that it has seen nothing
/// of the call, which must not be made again.
pub(super) fn once_answered(failure: Any) -> Any {
    if failure.is_absence() { Failure::BrokenOff.into() } else { failure }
}

/// What it means once the server has asked for something: it has begun with the call, so that it must not be made again from
/// the start in another session either.
pub(super) fn once_begun(failure: Any) -> Any {
    match failure {
        Any::ModernAsLegacy(Failure::Forgotten) => Failure::BrokenOff.into(),
        failure => failure,
    }
}

/// What a server of this era would hardly say: it may have become another one.
pub(super) fn is_suspicious(status: StatusCode, code: Option<Code>) -> bool {
    match (status, code) {
        (_, Some(Code::UnsupportedProtocolVersion)) => true,
        (
            StatusCode::BAD_REQUEST,
            Some(Code::InvalidParams | Code::HeaderMismatch | Code::MissingClientCapability),
        ) => false,
        (StatusCode::NOT_FOUND, Some(Code::MethodNotFound)) => false,
        (StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, _) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_no_server_of_that_era_gives_are_looked_into() {
        for (status, code, suspicious) in [
            (200, Some(Code::InternalError), false),
            (200, Some(Code::UnsupportedProtocolVersion), true),
            (400, Some(Code::InvalidParams), false),
            (400, Some(Code::HeaderMismatch), false),
            (400, Some(Code::MissingClientCapability), false),
            (400, Some(Code::InvalidRequest), true),
            (400, None, true),
            (404, Some(Code::MethodNotFound), false),
            (404, Some(Code::InvalidRequest), true),
            (405, None, true),
            (429, None, false),
            (500, Some(Code::InternalError), false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(is_suspicious(status, code), suspicious, "{status} {code:?}");
        }
    }
}
