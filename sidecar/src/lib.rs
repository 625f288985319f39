//! The request path: Longshore's sidecar, which stands in front of one MCP server, knows who calls, and decides what
//! they may call.
//!
//! [`App`] is the composition root: [`App::bind`] opens every socket and says where, [`App::run`] serves until the
//! process is told to stop. One thread per worker carries requests; one more thread does everything that is not on that
//! path: the configuration's files, the admin port, the watch over the server, the drain.
//!
//! * A process: `app`, what it is told (`options`), how its pod starts ([`start`]) and ends (`drain`), and what its threads
//!   share (`shared`); the `configuration` that it serves by.
//! * A request: `worker` is the thread that carries it, `stack` the path as one list, `exchange` the message there and back
//!   at the end of it. On the way: whose key it is (`authenticate`), the one place that decides (`access`), and the one
//!   place that makes refusals of the sidecar's own (`refusal`); `upstream::{legacy_as_modern, modern_as_legacy}` answer
//!   in the place of a server of the other era. `headers` are their names; `calls` counts what is under way, and `audit`
//!   writes the line.
//! * The server: `upstream` is the way there, over Streamable HTTP, HTTP+SSE or stdio, and everything else sees Streamable
//!   HTTP; `monitor` watches over it, and whoever has reason raises a doubt (`server_doubt`).
//! * What outlives a request: `sessions` (who of several replicas serves one is pure code in `longshore-sessions`), `peers`,
//!   which are the other replicas, the `streams` that clients come back to, and the ids of `tasks` (what a request does with
//!   one is in `stack`).
//! * Memory: how much of it all may take together (`memory`), the pieces of a `streamed_body`, and those of a body that is put
//!   together (`whole_body`), the bytes that are `held` for clients, as far as there is room, what is kept of a request
//!   (`request_copy`), work that goes on when nobody waits for it (`detached_work`), and how many of anything each principal
//!   has (`counts_by_owner`).
//! * To look at: the `admin` port, the `inventory` and the `metrics` there, the [`log`], and the [`output`] that it goes to.

mod access;
mod admin;
mod app;
mod audit;
mod authenticate;
mod calls;
mod configuration;
mod counts_by_owner;
mod detached_work;
mod drain;
mod exchange;
mod headers;
mod held;
mod inventory;
pub mod log;
pub mod memory;
mod metrics;
mod monitor;
mod options;
pub mod output;
mod peers;
mod refusal;
mod request_copy;
mod server_doubt;
mod sessions;
mod shared;
mod stack;
pub mod start;
mod streamed_body;
mod streams;
mod tasks;
mod upstream;
mod whole_body;
mod worker;

use longshore_mcp::revision::Revision;

pub use access::{ExistingTools, PatternError, glob};
pub use app::{App, BindError, Bound, RunError, raise_descriptors};
pub use inventory::Inventories;
pub use options::{AuditLog, Bounds, Options, Pod, any_address};

/// The revisions that clients can speak here, oldest first, whatever the server speaks.
const SERVED: [Revision; 5] = Revision::ALL;
