//! Between `longshore local` and a server that listens at a port: `longshore guard -- PROGRAM` starts it, and sees to it
//! that neither the server nor anything that it started outlives `local`, however that ends.
//!
//! The guard's stdin is a pipe whose other end `local` holds. When it closes, the server gets SIGTERM, and a moment
//! later SIGKILL. What its programs leave behind when they end comes to the guard (a subreaper) and is ended too:
//! `npx` and `uvx` start programs that start programs. For servers over stdio the shim does all of this.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group, set_child_subreaper,
    setsid, wait,
};
use thiserror::Error;
use tokio::io::AsyncReadExt as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until};

/// How long a server may take to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long what was killed may take to be gone.
const KILLED: Duration = Duration::from_secs(1);
/// How often it is looked whether all are gone.
const LOOK: Duration = Duration::from_millis(20);

/// Why the guard could not begin.
#[derive(Debug, Error)]
pub(crate) enum GuardError {
    /// The program is not there, or cannot be executed.
    #[error("cannot start {program:?}")]
    Start {
        /// Which.
        program: OsString,
        /// Why.
        source: io::Error,
    },
    /// It would not know when to end.
    #[error("cannot wait for the server's end")]
    Wait(#[from] io::Error),
}

/// Runs the program until it ends, or until stdin closes. Its exit code is the program's.
pub(crate) fn run(program: &OsString, arguments: &[OsString]) -> Result<ExitCode, GuardError> {
    // Without the terminal of `local`: a server that asks it for a password shall hear that there is none, rather than be
    // stopped by it.
    _ = setsid();
    // Before there is another thread: what the kernel gives back of lost grandchildren comes to the first one.
    set_child_subreaper(Some(getpid())).map_err(io::Error::from)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(watch(program, arguments));
    // A read of stdin that nobody waits for any longer must not hold the end up.
    runtime.shutdown_background();
    code
}

async fn watch(program: &OsString, arguments: &[OsString]) -> Result<ExitCode, GuardError> {
    let mut ended = signal(SignalKind::child())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|source| GuardError::Start { program: program.clone(), source })?;
    let server = Pid::from_child(&child);
    let mut status = None;
    let mut stdin = tokio::io::stdin();
    let mut byte = [0];
    // Nothing is ever written to it.
    let closed = stdin.read(&mut byte);
    tokio::pin!(closed);
    loop {
        tokio::select! {
            _ = ended.recv() => {
                reap(server, &mut status);
                if status.is_some() {
                    break;
                }
            }
            _ = &mut closed => break,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    end_all(server, &mut status).await;
    Ok(status.map_or(ExitCode::SUCCESS, code))
}

/// Ends every process that is left: politely, and then not.
async fn end_all(server: Pid, status: &mut Option<ExitStatus>) {
    let polite = Instant::now() + PATIENCE;
    let last = polite + KILLED;
    let mut told = Vec::new();
    loop {
        reap(server, status);
        let left = children();
        let now = Instant::now();
        // Not every kernel says whose children there are. Then it is known of the server alone whether it is there.
        let unlisted = left.is_none() && status.is_none();
        let left = left.unwrap_or_default();
        if left.is_empty() && !unlisted || now >= last {
            return;
        }
        if unlisted {
            if now >= polite {
                _ = kill_process_group(server, Signal::KILL);
            } else if !told.contains(&server) {
                _ = kill_process_group(server, Signal::TERM);
                told.push(server);
            }
        }
        for child in left {
            if now >= polite {
                _ = kill_process(child, Signal::KILL);
            } else if !told.contains(&child) {
                _ = kill_process(child, Signal::TERM);
                told.push(child);
            }
        }
        sleep_until((Instant::now() + LOOK).min(last)).await;
    }
}

/// Reaps all that have exited.
fn reap(server: Pid, status: &mut Option<ExitStatus>) {
    while let Ok(Some((pid, how))) = wait(WaitOptions::NOHANG) {
        if pid == server {
            *status = Some(ExitStatus::from_raw(raw(how)));
        }
    }
}

fn raw(status: WaitStatus) -> i32 {
    status.as_raw()
}

/// Whose parent this process is, if the kernel says so.
fn children() -> Option<Vec<Pid>> {
    let own = getpid().as_raw_nonzero();
    let list = std::fs::read_to_string(format!("/proc/self/task/{own}/children")).ok()?;
    Some(list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).filter_map(Pid::from_raw).collect())
}

/// As shells have it.
fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
