//! SIGCHLD and SIGTERM as something that poll can wait for.
//!
//! A handler and not `signalfd`: that would need the signals blocked, and processes inherit what is blocked. Handlers
//! end with `exec`, so there is nothing to restore.

use std::ffi::c_int;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use std::os::fd::AsFd as _;

use rustix::event::{EventfdFlags, eventfd};

static WAKE: OnceLock<OwnedFd> = OnceLock::new();
static STOP: AtomicBool = AtomicBool::new(false);

/// The process's signals, once it has asked for them.
pub(crate) struct Signals {
    wake: BorrowedFd<'static>,
}

impl Signals {
    pub(crate) fn install() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let wake = WAKE.get_or_init(|| event).as_fd();
        for signal in [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT] {
            handle(signal)?;
        }
        Ok(Self { wake })
    }

    /// Readable when a signal has come.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'static> {
        self.wake
    }

    /// Forgets that signals have come; to be called before whatever they were about is looked at.
    pub(crate) fn clear(&self) {
        // An event that is not there is no error here.
        _ = rustix::io::read(self.wake, &mut [0; 8]);
    }

    /// Whether somebody wants the shim to end.
    pub(crate) fn stop(&self) -> bool {
        STOP.load(Ordering::Relaxed)
    }
}

/// Runs between any two instructions: one store and one system call, which leaves `errno` alone.
extern "C" fn on_signal(signal: c_int) {
    if signal != libc::SIGCHLD {
        STOP.store(true, Ordering::Relaxed);
    }
    if let Some(wake) = WAKE.get() {
        _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
    }
}

#[expect(unsafe_code, reason = "rustix leaves signal handlers to libc, whose functions take pointers")]
fn handle(signal: c_int) -> io::Result<()> {
    // SAFETY: all zero is a valid sigaction, and no flag, mask or restorer is wanted but those set here; the handler
    // does nothing that a handler must not.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
