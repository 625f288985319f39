//! One process: its pipes, its connection, its end.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitStatus, kill_process_group, waitid};

use super::lifeline::Lifeline;
use crate::ladder::{self, Action, Ladder};
use crate::log::Log;
use crate::options::Options;
use crate::protocol::{ADOPTION, Cause, Ended, Outcome, Patience, Report, Session};
use crate::stderr::{Measure, Stderr};

/// How much of its stderr is read before others have their turn.
const READ: usize = 16 << 10;
/// A pipe that nobody fills any more holds no more than this many reads; what is left after that comes from a
/// process that got away from the group.
const LAST_READS: usize = 16;

pub(super) struct Process {
    pub(super) session: Session,
    number: u32,
    /// Also the number of its group.
    pid: Pid,
    /// Until it is told to end.
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr_pipe: Option<OwnedFd>,
    stderr: Stderr,
    hold: Hold,
    ladder: Option<Ladder>,
    cause: Cause,
    outcome: Option<Outcome>,
}

/// Who has the process.
enum Hold {
    /// The sidecar at the other end.
    Lifeline(Lifeline),
    /// Nobody; until then somebody may adopt it.
    Abandoned(Instant),
    /// Nobody, and nobody may.
    Nobody,
}

impl Process {
    pub(super) fn start(
        options: &Options,
        session: Session,
        number: u32,
        lifeline: Lifeline,
        now: Instant,
    ) -> Result<Self, (Lifeline, io::Error)> {
        match Self::spawn(options) {
            Ok((pid, stdin, stdout, stderr)) => {
                let process = Self {
                    session,
                    number,
                    pid,
                    stdin: Some(stdin),
                    stdout,
                    stderr_pipe: Some(stderr),
                    stderr: Stderr::new(number, now),
                    hold: Hold::Nobody,
                    ladder: None,
                    cause: Cause::Own,
                    outcome: None,
                };
                Ok(process.held_by(lifeline))
            }
            Err(error) => Err((lifeline, error)),
        }
    }

    /// The standard library's spawn is `posix_spawn` here: it reports what `exec` said, opens all pipes to be closed
    /// by `exec`, and gives SIGPIPE, which Rust programs ignore, its default back. Its `Child` is not kept, since it
    /// would be reaped in two places then.
    fn spawn(options: &Options) -> io::Result<(Pid, OwnedFd, OwnedFd, OwnedFd)> {
        let mut child = Command::new(&options.program)
            .args(&options.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own: the ladder reaches what it starts too.
            .process_group(0)
            .spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        match (pid, child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(pid), Some(stdin), Some(stdout), Some(stderr)) => {
                let stderr = OwnedFd::from(stderr);
                // Its other end, which the process has, stays blocking: they are two open files.
                rustix::io::ioctl_fionbio(&stderr, true)?;
                Ok((pid, stdin.into(), stdout.into(), stderr))
            }
            // Asked for above.
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn held_by(mut self, lifeline: Lifeline) -> Self {
        self.hand_to(lifeline);
        self
    }

    /// Gives the process to the sidecar at the other end, with its pipes. One that is about to end stays with nobody.
    fn hand_to(&mut self, lifeline: Lifeline) {
        if let Some(stdin) = &self.stdin {
            lifeline
                .send_with(&Report::Started { number: self.number }, [stdin.as_fd(), self.stdout.as_fd()]);
            self.hold = Hold::Lifeline(lifeline);
        }
    }

    /// Hands it over if it waits for that, else the connection back.
    pub(super) fn adopt(&mut self, lifeline: Lifeline, log: &mut Log) -> Result<(), Lifeline> {
        if !matches!(self.hold, Hold::Abandoned(_)) || self.outcome.is_some() {
            return Err(lifeline);
        }
        log.about(self.number, "taken over by another sidecar");
        self.hand_to(lifeline);
        Ok(())
    }

    pub(super) fn lifeline(&self) -> Option<&Lifeline> {
        match &self.hold {
            Hold::Lifeline(lifeline) => Some(lifeline),
            Hold::Abandoned(_) | Hold::Nobody => None,
        }
    }

    pub(super) fn stderr_pipe(&self) -> Option<BorrowedFd<'_>> {
        self.stderr_pipe.as_ref().map(OwnedFd::as_fd)
    }

    /// Its sidecar is gone.
    pub(super) fn abandon(&mut self, now: Instant, log: &mut Log) {
        self.hold = if self.ladder.is_some() {
            Hold::Nobody
        } else {
            log.about(self.number, "its sidecar went away without ending it");
            Hold::Abandoned(now + ADOPTION)
        };
    }

    /// Brings it to its end, or hurries it.
    pub(super) fn end(&mut self, cause: Cause, patience: Patience, now: Instant) {
        match &mut self.ladder {
            Some(ladder) => ladder.hurry(now, patience),
            None => {
                self.cause = cause;
                self.stdin = None;
                if let Hold::Abandoned(_) = self.hold {
                    self.hold = Hold::Nobody;
                }
                self.ladder = Some(Ladder::begin(now, patience));
            }
        }
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, now: Instant, log: &mut Log) {
        if let Hold::Abandoned(until) = self.hold
            && until <= now
        {
            log.about(self.number, "no other sidecar came for it");
            self.end(Cause::Asked, ladder::DEFAULT, now);
        }
        while let Some(action) = self.ladder.as_mut().and_then(|ladder| ladder.advance(now)) {
            match action {
                Action::Terminate => self.signal(Signal::TERM),
                Action::Kill => {
                    log.about(self.number, "did not end by itself");
                    self.signal(Signal::KILL);
                }
            }
        }
    }

    /// When there is something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        let abandoned = match self.hold {
            Hold::Abandoned(until) => Some(until),
            Hold::Lifeline(_) | Hold::Nobody => None,
        };
        abandoned.into_iter().chain(self.ladder.as_ref().and_then(Ladder::due)).min()
    }

    /// Reads what it wrote to stderr.
    pub(super) fn read_stderr(&mut self, now: Instant, log: &mut Log) {
        if self.read_once(now, log) == Some(Measure::Flood) && self.ladder.is_none() {
            log.about(self.number, "ended, since it writes to stderr without measure");
            self.end(Cause::Flood, ladder::DEFAULT, now);
        }
    }

    /// `None`: there is nothing now.
    fn read_once(&mut self, now: Instant, log: &mut Log) -> Option<Measure> {
        let mut bytes = [0; READ];
        match rustix::io::read(self.stderr_pipe.as_ref()?, &mut bytes) {
            Ok(0) => {
                self.stderr_pipe = None;
                None
            }
            Ok(length) => Some(self.stderr.take(&bytes[..length], now, log.lines())),
            Err(Errno::AGAIN | Errno::INTR) => None,
            Err(_) => {
                self.stderr_pipe = None;
                None
            }
        }
    }

    /// If it has exited, ends what is left of its group. It is not reaped by this, so that nobody else can have its
    /// number meanwhile.
    pub(super) fn end_group_if_exited(&self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if matches!(waitid(WaitId::Pid(self.pid), options), Ok(Some(_))) {
            self.signal(Signal::KILL);
        }
    }

    /// Takes the status, if it is this process's.
    pub(super) fn reaped(&mut self, pid: Pid, status: WaitStatus) -> bool {
        if pid != self.pid || self.outcome.is_some() {
            return false;
        }
        self.outcome = Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(status), _) => Outcome::Exited(status),
            (None, Some(signal)) => Outcome::Killed(signal),
            // Neither can be asked for nor happens: a status is one of the two.
            (None, None) => Outcome::Exited(0),
        });
        true
    }

    /// Whether it is gone; says so to its sidecar, once.
    pub(super) fn is_over(&mut self, now: Instant, log: &mut Log) -> bool {
        let Some(outcome) = self.outcome else { return false };
        for _ in 0..LAST_READS {
            if self.read_once(now, log).is_none() {
                break;
            }
        }
        self.stderr.close(now, log.lines());
        if self.cause == Cause::Own {
            log.about(self.number, &format!("ended by itself: {outcome}"));
        }
        if let Some(lifeline) = self.lifeline() {
            let stderr = self.stderr.end();
            lifeline.send(&Report::Ended(Ended { outcome, cause: self.cause, stderr }));
        }
        true
    }

    fn signal(&self, signal: Signal) {
        if self.outcome.is_none() {
            // A group that is gone already needs none.
            _ = kill_process_group(self.pid, signal);
        }
    }
}
