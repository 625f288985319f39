//! Several replicas of one server.

mod meeting;
