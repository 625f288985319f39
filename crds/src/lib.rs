//! Longshore's Kubernetes API, group `longshore.dev`: the types, the manifests generated from them, and the rules
//! that need no look-up.
//!
//! Doc comments on fields are written for those who type `kubectl explain mcpserver.spec`.

pub mod api_keys;
pub mod manifest;
#[expect(unreachable_pub, reason = "`KubeSchema` repeats each type, `pub` and all, inside of a function")]
pub mod mcp_server;
pub mod names;
mod schema;
pub mod written;

pub use manifest::manifests;
pub use mcp_server::{McpServer, McpServerSpec, McpServerStatus};
pub use written::Written;

/// The API group of every kind here.
pub const GROUP: &str = "longshore.dev";
