//! Where the parts of a pod meet in its file systems.

/// The ConfigMap's mount. A directory, never a `subPath`: only so does the kubelet update it in place.
pub const CONFIG_DIR: &str = "/etc/longshore/config";
/// [`crate::Config`] as JSON, in [`CONFIG_DIR`].
pub const CONFIG_FILE: &str = "config.json";
/// The mount of the Secret with the hashes of the API keys and the keys of sessions.
pub const KEYS_DIR: &str = "/etc/longshore/keys";
/// [`crate::Keys`] as JSON, in [`KEYS_DIR`].
pub const KEYS_FILE: &str = "keys.json";
/// The memory volume that the sidecar writes the shim to; the server's container mounts it read-only.
pub const PROGRAM_DIR: &str = "/run/longshore/program";
/// The shim's name in [`PROGRAM_DIR`].
pub const SHIM: &str = "shim";
/// The memory volume of the Unix sockets, which both containers may write.
pub const SOCKETS_DIR: &str = "/run/longshore/sockets";
/// The socket in [`SOCKETS_DIR`] at which the server's `preStop` hook waits for the sidecar's drain.
pub const DRAIN_SOCKET: &str = "drain.sock";
/// The socket in [`SOCKETS_DIR`] at which the shim of a stdio server listens for the sidecar.
pub const STDIO_SOCKET: &str = "stdio.sock";
