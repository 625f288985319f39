//! Longshore's operator, and the command people type.
//!
//! * [`cli`]: the command line.
//! * [`run`]: the composition root of the operator: what runs, and how it ends.
//! * [`catalog`]: the same for the catalog, which watches and writes nothing.
//! * [`mcp_server`]: the controller of `McpServer`, one file per step.
//! * [`mirror`] and [`view`]: what is known of the cluster; [`inventory`]: what the sidecars say.
//! * [`reading`]: how objects of the cluster are read.
//! * `hearing`: how the cluster is watched, and whether it is heard.
//! * [`example`]: a small MCP server, for first steps.
//! * [`local`]: servers of manifests on this machine, without a cluster.
//! * [`lease`], [`health`], [`metrics`]: what every operator needs.
//! * [`reasons`]: how errors are told.

pub mod api;
pub mod api_keys;
pub mod catalog;
pub mod cli;
mod cluster_domain;
pub mod digest;
pub mod example;
pub mod health;
mod hearing;
pub mod inventory;
pub mod lease;
pub mod local;
pub mod mcp_server;
pub mod metrics;
pub mod mirror;
pub mod names;
pub mod ownership;
pub mod rbac;
pub mod reading;
pub mod reasons;
pub mod run;
pub mod scope;
pub mod settings;
pub mod view;
