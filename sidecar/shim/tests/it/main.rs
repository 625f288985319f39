//! The real program, run as the kubelet runs it.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is how a test fails, in its helpers too")]

mod drain;
mod paths;
