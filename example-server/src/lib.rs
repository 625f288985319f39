//! An MCP server that speaks one revision of the protocol, all of it, and forgives nothing: what its revision forbids,
//! it refuses.
//!
//! It is for tests (of Longshore, and with the official conformance suite), for `longshore example-server`, and to try
//! clients with. `tools`, `prompts` and `resources` are what it offers, the same in every revision as far as
//! that has words for it: `call` says how. `session` holds the conversations of revisions with a handshake,
//! `modern` serves requests that stand alone. Neither knows what carries the messages: that is `stdio` and
//! `http`.
//!
//! It depends on nothing of Longshore but `longshore-mcp`, so that tests of the sidecar can start it in their own
//! process.

mod answer;
mod call;
pub mod command;
mod completion;
mod failure;
mod http;
mod message;
mod modern;
mod prompts;
mod question;
mod random;
mod resources;
mod seal;
mod server;
mod session;
mod stdio;
mod stream;
mod tasks;
mod tools;

pub use http::{HttpError, Served, over_http, over_sse};
pub use server::{NAME, Server, Settings};
pub use stdio::{StdioError, over_stdio, serve as over_pipes};
