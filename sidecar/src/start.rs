//! How a pod starts. The sidecar puts the shim where the server's container finds it; its `postStart` hook, for which the
//! kubelet holds the server's container back, returns when the server can be started: the shim is in its place, the
//! configuration is loaded, the ports are open. It never waits for the server, which would be a deadlock.

use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use longshore_sidecar_config::paths;
use thiserror::Error;

/// How long to wait between two questions.
const PAUSE: Duration = Duration::from_millis(5);
/// How long one answer may take; the sidecar holds the question for most of a second.
const ANSWER: Duration = Duration::from_secs(2);
/// Anybody may run the shim, nobody may change it.
const SHIM_MODE: u32 = 0o555;

/// The shim cannot be put where the server's container finds it.
#[derive(Debug, Error)]
#[error("cannot install {shim} in {directory}")]
pub struct InstallError {
    /// Where it is.
    shim: PathBuf,
    /// Where it should be.
    directory: PathBuf,
    /// Why.
    source: io::Error,
}

/// The sidecar is not ready in time.
#[derive(Debug, Error)]
#[error("the sidecar is not ready after {seconds} seconds: {reason}")]
pub struct NotReady {
    /// How long it was waited for.
    seconds: u64,
    /// What it said last.
    reason: String,
}

/// Installs the shim. It is written and renamed, so that nobody ever starts half a program, and one that runs is not
/// overwritten.
pub fn install(shim: &Path, directory: &Path) -> Result<(), InstallError> {
    let temporary = directory.join(format!(".{}.{}", paths::SHIM, std::process::id()));
    let write = || {
        // One that was killed here has left it under the same number, and a file that nobody may change is not overwritten.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        fs::copy(shim, &temporary)?;
        fs::set_permissions(&temporary, Permissions::from_mode(SHIM_MODE))?;
        fs::rename(&temporary, directory.join(paths::SHIM))
    };
    write().map_err(|source| InstallError { shim: shim.to_owned(), directory: directory.to_owned(), source })
}

/// Waits until the sidecar at this admin port has started. The kubelet itself sets the hook no limit.
pub fn wait(admin: SocketAddr, deadline: Duration) -> Result<(), NotReady> {
    let began = Instant::now();
    loop {
        let reason = match ask(admin) {
            Ok(Answer::Started) => return Ok(()),
            Ok(Answer::NotYet(reason)) => reason,
            Err(error) => format!("{admin} does not answer: {error}"),
        };
        if began.elapsed() >= deadline {
            return Err(NotReady { seconds: deadline.as_secs(), reason });
        }
        std::thread::sleep(PAUSE);
    }
}

enum Answer {
    Started,
    NotYet(String),
}

fn ask(admin: SocketAddr) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&admin, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(b"GET /startupz HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut text = String::new();
    stream.take(64 * 1024).read_to_string(&mut text)?;
    let status = text.split_ascii_whitespace().nth(1);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok(if status == Some("200") { Answer::Started } else { Answer::NotYet(body.trim().to_owned()) })
}
