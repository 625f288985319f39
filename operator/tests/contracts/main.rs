//! The operator's program from outside, and what other parts of the repository say of it.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed expectation is a test's way to speak, in its helpers too"
)]

mod alerts;
mod chart;
mod command;
mod documents;
