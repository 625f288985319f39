//! The sidecar's program, from outside: in front of servers and with clients that others wrote, and in front of a
//! scripted one where bytes count or a server has to misbehave.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test speaks by failing; clippy frees only functions that are marked as tests, not what they share"
)]

mod access;
mod bad_input;
mod batches;
mod configuration;
mod conformance;
mod detection;
mod drain;
mod faults;
mod harness;
mod hostile;
mod inventory;
mod legacy_as_modern;
mod modern;
mod modern_as_legacy;
mod passthrough;
mod peers;
mod pings;
mod readiness;
mod replicas;
mod sessions;
mod sse;
mod start;
mod stdio;
mod streams;
mod tasks;
mod translation;
mod writes;
