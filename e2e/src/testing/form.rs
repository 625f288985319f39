//! The two forms of a test: a short one for a machine that does ten other things, and a full one for `e2e/soak.sh`.

/// Names the file that full forms write their outcome to; there are only short ones where it is not set.
pub const SOAK: &str = "LONGSHORE_E2E_SOAK";

/// Which of the two forms is to be run.
pub fn form<T>(short: T, full: T) -> T {
    if std::env::var_os(SOAK).is_some() { full } else { short }
}
