//! The process of a server: started under a guard or as a shim, started again when it ends, ended with `local`.

use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore_sidecar_config::Upstream;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::net::TcpSocket;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::output::STDERR;
use super::program::Program;
use super::report::shown;
use super::{Event, ServerId};

/// The longest piece of a line that is passed on at once.
const MAX_LINE: usize = 8 * 1024;
/// How many of the last lines are kept, to tell why a server ended.
const LAST_LINES: usize = 3;
/// How long after its end a server is started again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often it is looked meanwhile whether something else has its port: its sidecar would lead clients there.
const LOOK: Duration = Duration::from_millis(250);
/// A server that ran this long begins with the first pause again.
const GOOD_RUN: Duration = Duration::from_secs(10);
/// How long the last lines of a process that ended are waited for.
const REST: Duration = Duration::from_millis(500);
/// The highest number of a signal.
const LAST_SIGNAL: i32 = 64;
/// How long a guard or a shim may take to end its server: longer than what they give to it.
const END: Duration = Duration::from_secs(12);

/// What is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Launch {
    /// The server's program.
    pub(super) program: Program,
    /// Whether a shim starts it for each session, and where that listens; or it runs by itself.
    pub(super) kind: Kind,
}

/// How a server runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A shim starts a process for each session.
    Stdio {
        /// Where the shim listens.
        socket: PathBuf,
    },
    /// It listens at this port.
    Http {
        /// Which.
        port: u16,
    },
}

/// The server's process, looked after by a task. When this is dropped, the process is ended.
pub(super) struct Process {
    wanted: watch::Sender<Option<Launch>>,
    task: tokio::task::JoinHandle<()>,
    quiet: Arc<AtomicBool>,
}

impl Process {
    /// Looks after the process of a server.
    pub(super) fn start(
        id: ServerId,
        run: u64,
        launch: Option<Launch>,
        events: mpsc::UnboundedSender<Event>,
    ) -> Self {
        let (wanted, changes) = watch::channel(launch);
        let quiet = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(Supervisor { id, run, wanted: changes, events, quiet: quiet.clone() }.run());
        Self { wanted, task, quiet }
    }

    /// Something else is to run from now on, or nothing.
    pub(super) fn change(&self, launch: Option<Launch>) {
        self.wanted.send_if_modified(|current| {
            let changed = *current != launch;
            *current = launch;
            changed
        });
    }

    /// What it prints is no news any more: it is about to be ended.
    pub(super) fn hush(&self) {
        self.quiet.store(true, Ordering::Relaxed);
    }

    /// Ends it, and waits until it has ended.
    pub(super) async fn end(self) {
        let Self { wanted, task, .. } = self;
        drop(wanted);
        // The task does not panic and nobody aborts it.
        let _ = task.await;
    }
}

impl Launch {
    /// What the sidecar reaches like this.
    pub(super) fn new(program: Program, upstream: &Upstream, socket: PathBuf) -> Self {
        let kind = match upstream {
            Upstream::Stdio {} => Kind::Stdio { socket },
            Upstream::StreamableHttp { port, .. } | Upstream::Sse { port, .. } => Kind::Http { port: *port },
        };
        Self { program, kind }
    }

    /// A server that finds its port taken would say so in its own words, and another server would seem to be this one.
    fn check_port(&self) -> Result<(), String> {
        let Kind::Http { port } = self.kind else { return Ok(()) };
        // Nobody who tries to have it meanwhile, or to reach it, finds this in the way.
        let bound = TcpSocket::new_v4().and_then(|socket| {
            socket.set_reuseaddr(true)?;
            socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        });
        match bound {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(format!(
                "port {port}, at which the server is to listen, is taken: end the program that has it, or choose \
                 another in spec.transport (two servers on one machine cannot share one)"
            )),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Ends once something else has its port.
    async fn until_port_taken(&self) {
        while self.check_port().is_ok() {
            sleep(LOOK).await;
        }
    }

    /// Starts it, with a pipe for its stdin that ends it when it closes.
    fn start(&self) -> io::Result<Child> {
        // This very program, also when its file was replaced meanwhile.
        let mut command = Command::new(super::OWN_PROGRAM);
        command.arg0("longshore");
        match &self.kind {
            Kind::Stdio { socket } => {
                // How many may run the sidecar says, as on a cluster: it has some for itself, and some that are ending.
                command.arg("shim").arg("--socket").arg(socket).arg("--until-stdin-closes");
            }
            Kind::Http { .. } => {
                command.arg("guard");
            }
        }
        command.arg("--").arg(&self.program.file).args(&self.program.arguments);
        command.env_clear().envs(&self.program.environment).current_dir(&self.program.folder);
        // Both begin a session of their own, so Ctrl-C at the terminal is for `local`, which then ends all in order. What
        // led a group of its own already could not.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    }
}

struct Supervisor {
    id: ServerId,
    /// Which sidecar it is behind.
    run: u64,
    wanted: watch::Receiver<Option<Launch>>,
    events: mpsc::UnboundedSender<Event>,
    quiet: Arc<AtomicBool>,
}

/// Why a process is no longer attended.
enum Left {
    /// It ended by itself, or never began, also because something else has its port.
    Ended { message: String, port_taken: bool },
    /// Something else is wanted, or nothing ever again.
    Changed(Result<(), watch::error::RecvError>),
}

impl Supervisor {
    /// Ends when the other end of `wanted` has gone, and the process with it.
    async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let launch = self.wanted.borrow_and_update().clone();
            let began = Instant::now();
            let left = match &launch {
                Some(launch) => self.attend(launch).await,
                None => Left::Changed(self.wanted.changed().await),
            };
            if began.elapsed() >= GOOD_RUN {
                pause = FIRST_PAUSE;
            }
            let changed = match left {
                Left::Changed(changed) => changed,
                Left::Ended { message, port_taken } => {
                    let (id, run) = (self.id.clone(), self.run);
                    // Whoever listened has ended, and so does this.
                    let _ = self.events.send(Event::Process { id, run, message, port_taken });
                    let taken = async {
                        match launch.filter(|_| !port_taken) {
                            Some(launch) => launch.until_port_taken().await,
                            None => pending().await,
                        }
                    };
                    tokio::select! {
                        () = sleep(pause) => {
                            pause = (pause * 2).min(LONGEST_PAUSE);
                            continue;
                        }
                        // It is told of in the place of a start.
                        () = taken => continue,
                        changed = self.wanted.changed() => changed,
                    }
                }
            };
            pause = FIRST_PAUSE;
            if changed.is_err() {
                return;
            }
        }
    }

    /// Starts it and waits until it ends, or until something else is wanted; then ends it.
    async fn attend(&mut self, launch: &Launch) -> Left {
        if let Err(message) = launch.check_port() {
            return Left::Ended { message, port_taken: true };
        }
        let mut child = match launch.start() {
            Ok(child) => child,
            Err(error) => {
                let message = format!("it cannot be started: {error}");
                return Left::Ended { message, port_taken: false };
            }
        };
        // Whoever listened has ended, and so does this.
        let _ = self.events.send(Event::Started { id: self.id.clone(), run: self.run });
        let lifeline = child.stdin.take();
        let mut output = Output::follow(&self.id, &mut child, &self.quiet);
        let changed = tokio::select! {
            status = child.wait() => {
                let message = sentence(status, &output.end().await);
                return Left::Ended { message, port_taken: false };
            }
            changed = self.wanted.changed() => changed,
        };
        drop(lifeline);
        if timeout(END, child.wait()).await.is_err() {
            // What it started finds the pipe closed all the same.
            let _ = child.start_kill();
            let _ = child.wait().await;
        }
        output.end().await;
        Left::Changed(changed)
    }
}

/// What a process prints, on its way to standard error.
struct Output {
    last: Arc<Mutex<Vec<String>>>,
    readers: JoinSet<()>,
}

impl Output {
    fn follow(id: &ServerId, child: &mut Child, quiet: &Arc<AtomicBool>) -> Self {
        let mut output = Self { last: Arc::default(), readers: JoinSet::new() };
        let sink = || Sink { name: id.to_string(), last: output.last.clone(), quiet: quiet.clone() };
        let (for_stderr, for_stdout) = (sink(), sink());
        if let Some(stderr) = child.stderr.take() {
            output.readers.spawn(for_stderr.drink(stderr));
        }
        if let Some(stdout) = child.stdout.take() {
            output.readers.spawn(for_stdout.drink(stdout));
        }
        output
    }

    /// Waits a moment for what is still to come, and gives the last lines.
    async fn end(&mut self) -> Vec<String> {
        let all = async { while self.readers.join_next().await.is_some() {} };
        // Who inherited the pipe may keep it open for as long as they like.
        let _ = timeout(REST, all).await;
        self.readers.abort_all();
        std::mem::take(&mut *self.last.lock())
    }
}

/// Where the lines of a process go.
struct Sink {
    name: String,
    last: Arc<Mutex<Vec<String>>>,
    quiet: Arc<AtomicBool>,
}

impl Sink {
    async fn drink(self, from: impl AsyncRead + Unpin) {
        let mut from = BufReader::with_capacity(MAX_LINE, from);
        let mut line = Vec::new();
        loop {
            let Ok(buffer) = from.fill_buf().await else { return };
            let ended = buffer.is_empty();
            let (used, whole) = match buffer.iter().position(|byte| *byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (buffer.len(), ended),
            };
            line.extend_from_slice(&buffer[..used]);
            from.consume(used);
            if whole || line.len() >= MAX_LINE {
                self.line(String::from_utf8_lossy(&line).trim_end());
                line.clear();
            }
            if ended {
                return;
            }
        }
    }

    /// To standard error, with the name of its server.
    fn line(&self, text: &str) {
        if text.is_empty() || self.quiet.load(Ordering::Relaxed) {
            return;
        }
        STDERR.line(format_args!("{} | {}", self.name, shown(text)));
        let mut last = self.last.lock();
        if last.len() == LAST_LINES {
            last.remove(0);
        }
        last.push(text.to_owned());
    }
}

/// How a process ended, and its last words.
fn sentence(status: io::Result<ExitStatus>, last: &[String]) -> String {
    let how = match status {
        Err(error) => format!("it is not known how it ended: {error}"),
        Ok(status) => match (status.code(), status.signal()) {
            // The guard says 128 and the number, as shells do. Beyond the last signal it is a code like any other: many a
            // program ends with 255.
            (Some(code), _) if (1..=LAST_SIGNAL).contains(&(code - 128)) => {
                format!("it was killed by signal {}", code - 128)
            }
            (Some(code), _) => format!("it exited with code {code}"),
            (None, Some(signal)) => format!("it was killed by signal {signal}"),
            (None, None) => "it ended".to_owned(),
        },
    };
    match last {
        [] => how,
        lines => format!("{how}; its last lines: {}", lines.join(" / ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_process_ended_is_said_as_it_was() {
        for (status, last, expected) in [
            (0, &[][..], "it exited with code 0"),
            (1 << 8, &["no", "really"], "it exited with code 1; its last lines: no / really"),
            (255 << 8, &[], "it exited with code 255"),
            (193 << 8, &[], "it exited with code 193"),
            (143 << 8, &[], "it was killed by signal 15"),
            (9, &[], "it was killed by signal 9"),
        ] {
            let last: Vec<_> = last.iter().map(|line| (*line).to_owned()).collect();
            assert_eq!(sentence(Ok(ExitStatus::from_raw(status)), &last), expected);
        }
    }
}
