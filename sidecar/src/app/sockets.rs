//! Where a sidecar listens.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

use super::BindError;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// How much the kernel takes of what a client sends and nobody reads; it doubles that, for what it keeps beside it. Left alone
/// it takes 128 KiB, and megabytes from whoever was read fast before. That counts as the container's memory, and nobody needs a
/// key for it.
///
/// It is also what can be on its way at once: over a path of 100 ms some 300 KiB a second, which is 4 MiB in 13 of the 30
/// seconds that a request may take. Nobody speaks TLS here, so whoever comes from that far comes by a proxy that is near; and
/// within a cluster it is hundreds of megabytes a second.
///
/// What a client is sent is bounded by `worker::UNSENT` alone. One that reads nothing has soon no more room, and takes nothing
/// beyond what its own kernel holds; what is on its way to one that reads is its own speed. Only who has read fast, and from
/// then on confirms nothing, has megabytes wait here, until `worker::UNREAD`: no kernel does that by itself, and a bound of
/// that would be one for all who are far away.
pub(crate) const RECEIVED: usize = 32 * 1024;

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
        // Whoever is accepted has it, too, and has been told of it in the handshake.
        socket.set_recv_buffer_size(RECEIVED)?;
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
