//! The real program, run as the kubelet runs it: by another user than the sidecar's wherever the tests may choose.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is how a test fails, in its helpers too")]
#![allow(clippy::panic, reason = "a failed expectation is how a test fails, in its helpers too")]

mod drain;
mod ends;
mod harness;
mod init;
mod memory;
mod paths;
mod refusals;
mod serves;
mod takeover;
