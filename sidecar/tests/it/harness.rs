//! Starts the program, and talks to it.

pub(crate) mod client;
pub(crate) mod cluster;
pub(crate) mod config;
pub(crate) mod events;
pub(crate) mod http;
pub(crate) mod modern;
pub(crate) mod own;
pub(crate) mod patience;
pub(crate) mod peer;
pub(crate) mod pods;
pub(crate) mod process;
pub(crate) mod recorder;
pub(crate) mod replicas;
pub(crate) mod schemas;
pub(crate) mod scripted;
pub(crate) mod sessionless;
pub(crate) mod shim;
pub(crate) mod sse_server;

pub(crate) use client::Client;
pub(crate) use cluster::Cluster;
pub(crate) use config::{Files, config};
pub(crate) use events::{Event, Events};
pub(crate) use http::{Reply, Request};
pub(crate) use patience::{Gate, Over, eventually, once_within, within};
pub(crate) use peer::GoServer;
pub(crate) use pods::Pod;
pub(crate) use process::Sidecar;
pub(crate) use scripted::Scripted;
pub(crate) use sessionless::Sessionless;
pub(crate) use shim::Shim;
pub(crate) use sse_server::SseServer;
