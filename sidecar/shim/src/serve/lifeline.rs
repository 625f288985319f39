//! The shim's end of the connections.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::cmsg_space;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};

use crate::descriptors::{self, Limit};
use crate::protocol::{DecodeError, MAX_PACKET, Report, Request};

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
/// The pod's group has the socket; who connects is looked at besides.
const MODE: Mode = Mode::from_raw_mode(0o660);
/// A sidecar that starts all its sessions' processes at once waits, rather than fails.
const BACKLOG: i32 = 128;

/// Where sidecars connect.
pub(super) struct Listener {
    socket: OwnedFd,
    path: PathBuf,
}

impl Listener {
    /// Listens at `path`, in place of a shim that was there before. The path never leads to a socket that does not
    /// listen yet, or that has other permissions yet.
    pub(super) fn bind(path: &Path) -> io::Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let new = PathBuf::from(name);
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(&new)?)?;
        rustix::fs::chmod(&new, MODE)?;
        rustix::net::listen(&socket, BACKLOG)?;
        std::fs::rename(&new, path)?;
        Ok(Self { socket, path: path.to_owned() })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The next connection, if there is one.
    pub(super) fn accept(&self, limit: &Limit) -> rustix::io::Result<Option<Lifeline>> {
        match rustix::net::accept_with(&self.socket, FLAGS) {
            Ok(connection) => Ok(Some(Lifeline(limit.keep(connection)))),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A sidecar that finds nothing knows at once; one that finds a dead socket knows too.
        _ = std::fs::remove_file(&self.path);
    }
}

/// One connection.
pub(super) struct Lifeline(OwnedFd);

/// What came over a connection.
pub(super) enum Received {
    Request(Request),
    Nonsense(DecodeError),
    Nothing,
    Closed,
}

impl Lifeline {
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(super) fn peer_user(&self) -> io::Result<u32> {
        descriptors::peer_user(self.0.as_fd())
    }

    pub(super) fn receive(&self) -> Received {
        // One more than may be, to tell a packet that is too long. Descriptors that come along are closed by the
        // kernel, since nobody makes room for them.
        let mut packet = [0; MAX_PACKET + 1];
        match rustix::net::recv(&self.0, &mut packet[..], RecvFlags::empty()) {
            Ok((0, _)) => Received::Closed,
            Ok((length, _)) => match Request::decode(&packet[..length]) {
                Ok(request) => Received::Request(request),
                Err(error) => Received::Nonsense(error),
            },
            Err(Errno::AGAIN | Errno::INTR) => Received::Nothing,
            Err(_) => Received::Closed,
        }
    }

    /// Says so. A connection has room for many more packets than are sent while a sidecar that lives does not read, so
    /// an error means that nobody is there, and the next [`Self::receive`] says that.
    pub(super) fn send(&self, report: &Report) {
        _ = rustix::net::send(&self.0, &report.encode(), SendFlags::NOSIGNAL);
    }

    /// Says so, and hands over the two pipes. This can fail with somebody there, who would wait for ever: the kernel
    /// limits the descriptors that are on their way.
    pub(super) fn send_with(&self, report: &Report, pipes: [BorrowedFd<'_>; 2]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&pipes)) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        rustix::net::sendmsg(&self.0, &[IoSlice::new(&report.encode())], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}
