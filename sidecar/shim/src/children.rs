//! The ends of processes: those that the shim started, and those that came to it when their parents ended.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, waitpid};

/// How long processes that were killed may take to be gone: one that the kernel holds in a call takes longer.
const KILLED: Duration = Duration::from_secs(1);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// A child that has exited, not reaped yet, so that nobody else can have its number meanwhile.
#[expect(unsafe_code, reason = "rustix's answer to this call does not say which child it is about")]
pub(crate) fn exited() -> Option<Pid> {
    // SAFETY: all zero is a valid siginfo, which this call may fill and nothing else; it is about a child if it was
    // filled, and has its number then.
    let pid = unsafe {
        let mut about: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        if libc::waitid(libc::P_ALL, 0, &raw mut about, options) == 0 { about.si_pid() } else { 0 }
    };
    Pid::from_raw(pid)
}

/// Reaps it.
pub(crate) fn reap(pid: Pid) -> Option<WaitStatus> {
    waitpid(Some(pid), WaitOptions::NOHANG).ok().flatten().map(|(_, status)| status)
}

/// Kills all that is left, when the shim itself is about to end.
///
/// The kernel does that at the end of a container's first process. Elsewhere what got away from its group would stay.
pub(crate) fn kill_all() {
    let until = Instant::now() + KILLED;
    loop {
        let children = children().unwrap_or_default();
        for child in &children {
            _ = kill_process(*child, Signal::KILL);
        }
        while let Some(pid) = exited() {
            reap(pid);
        }
        // Children of those come to the shim then: they are looked for again.
        if children.is_empty() || until <= Instant::now() {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

fn children() -> io::Result<Vec<Pid>> {
    let own = getpid().as_raw_nonzero();
    let list = fs::read_to_string(format!("/proc/self/task/{own}/children"))?;
    Ok(list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).filter_map(Pid::from_raw).collect())
}
