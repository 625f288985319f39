//! The crate from outside: what it writes is held against the schemas of the revisions, and what the protocol requires
//! against what it does.

mod messages;
mod numbered;
mod properties;
mod requirements;
mod schema;
mod translations;
