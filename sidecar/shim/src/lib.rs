//! A tiny static program inside the server's own container.
//!
//! It shares that container with a program that nobody here knows, often on a small memory limit, so it is kept
//! small: no async runtime, no argument parser, and no crate beyond the system calls.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

pub mod drain;
pub mod paths;

const USAGE: &str = "usage: shim drain [SOCKET]
       shim --version
";

/// Runs the program with its arguments, those after its own name.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let first = arguments.next();
    match first.as_deref().and_then(|first| first.to_str()) {
        Some("drain") => {
            let socket = arguments
                .next()
                .map_or_else(|| [paths::SOCKETS_DIR, paths::DRAIN_SOCKET].iter().collect(), PathBuf::from);
            drain::wait(&socket);
            ExitCode::SUCCESS
        }
        Some("--version") => {
            // Whoever asked and went away before the answer has no use for an error.
            _ = std::io::stdout().write_all(concat!("shim ", env!("CARGO_PKG_VERSION"), "\n").as_bytes());
            ExitCode::SUCCESS
        }
        _ => {
            _ = std::io::stderr().write_all(USAGE.as_bytes());
            ExitCode::from(2)
        }
    }
}
