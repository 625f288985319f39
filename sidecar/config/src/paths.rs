//! Where the parts of a pod meet in its file systems.

/// The mount of the ConfigMap, and of the Secret with the hashes of the API keys and the keys of sessions. A directory,
/// never a `subPath`: only so does the kubelet update it in place.
pub const CONFIG_DIR: &str = "/etc/longshore/config";
/// [`crate::Config`] as JSON, in [`CONFIG_DIR`].
pub const CONFIG_FILE: &str = "config.json";
/// Where the Secret was mounted by itself, which a sidecar still takes for granted that is told nothing else.
pub const KEYS_DIR: &str = "/etc/longshore/keys";
/// [`crate::Keys`] as JSON, in [`KEYS_DIR`].
pub const KEYS_FILE: &str = "keys.json";
/// The volume that the sidecar writes the shim to; the server's container mounts it read-only. What else is in
/// [`SOCKETS_DIR`] is here where there is no such volume.
pub const PROGRAM_DIR: &str = "/run/longshore/program";
/// The shim's name in [`PROGRAM_DIR`].
pub const SHIM: &str = "shim";
/// The memory volume of the Unix sockets, which both containers may write: of stdio servers alone, since the container of
/// any other opens none.
pub const SOCKETS_DIR: &str = "/run/longshore/sockets";
/// The socket at which the server's `preStop` hook waits for the sidecar's drain.
pub const DRAIN_SOCKET: &str = "drain.sock";
/// The socket in [`SOCKETS_DIR`] at which the shim of a stdio server listens for the sidecar.
pub const STDIO_SOCKET: &str = "stdio.sock";
