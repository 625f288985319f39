//! Signals as something that poll can wait for, and none of them a process's inheritance.
//!
//! Handlers and not `signalfd`: that would need the signals blocked, and processes inherit what is blocked, and what is
//! ignored too. Handlers end with `exec`. So every signal that the shim was started to ignore (`nohup` does that, and
//! shells with what they run in the background) gets a handler that does nothing: the shim goes on ignoring it, and its
//! processes get the default.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::getpid;

static WAKE: OnceLock<OwnedFd> = OnceLock::new();
static STOP: AtomicBool = AtomicBool::new(false);

/// What ends the shim. The first process of a container has no default for any of them.
const STOPS: [c_int; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
/// And what else ends a container's first process: what images say as their `STOPSIGNAL` in place of SIGTERM, for the
/// programs that they are made for. The last is SIGRTMIN+3, as container runtimes count, whatever the C library keeps.
const STOPS_OF_IMAGES: [c_int; 4] = [libc::SIGQUIT, libc::SIGUSR1, libc::SIGWINCH, 34 + 3];

/// The process's signals, once it has asked for them.
pub(crate) struct Signals {
    wake: BorrowedFd<'static>,
}

impl Signals {
    pub(crate) fn install() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let wake = WAKE.get_or_init(|| event).as_fd();
        for signal in 1..=libc::SIGRTMAX() {
            match signal {
                // Rust programs ignore it, and their `Command` gives it back to what it starts.
                libc::SIGPIPE
                // With handlers a write to a terminal from the background would begin anew for ever.
                | libc::SIGTTIN
                | libc::SIGTTOU => {}
                _ if ignored(signal) => handle(signal, on_ignored)?,
                _ => {}
            }
        }
        handle(libc::SIGCHLD, on_signal)?;
        let of_images = STOPS_OF_IMAGES.iter().filter(|_| getpid().is_init());
        for signal in STOPS.iter().chain(of_images).copied() {
            // Who has the shim ignore SIGHUP or SIGINT means it to go on; nobody means that by SIGTERM.
            if signal == libc::SIGTERM || handled_by_default(signal) {
                handle(signal, on_signal)?;
            }
        }
        unblock()?;
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

extern "C" fn on_ignored(_: c_int) {}

fn ignored(signal: c_int) -> bool {
    disposition(signal) == Some(libc::SIG_IGN)
}

fn handled_by_default(signal: c_int) -> bool {
    disposition(signal) == Some(libc::SIG_DFL)
}

/// What happens when it comes; `None` for numbers that are no signal of ours.
#[expect(unsafe_code, reason = "rustix leaves signal handlers to libc, whose functions take pointers")]
fn disposition(signal: c_int) -> Option<libc::sighandler_t> {
    // SAFETY: all zero is a valid sigaction, and this call changes nothing but that value.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0).then_some(action.sa_sigaction)
    }
}

#[expect(unsafe_code, reason = "as above")]
fn handle(signal: c_int, handler: extern "C" fn(c_int)) -> io::Result<()> {
    // SAFETY: all zero is a valid sigaction, and no flag, mask or restorer is wanted but those set here; the handlers
    // do nothing that a handler must not.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets all signals through, to the shim and to what it starts.
#[expect(unsafe_code, reason = "as above")]
fn unblock() -> io::Result<()> {
    // SAFETY: an empty set of signals is initialised by the first call and read by the second.
    let result = unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}
