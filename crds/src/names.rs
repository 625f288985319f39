//! Names that are Longshore's, in one place for the schema's rules and for the operator.

/// Labels and annotations under this domain are Longshore's.
pub const DOMAIN: &str = "longshore.dev";
/// Volumes whose names begin so are Longshore's.
pub const VOLUME_PREFIX: &str = "longshore-";
/// The container in front of the server's.
pub const SIDECAR_CONTAINER: &str = "longshore-sidecar";
/// The server's container.
pub const SERVER_CONTAINER: &str = "server";
/// The user and group that the sidecar runs as. A server must not: a process of the same user could read the
/// sidecar's memory and join its listener.
pub const SIDECAR_USER: i64 = 15380;
/// The longest name of an `McpServer`: its Service is named after it, and other objects get a suffix.
pub const MAX_NAME_LENGTH: usize = 50;
