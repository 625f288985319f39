//! Programs that are a cluster's, or that speak to one.

use std::ffi::OsStr;
use std::process::Command;

/// What says by which proxy this machine is left. What belongs to a cluster never does, and would lose its way.
const PROXIES: [&str; 6] =
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

/// A command that goes by no proxy; nor does what it starts.
#[must_use]
pub fn direct(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for variable in PROXIES {
        command.env_remove(variable);
    }
    command
}
