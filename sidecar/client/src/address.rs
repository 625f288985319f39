//! Where a sidecar's admin port is.

use std::net::{IpAddr, SocketAddr};

use longshore_sidecar_config::ports;

/// The admin port of one sidecar: of a pod, whose sidecar always has the same port, or anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdminAddress(SocketAddr);

impl AdminAddress {
    /// Address and port.
    pub fn socket(self) -> SocketAddr {
        self.0
    }
}

impl From<IpAddr> for AdminAddress {
    /// The sidecar of the pod that has this address.
    fn from(pod: IpAddr) -> Self {
        Self(SocketAddr::new(pod, ports::ADMIN))
    }
}

impl From<SocketAddr> for AdminAddress {
    fn from(address: SocketAddr) -> Self {
        Self(address)
    }
}
