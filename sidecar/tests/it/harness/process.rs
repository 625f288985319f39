//! The program, running.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use longshore_sidecar_config::inventory::Inventory;
use longshore_sidecar_config::{Config, Keys, paths};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::http::connect;
use super::peer::free_port;
use super::{Files, Reply, Request, eventually, schemas, within};

/// A running sidecar. It is killed when the test is over.
pub(crate) struct Sidecar {
    pub(crate) files: Arc<Files>,
    pub(crate) mcp: SocketAddr,
    pub(crate) admin: SocketAddr,
    child: Mutex<Child>,
    out: Lines,
    err: Lines,
    /// Where it writes its audit log, if nobody reads that.
    unread: Option<ChildStdout>,
}

type Lines = Arc<Mutex<Vec<String>>>;

impl Sidecar {
    /// The flags of one that has a name among replicas.
    pub(crate) const POD: [&str; 4] = ["--pod-uid", "pod-1", "--pod-ip", "127.0.0.1"];

    /// Starts one with this configuration and nothing else, and waits until it has loaded it.
    pub(crate) fn start(config: &Config) -> Self {
        Self::flagged(config, &[])
    }

    /// The same with these flags.
    pub(crate) fn flagged(config: &Config, flags: &[&str]) -> Self {
        let files = Files::new();
        files.write(config);
        Self::with(files, flags).loaded()
    }

    /// The same where clients have these keys, and no flags.
    pub(crate) fn keyed(config: &Config, keys: &Keys) -> Self {
        let files = Files::new();
        files.write_with_keys(config, keys);
        Self::with(files, &[]).loaded()
    }

    /// Starts one with these files and flags.
    pub(crate) fn with(files: impl Into<Arc<Files>>, flags: &[&str]) -> Self {
        let mut sidecar = Self::begin(files.into(), flags, |_| false);
        sidecar.out = sidecar.unread.take().map(|out| collect(out, |_| false)).unwrap_or_default();
        sidecar
    }

    /// The same, but that nobody reads what it writes once it listens.
    pub(crate) fn unread(files: impl Into<Arc<Files>>, flags: &[&str]) -> Self {
        Self::begin(files.into(), flags, |line| line.contains("\"listening\""))
    }

    /// Starts one whose log is read up to a line that is the last.
    fn begin(files: Arc<Files>, flags: &[&str], is_last: fn(&str) -> bool) -> Self {
        let mut command = command(&files);
        // At ports of the kernel's choice, unless the test has another. Not so where clients come to: some test's sidecar
        // may still look for its server at a port that the kernel gives to the next who asks.
        for (flag, port) in [("--mcp-addr", free_port()), ("--admin-addr", 0), ("--peers-addr", 0)] {
            if !flags.contains(&flag) {
                command.args([flag, &format!("127.0.0.1:{port}")]);
            }
        }
        let mut child = command.args(flags).spawn().expect("the program");
        let unread = child.stdout.take();
        let err = collect(child.stderr.take().expect("stderr"), is_last);
        let line = eventually("it listens", || find(&err, |line| line["message"] == "listening"));
        let address =
            |name: &str| line[name].as_str().and_then(|text| text.parse().ok()).expect("an address");
        let shim = files.path("sockets").join(paths::STDIO_SOCKET);
        schemas::sidecar(address("mcp"), files.server_port(), shim);
        let (mcp, admin) = (address("mcp"), address("admin"));
        Self { files, mcp, admin, child: Mutex::new(child), out: Lines::default(), err, unread }
    }

    /// What there is of the audit log that nobody has read, once it has ended.
    pub(crate) fn left_unread(&mut self) -> String {
        let mut left = String::new();
        self.unread.as_mut().expect("stdout").read_to_string(&mut left).expect("text");
        left
    }

    /// Waits until a configuration is loaded.
    pub(crate) fn loaded(self) -> Self {
        eventually("a configuration is loaded", || self.get("/startupz").status == 200);
        self
    }

    /// Waits until the server is connected.
    pub(crate) fn ready(self) -> Self {
        eventually("the server is connected", || self.get("/readyz").status == 200);
        self
    }

    /// Asks the admin port.
    pub(crate) fn get(&self, path: &str) -> Reply {
        Request::new("GET", path).send(self.admin)
    }

    /// What it knows of its server, for whoever has this token.
    pub(crate) fn inventory(&self, token: &str) -> Inventory {
        let reply = Request::new("GET", "/v1/inventory").key(token).send(self.admin);
        assert_eq!(reply.status, 200, "{}", reply.text());
        serde_json::from_slice(&reply.body).expect("an inventory")
    }

    /// Kills it, and starts that of the same [pod](Self::POD) again.
    pub(crate) fn again(self) -> Self {
        self.signal(Signal::KILL);
        let files = self.files.clone();
        drop(self);
        Self::with(files, &Self::POD).loaded().ready()
    }

    /// Waits until the configuration with this digest runs.
    pub(crate) fn runs(&self, digest: &str) {
        eventually("the new configuration runs", || {
            let loaded = |line: &Value| line["message"] == "configuration loaded" && line["digest"] == digest;
            find(&self.err, loaded)
        });
    }

    /// The value of a metric.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics");
        let line = text.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}"))
    }

    /// Waits for an audit line.
    pub(crate) fn audit(&self, which: impl Fn(&Value) -> bool) -> Value {
        eventually("the audit line", || find(&self.out, &which))
    }

    /// Whether there is such an audit line by now.
    pub(crate) fn is_audited(&self, which: impl Fn(&Value) -> bool) -> bool {
        find(&self.out, which).is_some()
    }

    /// How many audit lines there are.
    pub(crate) fn audit_lines(&self) -> usize {
        self.out.lock().expect("no panic").len()
    }

    /// The audit line after the first `count`.
    pub(crate) fn audit_after(&self, count: usize) -> Value {
        eventually("one more audit line", || {
            let lines = self.out.lock().expect("no panic");
            lines.get(count).map(|line| serde_json::from_str(line).expect("JSON"))
        })
    }

    /// Waits for a log line.
    pub(crate) fn log(&self, which: impl Fn(&Value) -> bool) -> Value {
        eventually("the log line", || find(&self.err, &which))
    }

    /// How many times another replica has come to keep what so many changes, or more, of a client's have made of a session.
    /// Changes that follow each other fast may be told together.
    pub(crate) fn copied(&self, changes: u64) -> usize {
        let lines = self.err.lock().expect("no panic");
        let lines = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines
            .filter(|line| line["message"] == "another replica keeps what a client has set")
            .filter(|line| line["changes"].as_u64() >= Some(changes))
            .count()
    }

    /// Everything that it wrote.
    pub(crate) fn written(&self) -> String {
        let text = |lines: &Lines| lines.lock().expect("no panic").join("\n");
        text(&self.out) + "\n" + &text(&self.err)
    }

    /// Everything that its server has written on stderr, where that is a process.
    pub(crate) fn server_log(&self) -> String {
        std::fs::read_to_string(self.files.path("sockets").join("log")).expect("the log of its container")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child()), signal).expect("a signal");
    }

    /// Sends it a request whose client goes at once: the sidecar learns at the same time that there is the rest of it,
    /// and that nobody is there any more.
    pub(crate) fn is_left_with(&self, request: &Request) {
        let mut stream = connect(self.mcp);
        let bytes = request.bytes();
        let (most, rest) = bytes.split_at(bytes.len() - 9);
        stream.write_all(most).expect("most of it is written");
        std::thread::sleep(Duration::from_millis(100));
        self.signal(Signal::STOP);
        stream.write_all(rest).expect("the rest is written");
        drop(stream);
        self.signal(Signal::CONT);
    }

    /// What `shim drain` does: the server beside it is to end, and is held up until this is closed.
    pub(crate) fn hook(&self) -> UnixStream {
        let socket = self.files.path("sockets").join(paths::DRAIN_SOCKET);
        let mut stream = UnixStream::connect(socket).expect("the socket of hooks");
        stream.write_all(b"drain\n").expect("a hook");
        stream
    }

    /// Waits for its end.
    pub(crate) fn wait(&self, limit: Duration) -> ExitStatus {
        within(limit, "the sidecar ends", || self.child().try_wait().expect("a status"))
    }

    pub(crate) fn is_running(&self) -> bool {
        self.child().try_wait().expect("a status").is_none()
    }

    /// The bytes of memory that it holds.
    pub(crate) fn memory(&self) -> u64 {
        self.bytes("VmRSS:")
    }

    /// The most that it has held so far.
    pub(crate) fn peak(&self) -> u64 {
        self.bytes("VmHWM:")
    }

    fn bytes(&self, of: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child().id());
        let status = std::fs::read_to_string(path).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix(of)).expect("its memory");
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kilobytes << 10
    }

    /// How many descriptors it has open.
    pub(crate) fn descriptors(&self) -> usize {
        let path = format!("/proc/{}/fd", self.child().id());
        std::fs::read_dir(path).expect("its descriptors").count()
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().expect("no panic")
    }
}

/// Ends one. It is asked to where it writes down at its end how it was used (`sidecar/profile/train.sh`), which it has a
/// while for, and killed everywhere else.
pub(crate) fn end(child: &mut Child) {
    if std::env::var_os("LLVM_PROFILE_FILE").is_some() {
        let asked = kill_process(Pid::from_child(child), Signal::TERM);
        let deadline = Instant::now() + Duration::from_secs(30);
        while asked.is_ok() && matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// The program in front of these files: this checkout's, or the one that `LONGSHORE_SIDECAR` names.
pub(crate) fn command(files: &Files) -> Command {
    let named = std::env::var_os("LONGSHORE_SIDECAR");
    let mut command = Command::new(named.unwrap_or_else(|| env!("CARGO_BIN_EXE_longshore-sidecar").into()));
    command.arg("serve");
    for (flag, directory) in [
        ("--config-dir", "config"),
        ("--keys-dir", "keys"),
        ("--sockets-dir", "sockets"),
        ("--program-dir", "program"),
    ] {
        command.arg(flag).arg(files.path(directory));
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        end(&mut self.child());
        if std::thread::panicking() {
            eprintln!("the sidecar wrote:\n{}", self.written());
        }
        schemas::sidecar_ended(self.mcp);
    }
}

/// Collects lines up to one that is the last. Whoever writes more is not told that nobody reads it.
fn collect(from: impl Read + Send + 'static, is_last: fn(&str) -> bool) -> Lines {
    let lines = Lines::default();
    let into = lines.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let is_last = is_last(&line);
            into.lock().expect("no panic").push(line);
            if is_last {
                loop {
                    std::thread::park();
                }
            }
        }
    });
    lines
}

fn find(lines: &Lines, which: impl Fn(&Value) -> bool) -> Option<Value> {
    let lines = lines.lock().expect("no panic");
    lines.iter().map(|line| serde_json::from_str(line).expect("every line is JSON")).find(|line| which(line))
}
