//! What serves in a stdio server's container: starts a process for each connection, and outlives them all.
//!
//! One thread, one poll: it never waits for a process, a sidecar or the log, only for any of them. What it does on
//! each turn is in [`Shim::turn`].

use std::fmt;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{geteuid, getpid, set_child_subreaper, setsid};

mod lifeline;
mod process;

use self::lifeline::{Lifeline, Listener, Received};
use self::process::Process;
use crate::children;
use crate::descriptors::{self, Limit};
use crate::log::Log;
use crate::memory::Memory;
use crate::options::Options;
use crate::protocol::{Cause, Refusal, Report, Request, Session};
use crate::signals::Signals;

/// How many connections may be open that have not asked for anything yet.
const MAX_CALLERS: usize = 32;
/// How long each of them may take.
const CALLER: Duration = Duration::from_secs(5);
/// How long no connection is accepted after the system had no descriptor for one.
const BREATH: Duration = Duration::from_millis(100);
/// How long the last lines may take to reach the log.
const LAST_LINES: Duration = Duration::from_millis(500);

/// Why the shim could not begin, or could not go on.
#[derive(Debug)]
pub enum Error {
    /// Nobody could connect.
    Listen(std::path::PathBuf, io::Error),
    /// It would not know when a process ends.
    Signals(io::Error),
    /// It would not know of anything.
    Poll(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(path, error) => write!(f, "cannot listen at {}: {error}", path.display()),
            Self::Signals(error) => write!(f, "cannot handle signals: {error}"),
            Self::Poll(error) => write!(f, "cannot wait for events: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen(_, error) | Self::Signals(error) | Self::Poll(error) => Some(error),
        }
    }
}

/// Serves until SIGTERM and the end of all processes. Once in a process's life: it takes its signals, its children and
/// its limits, and is to be called before there is another thread.
pub fn run(options: &Options) -> Result<(), Error> {
    descriptors::keep_to_oneself();
    // A server that asks a terminal for a password shall hear that there is none, rather than be stopped by it.
    _ = setsid();
    // Processes whose parents died come to the shim, which is not the first process. Where that cannot be had, they go
    // to whoever is.
    _ = set_child_subreaper(Some(getpid()));
    let signals = Signals::install().map_err(Error::Signals)?;
    let listener =
        Listener::bind(&options.socket).map_err(|error| Error::Listen(options.socket.clone(), error))?;
    let mut shim = Shim {
        options,
        limit: Limit::raise(),
        stdin: options.until_stdin_closes.then(io::stdin),
        peer: options.peer.unwrap_or_else(|| geteuid().as_raw()),
        signals,
        listener: Some(listener),
        accept_from: None,
        callers: Vec::new(),
        processes: Vec::new(),
        last_number: 0,
        memory: Memory::new(&options.cgroups, Instant::now()),
        log: Log::new(),
    };
    while shim.turn(None).map_err(Error::Poll)? {}
    let until = Instant::now() + LAST_LINES;
    while shim.log.waits_for().is_some() && Instant::now() < until {
        shim.turn(Some(until)).map_err(Error::Poll)?;
    }
    children::kill_all();
    Ok(())
}

struct Shim<'options> {
    options: &'options Options,
    limit: Limit,
    /// Where its end is the shim's, until then.
    stdin: Option<io::Stdin>,
    /// Whose connections are served.
    peer: u32,
    signals: Signals,
    /// Until the container is about to end.
    listener: Option<Listener>,
    /// Not before this are connections accepted.
    accept_from: Option<Instant>,
    callers: Vec<Caller>,
    processes: Vec<Process>,
    last_number: u32,
    memory: Memory,
    log: Log,
}

/// A connection that has not asked for anything yet.
struct Caller {
    lifeline: Lifeline,
    until: Instant,
}

/// Whom an event is for.
#[derive(Clone, Copy)]
enum Source {
    Signals,
    Stdin,
    Log,
    Stderr(usize),
    Lifeline(usize),
    Listener,
    Caller(usize),
}

impl Shim<'_> {
    /// Waits for something to happen, and deals with it. `false`: there is nothing left to do.
    fn turn(&mut self, until: Option<Instant>) -> io::Result<bool> {
        let events = self.wait(until)?;
        let now = Instant::now();
        // In this order: a sidecar that died is noticed before the one that comes after it asks for its processes, and
        // what a process wrote is read before its end is told.
        for source in events {
            match source {
                Source::Signals => self.signalled(now),
                Source::Stdin => self.read_stdin(now),
                Source::Log => self.log.write(),
                Source::Stderr(index) => self.processes[index].read_stderr(now, &mut self.log),
                Source::Lifeline(index) => self.hear(index, now),
                Source::Listener => self.accept(now),
                // Removed below, so that the indices stay what they were.
                Source::Caller(index) => self.callers[index].until = now,
            }
        }
        self.serve_callers(now);
        for process in &mut self.processes {
            process.tick(now, &mut self.log);
        }
        self.measure(now);
        self.processes.retain_mut(|process| !process.is_over(now, &mut self.log));
        Ok(self.listener.is_some() || !self.processes.is_empty())
    }

    fn wait(&self, until: Option<Instant>) -> io::Result<Vec<Source>> {
        let now = Instant::now();
        let mut sources = vec![Source::Signals];
        let mut polled = vec![PollFd::from_borrowed_fd(self.signals.descriptor(), PollFlags::IN)];
        let mut watch = |source, descriptor, events| {
            sources.push(source);
            polled.push(PollFd::from_borrowed_fd(descriptor, events));
        };
        if let Some(stdin) = &self.stdin {
            watch(Source::Stdin, stdin.as_fd(), PollFlags::IN);
        }
        if let Some(stderr) = self.log.waits_for() {
            watch(Source::Log, stderr, PollFlags::OUT);
        }
        for (index, process) in self.processes.iter().enumerate() {
            if let Some(pipe) = process.stderr_pipe()
                && self.log.has_room()
            {
                watch(Source::Stderr(index), pipe, PollFlags::IN);
            }
            if let Some(lifeline) = process.lifeline() {
                watch(Source::Lifeline(index), lifeline.descriptor(), PollFlags::IN);
            }
        }
        let accepts = self.accept_from.is_none_or(|from| from <= now);
        if let Some(listener) = &self.listener
            && accepts
            // Otherwise they wait in the kernel's queue, for those who have connected to speak or to be given up.
            && self.callers.len() < MAX_CALLERS
        {
            watch(Source::Listener, listener.descriptor(), PollFlags::IN);
        }
        for (index, caller) in self.callers.iter().enumerate() {
            watch(Source::Caller(index), caller.lifeline.descriptor(), PollFlags::IN);
        }

        let due = self
            .processes
            .iter()
            .filter_map(Process::due)
            .chain(self.callers.iter().map(|caller| caller.until))
            .chain(self.accept_from.filter(|_| !accepts))
            .chain((!self.processes.is_empty()).then(|| self.memory.due()))
            .chain(until)
            .min();
        // Rounded up, or the turn comes a moment too early and the next one at once.
        let timeout = due.map(|due| {
            let left = due.saturating_duration_since(now) + Duration::from_micros(1);
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() }
        });
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(std::iter::zip(sources, polled)
            .filter(|(_, polled)| !polled.revents().is_empty())
            .map(|(source, _)| source)
            .collect())
    }

    fn signalled(&mut self, now: Instant) {
        self.signals.clear();
        self.reap();
        if self.signals.stop() {
            self.stop(now);
        }
    }

    /// Looks how much memory processes have, if it is time.
    fn measure(&mut self, now: Instant) {
        if self.processes.is_empty() {
            return;
        }
        let limit = self.memory.limit();
        for (group, kilobytes) in self.memory.measure(now).unwrap_or_default() {
            if let Some(process) = self.processes.iter_mut().find(|process| process.is(group)) {
                process.has(kilobytes, limit, &mut self.log);
            }
        }
    }

    /// Nobody has anything to say there: that it ends is all that matters.
    fn read_stdin(&mut self, now: Instant) {
        let Some(stdin) = &self.stdin else { return };
        match rustix::io::read(stdin, &mut [0; 64]) {
            Ok(1..) | Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(0) | Err(_) => {
                self.stdin = None;
                self.stop(now);
            }
        }
    }

    fn stop(&mut self, now: Instant) {
        // Whoever connects now finds nobody there, and whoever has connected is told below.
        self.listener = None;
        for caller in &mut self.callers {
            caller.until = now;
        }
        for process in &mut self.processes {
            process.force_end(Cause::Stopping, now);
        }
    }

    /// Reaps all that have exited: processes of connections, and orphans that came to the shim.
    fn reap(&mut self) {
        while let Some(pid) = children::exited() {
            let process = self.processes.iter_mut().find(|process| process.is(pid));
            if let Some(process) = &process {
                process.exited();
            }
            match (process, children::reap(pid)) {
                (Some(process), Some(status)) => process.reaped(status),
                (None, Some(_)) => {}
                // It has just exited, so this does not happen; it must not go on for ever if it does.
                (_, None) => break,
            }
        }
    }

    /// Something came from the sidecar of a process.
    fn hear(&mut self, index: usize, now: Instant) {
        let process = &mut self.processes[index];
        let Some(lifeline) = process.lifeline() else { return };
        match lifeline.receive() {
            Received::Request(Request::End(patience)) => process.end(Cause::Asked, patience, now),
            Received::Nothing => {}
            Received::Request(Request::Start(_) | Request::Adopt(_) | Request::Keep | Request::Leave(_))
            | Received::Nonsense(_)
            | Received::Closed => {
                process.abandon(now, &mut self.log);
            }
        }
    }

    fn accept(&mut self, now: Instant) {
        let Some(listener) = &self.listener else { return };
        match listener.accept(&self.limit) {
            Ok(Some(lifeline)) => match lifeline.peer_user() {
                Ok(user) if user == self.peer => self.callers.push(Caller { lifeline, until: now + CALLER }),
                // Not worth an answer, and no line either: whoever it is could fill the log.
                _ => {}
            },
            Ok(None) => {}
            Err(_) => self.accept_from = Some(now + BREATH),
        }
    }

    /// Deals with the callers that have said something, or have taken too long to.
    fn serve_callers(&mut self, now: Instant) {
        let mut index = 0;
        while index < self.callers.len() {
            if self.callers[index].until > now {
                index += 1;
                continue;
            }
            let Caller { lifeline, .. } = self.callers.swap_remove(index);
            match lifeline.receive() {
                Received::Request(Request::Start(session)) => self.start(session, lifeline, now),
                Received::Request(Request::Adopt(session)) => self.adopt(session, lifeline),
                Received::Request(Request::Keep) => {
                    self.processes.iter_mut().for_each(|process| process.keep(now));
                }
                Received::Request(Request::Leave(left)) => {
                    for process in &mut self.processes {
                        process.leave(left, now, &mut self.log);
                    }
                }
                Received::Request(Request::End(_)) => {
                    lifeline.send(&refused(Refusal::Misunderstood, "there is nothing to end"));
                }
                Received::Nonsense(error) => {
                    lifeline.send(&refused(Refusal::Misunderstood, &error.to_string()));
                }
                Received::Nothing | Received::Closed => {}
            }
        }
    }

    fn start(&mut self, session: Session, lifeline: Lifeline, now: Instant) {
        if self.listener.is_none() {
            lifeline.send(&refused(Refusal::Stopping, "the container is about to end"));
            return;
        }
        if self.processes.iter().any(|process| process.session == session) {
            lifeline.send(&refused(Refusal::Taken, "a process runs under this number"));
            return;
        }
        // Seen by people, in a log: that it begins anew after four billion is nothing to them.
        self.last_number = self.last_number.wrapping_add(1);
        match Process::start(self.options, &self.limit, session, self.last_number, lifeline, now) {
            Ok(process) => self.processes.push(process),
            Err((lifeline, error)) => {
                let error_text = error.to_string();
                // The system's number goes beside the words, for programs.
                let why = error_text.split(" (os error").next().unwrap_or_default();
                // A name without a slash was looked for in PATH, and not here.
                let program = Path::new(&self.options.program);
                let is_there = program.as_os_str().as_encoded_bytes().contains(&b'/') && program.is_file();
                let missing = if error.kind() == io::ErrorKind::NotFound && is_there {
                    " (the file is there: what is missing is the interpreter that it names)"
                } else {
                    ""
                };
                let words = format!("cannot start {}: {why}{missing}", self.options.program.display());
                self.log.say(&words);
                let errno = error.raw_os_error().unwrap_or(0);
                lifeline.send(&Report::Refused { reason: Refusal::NotStarted, errno, words });
            }
        }
    }

    fn adopt(&mut self, session: Session, lifeline: Lifeline) {
        let refused = match self.processes.iter_mut().find(|process| process.session == session) {
            Some(process) => match process.adopt(lifeline, &mut self.log) {
                Ok(()) => return,
                Err(lifeline) => lifeline,
            },
            None => lifeline,
        };
        refused.send(&self::refused(Refusal::Unknown, "no process waits under this number"));
    }
}

fn refused(reason: Refusal, words: &str) -> Report {
    Report::Refused { reason, errno: 0, words: words.to_owned() }
}
