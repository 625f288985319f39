//! The request path: Longshore's sidecar, which stands in front of one MCP server, knows who calls, and decides what
//! they may call.
//!
//! [`App`] is the composition root: [`App::bind`] opens every socket and says where, [`App::run`] serves until the
//! process is told to stop. One thread per worker carries requests (`worker`, and the path itself as one list in
//! `stack`); one more thread does everything that is not on that path: the configuration's files, the admin port,
//! the watch over the server, the drain.
//!
//! `upstream` is the way to the server, over Streamable HTTP, HTTP+SSE or stdio; everything else sees Streamable HTTP.
//! `rescue` is the one place that makes refusals of the sidecar's own: `upstream::{lifted, lowered}` answer in the place of a
//! server of the other era. `access` is the one place that decides.

mod access;
mod admin;
mod app;
mod audit;
mod authenticate;
mod calls;
mod carried;
mod configuration;
mod doubt;
mod drain;
mod exchange;
mod gathered;
mod headers;
mod held;
mod inventory;
mod kept;
pub mod log;
mod metrics;
mod monitor;
mod options;
mod peers;
mod piece;
mod rescue;
mod sessions;
mod shared;
mod stack;
pub mod start;
mod streams;
mod tasks;
mod upstream;
mod worker;

use longshore_mcp::revision::Revision;

pub use access::{ExistingTools, PatternError, glob};
pub use app::{App, BindError, Bound, RunError, raise_descriptors};
pub use inventory::Inventories;
pub use options::{AuditLog, Bounds, Options, Pod, any_address};

/// The revisions that clients can speak here, oldest first, whatever the server speaks.
const SERVED: [Revision; 5] = Revision::ALL;
