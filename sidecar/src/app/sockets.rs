//! Where a sidecar listens.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

use super::BindError;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Who may listen at the same address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    Nobody,
    Workers,
}

/// A socket that listens.
pub(super) fn listen(address: SocketAddr, share: Share) -> Result<TcpListener, BindError> {
    let open = || {
        let socket = bind(address, share)?;
        socket.listen(BACKLOG)?;
        Ok(TcpListener::from(socket))
    };
    open().map_err(|error| BindError::at(address, error))
}

/// A socket at which nobody listens yet.
pub(super) fn bind(address: SocketAddr, share: Share) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // The unspecified address stands for those of IPv4 too.
        socket.set_only_v6(false)?;
    }
    // A restart must not wait for connections of the process before.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(share == Share::Workers)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Where a socket is bound.
pub(super) fn local_address(socket: &Socket) -> io::Result<SocketAddr> {
    socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
}
