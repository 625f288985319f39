//! The sidecar's program, from outside: in front of servers and with clients that others wrote, and in front of a
//! scripted one where bytes count or a server has to misbehave.

mod access;
mod bad_input;
mod configuration;
mod drain;
mod faults;
mod harness;
mod inventory;
mod passthrough;
mod peers;
mod sessions;
mod start;
