//! The JSON Schemas of the revisions of MCP: what is wrong with a message, by the revision of its reader. Only tests
//! use this.
//!
//! [`check`] holds a text against one definition. [`Spoken::faults`] finds the definition by what the message is, for
//! who sees only messages go by.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test speaks by failing")]

mod definitions;
mod spoken;

pub use definitions::{check, error_of, faults, question_of, request_of, result_of};
pub use spoken::{Side, Spoken};
