//! The ports of the sidecar. A server may not use them; the schema of `McpServer` refuses them.

/// MCP: what clients talk to.
pub const MCP: u16 = 15380;
/// Probes, metrics and the inventory.
pub const ADMIN: u16 = 15381;
/// The sidecars of one server among themselves.
pub const PEERS: u16 = 15382;

/// Every port that a server may not use.
pub const RESERVED: [u16; 3] = [MCP, ADMIN, PEERS];
