//! The tests' own harness. What is missing here is only for them.

#![allow(
    dead_code,
    unused_imports,
    reason = "the tests use the rest of it, and no measurement all that is here"
)]

pub(crate) use of_tests::*;

#[path = "../../tests/it/harness"]
mod of_tests {
    pub(crate) mod client;
    pub(crate) mod config;
    pub(crate) mod events;
    pub(crate) mod http;
    pub(crate) mod patience;
    pub(crate) mod peer;
    pub(crate) mod process;
    #[path = "../../../benches/shared/no_recorder.rs"]
    pub(crate) mod recorder;
    pub(crate) mod replicas;
    pub(crate) mod schemas;
    pub(crate) mod shim;

    pub(crate) use client::Client;
    pub(crate) use config::{Files, config};
    pub(crate) use events::Events;
    pub(crate) use http::{Reply, Request};
    pub(crate) use patience::{eventually, within};
    pub(crate) use peer::GoServer;
    pub(crate) use process::Sidecar;
}
