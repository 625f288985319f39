//! The Model Context Protocol as pure code: no I/O, no clock, no async runtime.
//!
//! Five revisions of the protocol are in use, in two eras: until 2025-11-25 a client and a server greet each other
//! and hold a session; since 2026-07-28 every request stands alone. This crate knows what a message of each of them
//! looks like, and makes messages of one from messages of another, so that a proxy can join any client to any server.
//!
//! Reading goes from the outside in, and borrows from the bytes that came:
//!
//! 1. [`headers`] judges what HTTP says of a message, [`lines`] what a line of stdout is;
//! 2. [`envelope`] tells requests, notifications and responses apart without looking into them, [`batch`] takes the
//!    arrays of 2025-03-26 apart, and [`meta`] reads what a request of 2026-07-28 says of itself;
//! 3. [`detect`] says which conversation an HTTP request belongs to, and exactly what is wrong with it if it belongs
//!    to none; [`session`] does the same within a session;
//! 4. [`method`] and [`params`] find what a request is about, which is what access is decided on, and
//!    [`capabilities`] what its client can do;
//! 5. [`revision`] names the five revisions and has one table of what each of them has.
//!
//! Writing goes the other way: [`error`] makes error responses, [`matrix`] knows the HTTP status that each of them
//! rides on, [`initialize`] and [`listing`] edit the few messages that may not pass as they are, and [`sse`] frames
//! them. Whatever is not edited keeps its bytes.
//!
//! What lies between a client of one revision and a server of another is [`translate`]: functions over single
//! messages. Where a feature of one side is a conversation on the other there is a small state machine, which is told
//! what happened and says what to send: [`parked`] (a call whose server asks back), [`rounds`] (a call whose server
//! wants to be called again), [`listen`] (subscriptions), [`logging`] (log levels) and [`ids`].
//! [`probe`] judges by a server's first answer which era it belongs to.

pub mod batch;
pub mod capabilities;
pub mod detect;
pub mod envelope;
pub mod error;
pub mod headers;
pub mod ids;
pub mod initialize;
pub mod level;
pub mod lines;
pub mod listen;
pub mod listing;
pub mod logging;
pub mod matrix;
pub mod meta;
pub mod method;
pub mod object;
pub mod params;
pub mod parked;
pub mod probe;
pub mod revision;
pub mod rounds;
pub mod session;
mod spelling;
pub mod sse;
mod text;
pub mod translate;

pub use text::Text;
