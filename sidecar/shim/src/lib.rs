//! A tiny static program inside the server's own container.
//!
//! It shares that container with a program that nobody here knows, often on a small memory limit, so it is kept
//! small: no async runtime, no argument parser, and no crate beyond the system calls.
//!
//! * `shim drain` is the `preStop` hook of every server: see [`drain`].
//! * `shim -- COMMAND` is the first process of the container of a server that speaks over stdin and stdout: see
//!   [`mod@serve`], and [`protocol`] for what it and the sidecar say to each other. It knows processes and no MCP. The one
//!   that serves is a child of the first process there.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use rustix::process::getpid;
use rustix::thread::set_name;

mod children;
mod descriptors;
pub mod drain;
mod init;
mod log;
mod memory;
mod options;
pub mod paths;
pub mod protocol;
pub mod serve;
mod signals;
mod stderr;
mod termination;

pub use options::Options;

const USAGE: &str = "usage: shim [--peer-uid UID] [--socket PATH] [--until-stdin-closes] [--cgroups DIR]
            -- COMMAND [ARGUMENT]...
       shim drain [SOCKET]
       shim --version
";

/// Runs the program with its arguments, those after its own name.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(first) = arguments.next() else { return usage() };
    match first.to_str() {
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
        _ => match Options::parse(first, arguments) {
            Some(options) => match serve(&options) {
                Ok(code) => code,
                Err(error) => {
                    _ = std::io::stderr().write_all(format!("longshore: {error}\n").as_bytes());
                    ExitCode::FAILURE
                }
            },
            None => usage(),
        },
    }
}

fn serve(options: &Options) -> Result<ExitCode, serve::Error> {
    if getpid().is_init()
        && let Some(code) = init::run()?
    {
        return Ok(code);
    }
    // The kernel names it by the path that it was started by, which says nothing where it is read: in `ps`, and in the
    // log of what had too much memory.
    _ = set_name(c"shim");
    serve::run(options).map(|()| ExitCode::SUCCESS)
}

fn usage() -> ExitCode {
    _ = std::io::stderr().write_all(USAGE.as_bytes());
    ExitCode::from(2)
}
