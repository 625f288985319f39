//! What cannot cross from one revision to another, and the rule that forbids it.

/// Why a scenario of this suite cannot pass in front of a server of this revision, if that is so.
pub(super) fn forbids(_suite: &str, _server: &str, _scenario: &str) -> Option<&'static str> {
    None
}
