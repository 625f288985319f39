//! Several replicas of one server.

mod alone;
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
