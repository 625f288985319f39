//! Servers and clients that others wrote: `e2e/peers/install.sh` installs them.

mod installed;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) use installed::folder;

use super::recorder::Recorder;
use super::replicas::Listens;
use super::within;

/// How long a program may take to start. Some have thousands of files to read first, several at once.
const START: Duration = Duration::from_secs(180);

/// A program of theirs that is running. It is killed when the test is over.
pub(crate) struct Peer {
    child: Child,
    pub(crate) port: u16,
    pub(crate) recorder: Option<Recorder>,
}

impl Peer {
    /// A program that has been started, when it listens at this port.
    pub(crate) fn listening(child: Child, port: u16) -> Self {
        let peer = Self { child, port, recorder: None };
        let listens = || std::net::TcpStream::connect(("127.0.0.1", port)).ok();
        within(START, "it listens", listens);
        peer
    }

    /// The same with somebody who hears what it is told, at this port (0: at any).
    pub(crate) fn heard(self, at: u16) -> Self {
        let recorder = Recorder::at(at, self.port);
        // This one is dropped when nothing is left of it but its place.
        let mut peer = self;
        (peer.port, peer.recorder) = (recorder.port, Some(recorder));
        peer
    }

    /// Kills it, as a node without memory would.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.recorder = None;
    }
}

impl Listens for Peer {
    fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A server on the Go SDK.
pub(crate) struct GoServer {
    peer: Option<Peer>,
    /// Where it listens for clients.
    pub(crate) port: u16,
    flags: Vec<String>,
}

impl GoServer {
    pub(crate) fn start(flags: &[&str]) -> Self {
        Self::at(0, flags)
    }

    pub(crate) fn at(port: u16, flags: &[&str]) -> Self {
        let flags: Vec<_> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let peer = go(port, &flags);
        Self { port: peer.port, peer: Some(peer), flags }
    }

    pub(crate) fn kill(&mut self) {
        self.peer = None;
    }

    /// Starts it again at the same port.
    pub(crate) fn start_again(&mut self) {
        self.peer = None;
        self.peer = Some(go(self.port, &self.flags));
    }

    /// It says nothing any more, and its port takes connections all the same.
    pub(crate) fn hang(&self) {
        let peer = self.peer.as_ref().expect("it runs");
        kill_process(Pid::from_child(&peer.child), Signal::STOP).expect("a signal");
    }
}

impl Listens for GoServer {
    fn port(&self) -> u16 {
        self.port
    }
}

fn go(at: u16, flags: &[String]) -> Peer {
    let port = Recorder::server_port(at);
    let mut command = Command::new(folder().join("bin/go-server"));
    command.args(["-listen", &format!("127.0.0.1:{port}")]).args(flags);
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the Go server");
    // The rest is read away, so that it can go on writing.
    let mut lines = BufReader::new(child.stderr.take().expect("stderr")).lines();
    lines
        .find(|line| line.as_ref().is_ok_and(|line| line.starts_with("serving")))
        .expect("it serves")
        .expect("text");
    std::thread::spawn(move || lines.for_each(drop));
    Peer { child, port, recorder: None }.heard(at)
}

/// The protocol's own test server.
pub(crate) fn everything() -> Peer {
    let port = free_port();
    let mut command = Command::new(folder().join("bin/mcp-server-everything"));
    command.arg("streamableHttp").env("PORT", port.to_string());
    listening(command, port).heard(0)
}

/// The same over HTTP+SSE, at `/sse`.
pub(crate) fn everything_over_sse() -> Peer {
    let port = free_port();
    let mut command = Command::new(folder().join("bin/mcp-server-everything"));
    command.arg("sse").env("PORT", port.to_string());
    listening(command, port).heard(0)
}

/// A server on the Python SDK over HTTP+SSE, at `/sse`.
pub(crate) struct PythonServer {
    peer: Option<Peer>,
    pub(crate) port: u16,
}

/// Starts one. Its tool `say` says what it is told.
pub(crate) fn python_sse_server() -> PythonServer {
    let peer = python_over_sse(0);
    PythonServer { port: peer.port, peer: Some(peer) }
}

impl PythonServer {
    /// Starts it again at the same port.
    pub(crate) fn start_again(&mut self) {
        self.peer = None;
        self.peer = Some(python_over_sse(self.port));
    }
}

fn python_over_sse(at: u16) -> Peer {
    let port = Recorder::server_port(at);
    const SERVER: &str = r#"
import sys, uvicorn
from mcp.server.mcpserver import MCPServer
server = MCPServer("python")

@server.tool()
def say(text: str) -> str:
    return text

uvicorn.run(server.sse_app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
"#;
    let mut command = Command::new(folder().join("bin/python"));
    command.args(["-c", SERVER, &port.to_string()]);
    listening(command, port).heard(at)
}

fn listening(mut command: Command, port: u16) -> Peer {
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the server");
    Peer::listening(child, port)
}

/// A port that nobody listens at, and that nobody gets who asks the system for any: until a server listens at it that
/// has just been started, sidecars beside it are given many. Other programs of tests begin elsewhere.
pub(crate) fn free_port() -> u16 {
    const FIRST: u32 = 20_000;
    const COUNT: u32 = 10_000;
    const APART: u32 = 97;
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let begin = std::process::id().wrapping_mul(APART);
    let next = || FIRST + begin.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % COUNT;
    let mut ports = std::iter::repeat_with(|| u16::try_from(next()).expect("a port")).take(COUNT as usize);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
}

/// Runs a script of the TypeScript SDKs' folder and gives what it printed, which is JSON.
pub(crate) fn node(script: &str, arguments: &[&str]) -> Value {
    node_in(&folder().join("typescript"), script, arguments)
}

/// The same of another folder.
pub(crate) fn node_in(project: &Path, script: &str, arguments: &[&str]) -> Value {
    let mut command = Command::new(folder().join("bin/node"));
    command.args(["--input-type=module", "-"]).args(arguments).current_dir(project);
    run(command, script)
}

/// Runs a script with the Python SDK and gives what it printed, which is JSON.
pub(crate) fn python(script: &str, arguments: &[&str]) -> Value {
    let mut command = Command::new(folder().join("bin/python"));
    command.arg("-").args(arguments);
    run(command, script)
}

/// Runs the Inspector and gives what it printed.
pub(crate) fn inspector(arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(folder().join("bin/mcp-inspector"));
    command.args(arguments).args(["--connect-timeout", "60000"]);
    let output = command.stdin(Stdio::null()).output().expect("the Inspector");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

fn run(mut command: Command, script: &str) -> Value {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("the client's program");
    child.stdin.take().expect("stdin").write_all(script.as_bytes()).expect("the script");
    let output = child.wait_with_output().expect("its end");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "the client failed: {text}");
    serde_json::from_str(text.trim()).unwrap_or_else(|error| panic!("{error}: {text}"))
}
