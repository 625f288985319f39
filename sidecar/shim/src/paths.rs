//! Where the shim meets the sidecar, as `longshore-sidecar-config` has it. That crate would bring a JSON parser into
//! a program that reads none, so the names are written again, and a test holds them to those of the contract.

/// The memory volume of the Unix sockets.
pub const SOCKETS_DIR: &str = "/run/longshore/sockets";
/// The socket in [`SOCKETS_DIR`] at which the sidecar hears that the container is to end.
pub const DRAIN_SOCKET: &str = "drain.sock";
/// The socket in [`SOCKETS_DIR`] at which the shim starts processes.
pub const STDIO_SOCKET: &str = "stdio.sock";
