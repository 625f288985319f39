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
