//! Several replicas of one server.

mod crowds;
mod drains;
mod endings;
mod forwarding;
mod late;
mod listening;
mod losses;
mod meeting;
mod questions;
mod rolling;
mod sidecar_restarts;

use longshore_sidecar_config::{Config, OnOwnerLoss};

use crate::harness::config;

/// A configuration with this for sessions whose replica is lost.
fn on_loss(what: OnOwnerLoss) -> Config {
    let mut config = config(0);
    config.sessions.on_owner_loss = what;
    config
}
