//! The catalog over a real connection, fed as `longshore local` and the cluster feed it.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed expectation is a test's way to speak, in its helpers too"
)]

mod answers;
mod bounds;
mod harness;
mod lists;
mod login;
mod search;
