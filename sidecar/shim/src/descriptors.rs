//! The descriptors that the shim was started with, and who is at the other end of one.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Sees to it that no process inherits what the shim inherited; all that it opens itself is not inherited anyway.
#[expect(unsafe_code, reason = "rustix has no call over descriptors that nobody here owns")]
pub(crate) fn keep_to_oneself() {
    const FIRST: libc::c_int = 3;
    // SAFETY: closes nothing, now or in this process ever: it only marks descriptors to be closed by `exec`.
    let marked = unsafe {
        libc::close_range(FIRST.cast_unsigned(), u32::MAX, libc::CLOSE_RANGE_CLOEXEC.cast_signed()) == 0
    };
    if !marked {
        // A kernel older than 5.11. Whoever inherits more descriptors than these is not a container's runtime.
        for descriptor in FIRST..1024 {
            // SAFETY: as above; a descriptor that is not open is an error that does not matter.
            unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
}

/// The user at the other end of a Unix socket.
///
/// rustix has this call, but with a process id that cannot be zero, and it is zero for a peer in another process
/// namespace: in a pod each container has its own.
#[expect(
    unsafe_code,
    reason = "rustix takes the peer's process id to be above zero, which it is not in a pod"
)]
pub(crate) fn peer_user(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both pointers are to values of the types that this option wants, alive for the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if result == 0 && length as usize == size_of::<libc::ucred>() {
        Ok(peer.uid)
    } else {
        Err(io::Error::last_os_error())
    }
}
