//! What other parts of the repository say of the operator, held to what it says itself.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed expectation is a test's way to speak, in its helpers too"
)]

mod chart;
mod documents;
