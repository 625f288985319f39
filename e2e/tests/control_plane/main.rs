//! Tests against a real API server without a node: nothing in here needs root.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a failed expectation is a test's way to speak, in its helpers too"
)]

mod admission;
mod catalog;
mod chart;
mod harness;
mod operator;
