//! The catalog: what all MCP servers offer, in one place, for people and programs that look for a tool.
//!
//! * [`Catalog`]: the handle. Whoever knows of servers feeds it with [`ServerRecord`]s ([`Catalog::upsert`],
//!   [`Catalog::remove`], [`Catalog::set_stale`]); it knows nothing of Kubernetes.
//! * [`Reader`]: makes an [`Offer`] of a sidecar's inventory: bounded, cleaned, a stranger's words.
//! * `index`: ranked search over it.
//! * [`http`]: the REST API, and beside it the port for probes and metrics.
//! * [`KeyRing`]: who may log in, and [`Hosts`]: what the catalog is called where everybody may.
//!
//! Everything that servers say is text for people: bounded in length and in number, freed of what would not be seen or
//! would show it in another order, and never interpreted. Nothing here opens a connection.

mod catalog;
mod hosts;
pub mod http;
mod index;
mod keys;
mod limits;
mod metrics;
pub mod model;
mod offer;
mod record;
mod text;
mod view;

pub use catalog::{Catalog, IndexError, Indexer};
pub use hosts::Hosts;
pub use keys::{KeyRing, Login};
pub use metrics::Metrics;
pub use model::Link;
pub use offer::{Offer, Reader, ToolEntry};
pub use record::{About, Endpoint, ServerKey, ServerRecord};
pub use view::{Found, Page, Position};
