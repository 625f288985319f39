//! The real shim, beside a sidecar's sockets, and a server of few words behind it.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use longshore_sidecar_config::{Config, Keys, Upstream, paths};
use rustix::process::{Pid, Signal, kill_process};

use super::config::processes;
use super::recorder::{self, Heard};
use super::{Files, Sidecar, config, eventually};

/// A shim that is running. It ends with all its processes when the test is over.
pub(crate) struct Shim {
    child: Child,
    /// The log of the server's container. Nobody needs it, unless a test fails.
    log: File,
    /// What its processes were told, until that has been judged.
    pub(crate) heard: Option<Heard>,
}

/// A configuration in front of a server over stdio.
pub(crate) fn stdio() -> Config {
    let mut config = config(0);
    config.upstream = Upstream::Stdio {};
    config.limits.processes = Some(processes(32, 32));
    config
}

/// The machine's Python with these words. Hundreds of processes are started, so it is the program itself, not a script
/// that looks for it, and it does not look for packages.
pub(crate) fn python(words: &[&str]) -> Vec<String> {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
        String::from_utf8(output.expect("Python").stdout).expect("a path").trim().to_owned()
    });
    [&[program.as_str(), "-I", "-S"], words].concat().into_iter().map(str::to_owned).collect()
}

/// The server that does what it is asked for: `server.py`.
pub(crate) fn server(flags: &[&str]) -> Vec<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/stdio/server.py");
    python(&[&[script], flags].concat())
}

impl Shim {
    /// Starts it beside these files. What its processes are told is held against the schema of their revision.
    pub(crate) fn start(files: &Files, command: &[impl AsRef<str>]) -> Self {
        let heard = Heard::new(&files.path("sockets").join(paths::STDIO_SOCKET));
        let command = Heard::kept(command);
        let socket = files.path("sockets").join(paths::STDIO_SOCKET);
        let mut log = File::options();
        log.create(true).read(true).append(true);
        let log = log.open(files.path("sockets").join("log")).expect("a file");
        let child = Command::new(program())
            .arg("--socket")
            .arg(&socket)
            .arg("--")
            .args(command)
            .env(recorder::HEARD, heard.directory())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.try_clone().expect("the same"))
            .spawn()
            .expect("the shim");
        eventually("the shim listens", || socket.exists());
        Self { child, log, heard: Some(heard) }
    }

    /// The processes that it runs.
    pub(crate) fn processes(&self) -> Vec<u32> {
        children(self.child.id())
    }

    /// Sends it a signal, and its processes none.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a number");
        kill_process(pid, signal).expect("it runs");
    }

    /// Kills it, as a container without memory would end.
    pub(crate) fn kill(&mut self) {
        let processes = self.processes();
        let _ = self.child.kill();
        let _ = self.child.wait();
        for process in processes {
            // In a container they end with its first process.
            let pid = Pid::from_raw(process.cast_signed()).expect("a number");
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut said = String::new();
            let read = self.log.rewind().and_then(|()| self.log.read_to_string(&mut said));
            eprintln!("the shim had ended: {:?}; it wrote ({read:?}):\n{said}", self.child.try_wait());
        }
        self.kill();
        if let Some(heard) = self.heard.take().filter(|_| !std::thread::panicking()) {
            heard.judge();
        }
    }
}

/// A sidecar in front of processes of this command, which is connected.
pub(crate) fn serving(config: &Config, command: &[impl AsRef<str>], flags: &[&str]) -> (Shim, Sidecar) {
    let files = Files::new();
    files.write(config);
    beside(files, config, command, flags)
}

/// The same where clients have these keys.
pub(crate) fn serving_keyed(
    config: &Config,
    keys: &Keys,
    command: &[impl AsRef<str>],
    flags: &[&str],
) -> (Shim, Sidecar) {
    let files = Files::new();
    files.write_with_keys(config, keys);
    beside(files, config, command, flags)
}

fn beside(files: Files, config: &Config, command: &[impl AsRef<str>], flags: &[&str]) -> (Shim, Sidecar) {
    let shim = Shim::start(&files, command);
    let sidecar = Sidecar::with(files, flags).loaded().ready();
    settled(&shim, &sidecar, config);
    (shim, sidecar)
}

/// Waits until it is known what the server speaks, and the process is gone that was asked for it.
pub(crate) fn settled(shim: &Shim, sidecar: &Sidecar, config: &Config) {
    sidecar.log(|line| line["message"] == "detected which revisions the MCP server speaks");
    let most = 1 + config.limits.processes.map_or(0, |processes| processes.warm as usize);
    eventually("only the processes run that stay", || shim.processes().len() <= most);
}

/// The children of a process.
fn children(parent: u32) -> Vec<u32> {
    let tasks = format!("/proc/{parent}/task/{parent}/children");
    let text = std::fs::read_to_string(tasks).unwrap_or_default();
    text.split_ascii_whitespace().map(|pid| pid.parse().expect("a number")).collect()
}

/// The program, beside this one. It is built where it is not: a test of one package builds that package alone.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let own = std::env::current_exe().expect("its own path");
        let profile = own.parent().and_then(Path::parent).expect("a folder of a profile");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--locked", "-p", "longshore-shim", "--target-dir"]);
        build.arg(profile.parent().expect("a folder"));
        if profile.ends_with("release") {
            build.arg("--release");
        }
        let built = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo");
        assert!(built.success(), "the shim could not be built");
        profile.join("shim")
    })
}
