//! One process: its pipes, its connection, its end.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitStatus, kill_process_group};

use super::lifeline::Lifeline;
use crate::descriptors::Limit;
use crate::log::Log;
use crate::memory::Share;
use crate::options::Options;
use crate::protocol::{
    ADOPTION, Cause, Ended, Left, MAX_LIVES, Outcome, Patience, Report, Resident, Session,
};
use crate::stderr::{Measure, Stderr};
use crate::termination::{self, Action, Termination};

/// How much of its stderr is read before others have their turn.
const READ: usize = 16 << 10;
/// A pipe that nobody fills any more holds no more than this many reads; what is left after that comes from a
/// process that got away from the group.
const LAST_READS: usize = 16;

pub(super) struct Process {
    pub(super) session: Session,
    number: u32,
    /// How many sidecars have had it.
    life: u16,
    /// Also the number of its group.
    pid: Pid,
    /// Until it is told to end.
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr_pipe: Option<OwnedFd>,
    stderr: Stderr,
    memory: Share,
    hold: Hold,
    termination: Option<Termination>,
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
        limit: &Limit,
        session: Session,
        number: u32,
        lifeline: Lifeline,
        now: Instant,
    ) -> Result<Self, (Lifeline, io::Error)> {
        match Self::spawn(options, limit) {
            Ok((pid, stdin, stdout, stderr)) => {
                let mut process = Self {
                    session,
                    number,
                    life: 0,
                    pid,
                    stdin: Some(stdin),
                    stdout,
                    stderr_pipe: Some(stderr),
                    stderr: Stderr::new(number, now),
                    memory: Share::default(),
                    hold: Hold::Nobody,
                    termination: None,
                    cause: Cause::Own,
                    outcome: None,
                };
                if process.hand_to(lifeline).is_err() {
                    // Nobody ever knew of it.
                    process.end(Cause::Asked, termination::DEFAULT, now);
                }
                Ok(process)
            }
            Err(error) => Err((lifeline, error)),
        }
    }

    /// The standard library's spawn is `posix_spawn` here: it needs no descriptor of its own, reports what `exec` said,
    /// and gives SIGPIPE, which Rust programs ignore, its default back. Its `Child` is not kept, since it would be
    /// reaped in two places then.
    fn spawn(options: &Options, limit: &Limit) -> io::Result<(Pid, OwnedFd, OwnedFd, OwnedFd)> {
        // Each end is an open file of its own: the process's block as it expects, whatever others make of theirs.
        let (its_stdin, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stdout, its_stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, its_stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&stderr, true)?;
        let mut command = Command::new(&options.program);
        command.args(&options.arguments).stdin(its_stdin).stdout(its_stdout).stderr(its_stderr);
        // A group of its own: signals reach what it starts too.
        command.process_group(0);
        let child = limit.with_given(|| command.spawn())?;
        // The kernel's numbers of processes are positive and have fewer bits than that.
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
        Ok((pid, limit.keep(stdin), limit.keep(stdout), limit.keep(stderr)))
    }

    /// Gives the process to the sidecar at the other end, with its pipes. One that is about to end stays with nobody.
    fn hand_to(&mut self, lifeline: Lifeline) -> io::Result<()> {
        if let Some(stdin) = &self.stdin {
            let started = Report::Started { number: self.number, life: self.life };
            // Also if it is never heard: it might be.
            self.life += 1;
            self.memory.begin_anew();
            lifeline.send_with(&started, [stdin.as_fd(), self.stdout.as_fd()])?;
            self.hold = Hold::Lifeline(lifeline);
        }
        Ok(())
    }

    /// Hands it over if it waits for that, else the connection back.
    pub(super) fn adopt(&mut self, lifeline: Lifeline, log: &mut Log) -> Result<(), Lifeline> {
        if !matches!(self.hold, Hold::Abandoned(_)) || self.outcome.is_some() || self.life >= MAX_LIVES {
            return Err(lifeline);
        }
        // One that cannot be told is gone already, and the process waits for yet another.
        if self.hand_to(lifeline).is_ok() {
            log.about(self.number, "taken over by another sidecar");
        }
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
        self.hold = if self.termination.is_some() {
            Hold::Nobody
        } else {
            log.about(self.number, "its sidecar went away without ending it");
            Hold::Abandoned(now + ADOPTION)
        };
    }

    /// A sidecar begins that may come for it.
    pub(super) fn keep(&mut self, now: Instant) {
        if let Hold::Abandoned(until) = &mut self.hold {
            *until = now + ADOPTION;
        }
    }

    /// No sidecar will come for these, of which it may be one.
    pub(super) fn leave(&mut self, left: Left, now: Instant, log: &mut Log) {
        let is_one = left == Left::All || self.session.is_of_nobody();
        if let Hold::Abandoned(_) = self.hold
            && is_one
        {
            log.about(self.number, "no other sidecar will come for it");
            self.end(Cause::Asked, termination::DEFAULT, now);
        }
    }

    /// Brings it to its end when nobody who has it asked for that. Unless it is told to end already, its sidecar still has
    /// a descriptor of its stdin, which does not close now: there is nothing to wait for before SIGTERM.
    pub(super) fn force_end(&mut self, cause: Cause, now: Instant) {
        let patience = match self.hold {
            Hold::Lifeline(_) if self.termination.is_none() => {
                Patience { input: Duration::ZERO, ..termination::DEFAULT }
            }
            Hold::Lifeline(_) | Hold::Abandoned(_) | Hold::Nobody => termination::DEFAULT,
        };
        self.end(cause, patience, now);
    }

    /// Brings it to its end, or hurries it.
    pub(super) fn end(&mut self, cause: Cause, patience: Patience, now: Instant) {
        match &mut self.termination {
            Some(termination) => termination.hurry(now, patience),
            None => {
                self.cause = cause;
                self.stdin = None;
                if let Hold::Abandoned(_) = self.hold {
                    self.hold = Hold::Nobody;
                }
                self.termination = Some(Termination::begin(now, patience));
            }
        }
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, now: Instant, log: &mut Log) {
        if let Hold::Abandoned(until) = self.hold
            && until <= now
        {
            log.about(self.number, "no other sidecar came for it");
            self.end(Cause::Asked, termination::DEFAULT, now);
        }
        while let Some(action) = self.termination.as_mut().and_then(|termination| termination.advance(now)) {
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
        abandoned.into_iter().chain(self.termination.as_ref().and_then(Termination::due)).min()
    }

    /// Reads what it wrote to stderr.
    pub(super) fn read_stderr(&mut self, now: Instant, log: &mut Log) {
        if self.read_once(now, log) == Some(Measure::Flood) && self.termination.is_none() {
            log.about(self.number, "ended, since it writes to stderr without measure");
            self.force_end(Cause::Flood, now);
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

    /// It has so much memory, of what the container may have.
    pub(super) fn has(&mut self, kilobytes: u64, limit: u64, log: &mut Log) {
        let (news, line) = self.memory.take(kilobytes, limit);
        if line {
            let (own, all) = (kilobytes / 1024, limit / 1024);
            log.about(
                self.number,
                &format!("has {own} MiB in memory, of {all} MiB that this container may have"),
            );
        }
        if let Some(lifeline) = self.lifeline().filter(|_| news) {
            lifeline.send(&Report::Resident(Resident { kilobytes, limit }));
        }
    }

    /// Whether this process has that number. One that was reaped has none: it may be another's by now.
    pub(super) fn is(&self, pid: Pid) -> bool {
        pid == self.pid && self.outcome.is_none()
    }

    /// It has exited, and is not reaped yet: ends what is left of its group.
    pub(super) fn exited(&self) {
        self.signal(Signal::KILL);
    }

    /// It has been reaped.
    pub(super) fn reaped(&mut self, status: WaitStatus) {
        self.outcome = Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(status), _) => Outcome::Exited(status),
            (None, Some(signal)) => Outcome::Killed(signal),
            // Neither can be asked for nor happens: a status is one of the two.
            (None, None) => Outcome::Exited(0),
        });
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
            let last = match (outcome, self.memory.kilobytes / 1024) {
                // As it is where memory runs out.
                (Outcome::Killed(9), 1..) => {
                    format!(", with {} MiB in memory when last measured", self.memory.kilobytes / 1024)
                }
                _ => String::new(),
            };
            log.about(self.number, &format!("ended by itself: {outcome}{last}"));
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
