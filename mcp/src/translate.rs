//! Messages of one revision made from messages of another.
//!
//! Everything here is about one message at a time, and returns the text that it was given, borrowed, if nothing has
//! to change: between two sides of one revision nothing ever does. What is changed keeps the bytes of every part that
//! is not. Members that nobody knows pass, in both directions: the schemas of all revisions allow them.
//!
//! | what | where |
//! |---|---|
//! | who answers a method: the server, or the proxy itself | [`destination`] |
//! | `initialize` and `server/discover` | [`handshake`], [`capabilities`] |
//! | requests of clients | [`requests`] |
//! | whole responses | [`responses`] |
//! | results, tool definitions, content | [`results`], [`tools`], [`content`] |
//! | errors | [`errors`] |
//! | notifications | [`notifications`] |
//! | what servers ask: sampling, elicitation, roots | [`questions`] |
//! | ids and tokens in messages | [`names`] |
//!
//! What the other revision has no form for, and what cannot be read, is an [`Untranslatable`], never something that looks
//! like success. The message is then not to be passed on.
//!
//! Ids, tokens, and what is said of clients and servers are JSON wherever they are parameters here, and are written as they
//! are.

pub mod capabilities;
pub mod content;
pub mod destination;
pub mod errors;
pub mod handshake;
pub mod names;
pub mod notifications;
pub mod questions;
pub mod requests;
pub mod responses;
pub mod results;
pub mod tools;

use std::borrow::Cow;

use thiserror::Error;

use crate::object::Object;
use crate::revision::{Era, Revision};

/// The revisions of the two sides of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    /// What the client speaks.
    pub client: Revision,
    /// What the server speaks.
    pub server: Revision,
}

/// The direction in which a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// What it was written in.
    pub from: Revision,
    /// What it has to be read in.
    pub to: Revision,
}

/// Why a message cannot be said in the other revision. The text names both, so that people know which side to move.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Untranslatable {
    /// The other revision has nothing like it.
    #[error("{what} cannot be passed on from revision {from} to revision {to} of MCP")]
    Unknown {
        /// What it is.
        what: Cow<'static, str>,
        /// The revision that has it.
        from: Revision,
        /// The revision that has not.
        to: Revision,
    },
    /// It does not even follow its own revision.
    #[error("{what} is not usable in revision {from}, and was to be passed on to revision {to} of MCP")]
    Unreadable {
        /// What it is.
        what: Cow<'static, str>,
        /// The revision that it should follow.
        from: Revision,
        /// The revision that it was for.
        to: Revision,
    },
}

impl Pair {
    /// The way of requests.
    pub fn up(self) -> Way {
        Way { from: self.client, to: self.server }
    }

    /// The way of results.
    pub fn down(self) -> Way {
        Way { from: self.server, to: self.client }
    }

    /// Whether nothing ever has to change.
    pub fn is_same(self) -> bool {
        self.client == self.server
    }

    /// The eras of client and server.
    pub fn eras(self) -> (Era, Era) {
        (self.client.era(), self.server.era())
    }
}

impl Way {
    /// Whether nothing ever has to change.
    pub fn is_same(self) -> bool {
        self.from == self.to
    }

    /// Something that the other revision has nothing like.
    pub fn unknown(self, what: impl Into<Cow<'static, str>>) -> Untranslatable {
        Untranslatable::Unknown { what: what.into(), from: self.from, to: self.to }
    }

    /// Something that does not follow its own revision.
    pub fn unreadable(self, what: impl Into<Cow<'static, str>>) -> Untranslatable {
        Untranslatable::Unreadable { what: what.into(), from: self.from, to: self.to }
    }

    /// Reads an object, which is `what`.
    pub(crate) fn object<'a>(self, what: &'static str, json: &'a str) -> Result<Object<'a>, Untranslatable> {
        Object::read(json).map_err(|_| self.unreadable(what))
    }
}
