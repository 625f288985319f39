//! The descriptors that the shim was started with, how many it may have, and who is at the other end of one.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

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

/// How many descriptors the shim needs for each process: its pipes and its lifeline.
const EACH: u64 = 4;
/// For how many it has them: for all that a sidecar may have, and for those of one before it that have not ended yet.
const PROCESSES: u64 = 2048;
/// And for all else.
const REST: u64 = 64;

/// How many descriptors the shim may have, and how many its processes may.
///
/// Many containers are given 1024, and may take more. The shim takes what it needs; processes get what was given, since
/// one that uses `select`, or closes all that it could have, is lost with more. `posix_spawn` knows no limits and checks
/// the numbers of what it hands over against the caller's, so the shim takes its own back for that moment and has low
/// numbers free for it: what it keeps, it keeps above.
pub(crate) struct Limit {
    given: Rlimit,
    raised: Option<Raised>,
}

struct Raised {
    limit: Rlimit,
    above: RawFd,
}

impl Limit {
    pub(crate) fn raise() -> Self {
        let given = getrlimit(Resource::Nofile);
        let needed = PROCESSES * EACH + REST;
        let raised = given.current.filter(|current| *current < needed).and_then(|current| {
            let most = given.maximum.unwrap_or(u64::MAX);
            let limit = Rlimit { current: Some(current.saturating_add(needed).min(most)), ..given };
            let above = RawFd::try_from(current).ok()?;
            // Without it fewer processes can run.
            (most > current && setrlimit(Resource::Nofile, limit).is_ok()).then_some(Raised { limit, above })
        });
        Self { given, raised }
    }

    /// The descriptor under a number that is in nobody's way.
    pub(crate) fn keep(&self, descriptor: OwnedFd) -> OwnedFd {
        match &self.raised {
            Some(Raised { above, .. }) => fcntl_dupfd_cloexec(&descriptor, *above).unwrap_or(descriptor),
            None => descriptor,
        }
    }

    /// Starts a process, with the limit that the container gave.
    pub(crate) fn with_given<T>(&self, start: impl FnOnce() -> T) -> T {
        let Some(Raised { limit, .. }) = &self.raised else { return start() };
        // Neither fails: the first lowers, the second goes as far as it was allowed to go before.
        _ = setrlimit(Resource::Nofile, self.given);
        let started = start();
        _ = setrlimit(Resource::Nofile, *limit);
        started
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
