//! The Model Context Protocol as pure code: no I/O, no clock, no async runtime.
//!
//! Reading goes from the outside in, and borrows from the bytes that came:
//!
//! 1. [`headers`] judges what HTTP says of a message;
//! 2. [`envelope`] tells requests, notifications and responses apart without looking into them;
//! 3. [`method`] and [`params`] find what a request is about, which is what access is decided on;
//! 4. [`revision`] names the five revisions of the protocol.
//!
//! Writing goes the other way: [`error`] makes error responses, [`matrix`] knows the HTTP status that each of them
//! rides on, [`initialize`] and [`listing`] edit the few messages that may not pass as they are, and [`sse`] frames
//! them. Whatever is not edited keeps its bytes.

pub mod envelope;
pub mod error;
pub mod headers;
pub mod initialize;
pub mod listing;
pub mod matrix;
pub mod method;
pub mod object;
pub mod params;
pub mod revision;
mod spelling;
pub mod sse;
mod text;

pub use text::Text;
