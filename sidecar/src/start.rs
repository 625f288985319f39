//! The sidecar's `postStart` hook. The kubelet starts the server's container when it returns, so it returns when the
//! server can be started: the shim is in its place, the configuration is loaded, the ports are open. It never waits
//! for the server, which would be a deadlock.

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

/// What has to be done.
#[derive(Clone, Debug)]
pub struct Start {
    /// The shim in the sidecar's image.
    pub shim_source: PathBuf,
    /// Where the server's container finds it.
    pub program_dir: PathBuf,
    /// The sidecar's admin port.
    pub admin: SocketAddr,
    /// When to give up. The kubelet itself sets no limit.
    pub deadline: Duration,
}

/// Why the server cannot be started.
#[derive(Debug, Error)]
pub enum StartError {
    /// The shim.
    #[error("cannot install {shim} in {directory}")]
    Install {
        /// Where it is.
        shim: PathBuf,
        /// Where it should be.
        directory: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The sidecar.
    #[error("the sidecar is not ready after {seconds} seconds: {reason}")]
    NotReady {
        /// How long it was waited for.
        seconds: u64,
        /// What it said last.
        reason: String,
    },
}

/// Installs the shim and waits for the sidecar.
pub fn start(start: &Start) -> Result<(), StartError> {
    let began = Instant::now();
    install(&start.shim_source, &start.program_dir).map_err(|source| StartError::Install {
        shim: start.shim_source.clone(),
        directory: start.program_dir.clone(),
        source,
    })?;
    loop {
        let reason = match ask(start.admin) {
            Ok(Answer::Started) => return Ok(()),
            Ok(Answer::NotYet(reason)) => reason,
            Err(error) => format!("{} does not answer: {error}", start.admin),
        };
        if began.elapsed() >= start.deadline {
            return Err(StartError::NotReady { seconds: start.deadline.as_secs(), reason });
        }
        std::thread::sleep(PAUSE);
    }
}

/// Writes and renames, so that nobody ever starts half a program, and one that runs is not overwritten.
fn install(source: &Path, directory: &Path) -> io::Result<()> {
    let temporary = directory.join(format!(".{}.{}", paths::SHIM, std::process::id()));
    fs::copy(source, &temporary)?;
    fs::set_permissions(&temporary, Permissions::from_mode(SHIM_MODE))?;
    fs::rename(&temporary, directory.join(paths::SHIM))
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
