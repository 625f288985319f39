//! The command `longshore`, as people run it on their own machine: with servers and clients that others wrote.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test speaks by failing; clippy frees only functions that are marked as tests, not what they share"
)]

mod bad_input;
mod conformance;
mod ends;
mod example;
mod harness;
mod keys;
mod peers;
mod reload;
mod turns;
