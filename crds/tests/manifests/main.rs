//! The manifests as clusters get them.

mod charts;
mod globs;
mod schema;
