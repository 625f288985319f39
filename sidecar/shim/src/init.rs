//! The first process of a container (`init`), which has the shim serve as its child.
//!
//! Servers ask who their parent is, and some end if it is 1: they take that for the end of whoever started them. So the
//! first process of a container starts none. It starts its own program once more, passes on that it is to end, and reaps
//! what comes to nobody else: orphans of what was executed in the container from outside.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitStatus, kill_process};

use crate::children;
use crate::serve::Error;
use crate::signals::Signals;

/// Not by its path: a sidecar that begins anew puts another file there.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Starts this program with the same arguments, and ends as it does. `None`: it cannot be started.
pub(crate) fn run() -> Result<Option<ExitCode>, Error> {
    // Before there is a child: neither its end nor what is said meanwhile is missed.
    let signals = Signals::install().map_err(Error::Signals)?;
    let Some(shim) = start() else { return Ok(None) };
    loop {
        match poll(&mut [PollFd::from_borrowed_fd(signals.descriptor(), PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Error::Poll(error.into())),
        }
        signals.clear();
        // The kernel ends all others with this one.
        if let Some(status) = reap(shim) {
            return Ok(Some(code(status)));
        }
        if signals.stop() {
            // Said again with every signal from then on, which is nothing new to it.
            _ = kill_process(shim, Signal::TERM);
        }
    }
}

fn start() -> Option<Pid> {
    let mut arguments = env::args_os();
    let mut command = Command::new(OWN_PROGRAM);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    let child = command.args(arguments).spawn().ok()?;
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// Reaps all that have exited, until it comes to the shim.
fn reap(shim: Pid) -> Option<WaitStatus> {
    while let Some(pid) = children::exited() {
        let status = children::reap(pid);
        if pid == shim || status.is_none() {
            return status;
        }
    }
    None
}

/// As shells have it.
fn code(status: WaitStatus) -> ExitCode {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}
