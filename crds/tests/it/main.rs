//! The manifests as clusters get them.

mod charts;
mod schema;
