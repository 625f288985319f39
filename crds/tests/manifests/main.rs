//! The manifests as clusters get them.

#![expect(clippy::unwrap_used, reason = "a failed expectation is a test's way to speak, in its helpers too")]

mod charts;
mod globs;
mod schema;
