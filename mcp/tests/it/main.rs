//! The crate from outside: what it writes is held against the schemas of the revisions, and what the protocol requires
//! against what it does.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test speaks by failing; clippy frees only functions that are marked as tests, not what they share"
)]

mod messages;
mod minted;
mod numbered;
mod properties;
mod requirements;
mod revisions;
mod translations;
