//! The manifests as clusters get them.

#![expect(clippy::unwrap_used, reason = "a failed expectation is a test's way to speak, in its helpers too")]

mod charts;
mod fields;
mod globs;
mod schema;

/// Set it to write the copies instead of comparing them: `make crds`.
const UPDATE: &str = "LONGSHORE_UPDATE_CRDS";
