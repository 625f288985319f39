//! Several replicas of one server.

mod drains;
mod forwarding;
mod losses;
mod meeting;
mod rolling;
