//! The server from outside: what it offers in each revision, and what it refuses.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test speaks by failing; clippy frees only functions that are marked as tests, not what they share"
)]

mod features;
mod harness;
mod lines;
mod refusals;
mod schema;
mod streams;
mod tasks;
mod translated;
