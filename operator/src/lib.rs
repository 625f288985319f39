//! Longshore's operator, and the command people type.
//!
//! * [`cli`]: the command line.
//! * `run`: the composition root of the operator: what runs, and how it ends.
//! * `catalog`: the same for the catalog, which watches and writes nothing.
//! * `mcp_server`: the controller of `McpServer`, one file per step.
//! * `mirror` and `view`: what is known of the cluster; `inventory`: what the sidecars say.
//! * `api`: calls to the API server; `reading`: how objects of the cluster are read.
//! * `watching`: the watches of the API server, and whether each is up to date.
//! * `scope`: where it looks; `settings`: what it is told; `cluster_domain`: what it finds out of its cluster.
//! * `names` and `ownership`: what its objects are called, and which pods are whose; [`digest`]: what of them is compared.
//! * `api_keys`: how a key is made.
//! * [`rbac`]: the rights that all of this needs.
//! * `example`: a small MCP server, for first steps.
//! * `local`: servers of manifests on this machine, without a cluster.
//! * `lease`, `health`, `metrics`: what every operator needs.

mod api;
mod api_keys;
mod catalog;
pub mod cli;
mod cluster_domain;
pub mod digest;
mod example;
mod health;
mod inventory;
mod lease;
mod local;
mod mcp_server;
mod metrics;
mod mirror;
mod names;
mod ownership;
pub mod rbac;
mod reading;
mod run;
mod scope;
mod settings;
mod view;
mod watching;

// For tests that look from outside.
pub use mcp_server::build::upstream_text;
pub use mcp_server::condition::Reason;
pub use metrics::{Metrics, Outcome, Write};
pub use names::{CONTROL_PLANE, NAME_LABEL, ObjectNames};
pub use scope::PAGE;
