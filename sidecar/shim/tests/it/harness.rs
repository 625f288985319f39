//! A running shim, and the sidecar's end of its connections.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use longshore_shim::protocol::{Ended, MAX_PACKET, Patience, Refusal, Report, Request, Session};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType,
};
use rustix::process::{Pid, Signal, getuid, kill_process};

/// How long anything may take. Far more than it does: only a failure takes so long.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// The user of the shim where the tests run as root.
const NOBODY: u32 = 65534;
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

pub(crate) const NO_PATIENCE: Patience = Patience { input: Duration::ZERO, terminate: Duration::ZERO };
pub(crate) const PATIENCE: Patience =
    Patience { input: Duration::from_millis(100), terminate: Duration::from_millis(100) };
/// SIGTERM soon, and then all the time that a busy machine needs.
pub(crate) const TERM_SOON: Patience =
    Patience { input: Duration::from_millis(100), terminate: Duration::from_secs(60) };
pub(crate) const ALL_PATIENCE: Patience =
    Patience { input: Duration::from_secs(60), terminate: Duration::from_secs(60) };

pub(crate) struct Shim {
    folder: tempfile::TempDir,
    program: Child,
    /// Who is told to end.
    first: u32,
    /// Who serves.
    pid: u32,
}

/// How to start one.
pub(crate) struct Setup<'a> {
    options: Vec<&'a str>,
    command: Vec<&'a OsStr>,
    log: Option<Stdio>,
    stdin: Stdio,
    first: bool,
    before: &'a str,
}

impl<'a> Setup<'a> {
    pub(crate) fn new<S: AsRef<OsStr> + ?Sized>(command: &[&'a S]) -> Self {
        let command = command.iter().map(|word| (*word).as_ref()).collect();
        Self { options: Vec::new(), command, log: None, stdin: Stdio::null(), first: false, before: "" }
    }

    pub(crate) fn options(self, options: &[&'a str]) -> Self {
        Self { options: options.to_vec(), ..self }
    }

    pub(crate) fn log(self, log: Stdio) -> Self {
        Self { log: Some(log), ..self }
    }

    pub(crate) fn stdin(self, stdin: Stdio) -> Self {
        Self { stdin, ..self }
    }

    /// What a shell does before it becomes the shim.
    pub(crate) fn before(self, before: &'a str) -> Self {
        Self { before, ..self }
    }

    /// As the first process of a namespace; without root there is none.
    pub(crate) fn first(self) -> Option<Self> {
        getuid().is_root().then(|| Self { first: true, ..self })
    }

    pub(crate) fn start(self) -> Shim {
        let first = self.first;
        let mut shim = self.start_unheard();
        eventually("the shim listens", || shim.socket().exists());
        if first {
            let only_child = |parent| match children_of(parent)[..] {
                [(child, _)] => child,
                ref others => panic!("{others:?}"),
            };
            shim.first = only_child(shim.first);
            shim.pid = only_child(shim.first);
        }
        shim
    }

    /// Does not wait for it to listen, which it may never do.
    pub(crate) fn start_unheard(self) -> Shim {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        // Where the program was built its user may not be allowed to look.
        let copy = folder.path().join("shim");
        // By another process: this one forks in other threads, and a program that anybody has open to be written
        // cannot be run.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_shim")).arg(&copy).status().unwrap();
        assert!(copied.success());
        let log = self.log.unwrap_or_else(|| File::create(folder.path().join("log")).unwrap().into());
        let own = getuid().as_raw().to_string();
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{}\nexec \"$@\"", self.before)).arg("sh").arg(&copy);
        command.arg("--socket").arg(folder.path().join("stdio.sock"));
        if !self.options.contains(&"--peer-uid") {
            command.args(["--peer-uid", &own]);
        }
        command.args(&self.options).arg("--").args(&self.command);
        if getuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        if self.first {
            let inner = command;
            // Shells have what they run in the background ignore some of the signals by which it may be told to end.
            command = Command::new("env");
            command.args(["--default-signal=HUP,INT,QUIT", "unshare"]);
            command.args(["--pid", "--fork", "--kill-child", "setpriv", "--reuid=65534", "--regid=65534"]);
            command.args(["--clear-groups", "--"]).arg(inner.get_program()).args(inner.get_args());
            command.env("PATH", PATH);
        }
        // The tests' own may have folders that this user may not look into, which is another error than "not found".
        command.env("PATH", PATH);
        let program = command.stdin(self.stdin).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let pid = program.id();
        Shim { folder, program, first: pid, pid }
    }
}

impl Shim {
    /// One that runs this for each connection.
    pub(crate) fn of(command: &[&str]) -> Self {
        Setup::new(command).start()
    }

    /// One that runs this script for each connection.
    pub(crate) fn script(script: &str) -> Self {
        Self::of(&["sh", "-c", script])
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("stdio.sock")
    }

    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.path().join("log")).unwrap()).into_owned()
    }

    pub(crate) fn connect(&self) -> Lifeline {
        self.try_connect().unwrap()
    }

    pub(crate) fn try_connect(&self) -> rustix::io::Result<Lifeline> {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(self.socket())?)?;
        Ok(Lifeline(socket))
    }

    pub(crate) fn start(&self, session: u128) -> Process {
        self.ask(Request::Start(Session(session))).unwrap_or_else(|refusal| panic!("refused: {refusal:?}"))
    }

    pub(crate) fn adopt(&self, session: u128) -> Result<Process, (Refusal, i32, String)> {
        self.ask(Request::Adopt(Session(session)))
    }

    pub(crate) fn ask(&self, request: Request) -> Result<Process, (Refusal, i32, String)> {
        let lifeline = self.connect();
        lifeline.send(&request.encode());
        match lifeline.receive() {
            Some((Report::Started { number, life }, pipes)) => {
                let [stdin, stdout] = <[OwnedFd; 2]>::try_from(pipes).unwrap();
                Ok(Process { number, life, stdin: Some(stdin.into()), stdout: stdout.into(), lifeline })
            }
            Some((Report::Refused { reason, errno, words }, pipes)) => {
                assert!(pipes.is_empty());
                assert!(lifeline.receive().is_none(), "a refusal is the last word");
                Err((reason, errno, words))
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The first process of the container, where the shim has one.
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// The states of its children, dead ones included.
    pub(crate) fn children(&self) -> Vec<char> {
        children_of(self.pid()).into_iter().map(|(_, state)| state).collect()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.first.cast_signed()).unwrap(), signal).unwrap();
    }

    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub(crate) fn kill(&mut self) {
        self.program.kill().unwrap();
        self.program.wait().unwrap();
    }

    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        let mut status = None;
        eventually("the shim ends", || {
            status = self.program.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        _ = self.program.kill();
        _ = self.program.wait();
    }
}

/// The sidecar's end of a connection.
#[derive(Debug)]
pub(crate) struct Lifeline(OwnedFd);

impl Lifeline {
    pub(crate) fn send(&self, packet: &[u8]) {
        match rustix::net::send(&self.0, packet, SendFlags::NOSIGNAL) {
            // What the shim does not want to hear it need not wait for.
            Ok(_) | Err(rustix::io::Errno::PIPE) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Ends the connection, whoever else has it.
    pub(crate) fn shut(&self) {
        rustix::net::shutdown(&self.0, Shutdown::Both).unwrap();
    }

    /// The next report and its descriptors; `None` when the shim has closed the connection.
    pub(crate) fn receive(&self) -> Option<(Report, Vec<OwnedFd>)> {
        let timeout = DEADLINE.try_into().unwrap();
        let ready = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout)).unwrap();
        assert_eq!(ready, 1, "no report within {DEADLINE:?}");
        let mut packet = [0; MAX_PACKET];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::net::recvmsg(
            &self.0,
            &mut [IoSliceMut::new(&mut packet)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        );
        let length = match received {
            Ok(received) => received.bytes,
            // The shim closed it before it had read what we sent.
            Err(rustix::io::Errno::CONNRESET) => 0,
            Err(error) => panic!("{error}"),
        };
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        (length > 0).then(|| (Report::decode(&packet[..length]).unwrap(), descriptors))
    }
}

/// A process, as a sidecar has it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) number: u32,
    pub(crate) life: u16,
    pub(crate) stdin: Option<File>,
    pub(crate) stdout: File,
    pub(crate) lifeline: Lifeline,
}

impl Process {
    pub(crate) fn end(&mut self, patience: Patience) {
        self.stdin = None;
        self.lifeline.send(&Request::End(patience).encode());
    }

    pub(crate) fn ended(&self) -> Ended {
        loop {
            match self.lifeline.receive() {
                Some((Report::Resident(_), _)) => {}
                Some((Report::Ended(ended), _)) => {
                    assert!(self.lifeline.receive().is_none(), "an end is the last word");
                    return ended;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    pub(crate) fn write(&mut self, text: &str) {
        self.stdin.as_ref().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Reads a line; the pipe is blocking here.
    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        loop {
            self.stdout.read_exact(&mut byte).unwrap();
            if byte == *b"\n" {
                return String::from_utf8(line).unwrap();
            }
            line.push(byte[0]);
        }
    }

    pub(crate) fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        rest
    }
}

pub(crate) fn children_of(parent: u32) -> Vec<(u32, char)> {
    let parent = parent.to_string();
    let children = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let stat = fs::read_to_string(entry.unwrap().path().join("stat")).ok()?;
        let (pid, _) = stat.split_once(' ')?;
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?.chars().next()?;
        (fields.next()? == parent).then_some((pid.parse().ok()?, state))
    });
    children.collect()
}

/// Waits for it.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process runs; a dead one that nobody has reaped does not.
pub(crate) fn runs(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')))
}
