//! The shim's paths are those of the contract between operator and sidecar.

use longshore_shim::paths;
use longshore_sidecar_config::paths as contract;

#[test]
fn the_shim_and_the_sidecar_mean_the_same_places() {
    assert_eq!(paths::SOCKETS_DIR, contract::SOCKETS_DIR);
    assert_eq!(paths::DRAIN_SOCKET, contract::DRAIN_SOCKET);
    assert_eq!(paths::STDIO_SOCKET, contract::STDIO_SOCKET);
}
