//! The running components of one cluster, and how each of them ends.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::component::Component;
use super::messages::{Failure, LogTail, tail};
use super::registry;
use super::spec::{Shape, Spec};

const TAIL_LINES: usize = 25;

pub(crate) struct Crew<'a> {
    spec: &'a Spec,
    running: RefCell<HashMap<Pid, Component>>,
}

impl<'a> Crew<'a> {
    pub(crate) fn new(spec: &'a Spec) -> Self {
        Self { spec, running: RefCell::default() }
    }

    /// Starts a component. What it prints goes to its log.
    pub(crate) fn start(&self, component: Component) -> Result<(), Failure> {
        let pid = self
            .spawn(component)
            .map_err(|error| self.failure(component, format!("cannot start: {error}")))?;
        self.running.borrow_mut().insert(pid, component);
        Ok(())
    }

    fn spawn(&self, component: Component) -> io::Result<Pid> {
        let mut command = match self.spec.shape {
            // Ends with its process namespace.
            Shape::Node => component.command(self.spec)?,
            Shape::Api | Shape::ControlPlane => bound_to_this_process(&component.command(self.spec)?),
        };
        let log =
            OpenOptions::new().create(true).append(true).open(self.spec.logs().join(component.log()))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir(&self.spec.folder);
        // All of them are Go programs, and small here: collecting garbage less often takes memory, which there is, and leaves
        // the processors to what is tested.
        command.env("PATH", path()).env("GOGC", "400");
        let child = command.spawn()?;
        // Reaped by `reap`, with all others: waiting for each by itself would miss those that nobody waits for.
        Ok(Pid::from_raw(child.id().cast_signed()))
    }

    /// Kills a component, and returns when it is dead.
    pub(crate) fn stop(&self, component: Component) -> Result<(), Failure> {
        let pids: Vec<Pid> = self
            .running
            .borrow()
            .iter()
            .filter(|(_, running)| **running == component)
            .map(|(pid, _)| *pid)
            .collect();
        for pid in pids {
            self.running.borrow_mut().remove(&pid);
            end(pid).map_err(|error| self.failure(component, format!("cannot be stopped: {error}")))?;
        }
        Ok(())
    }

    /// Kills every component.
    pub(crate) fn stop_all(&self) {
        for (pid, _) in self.running.borrow_mut().drain() {
            // One that cannot be killed is dead already.
            let _ = end(pid);
        }
    }

    /// Takes the exit status of every process that has ended, orphans included, since the first process of a namespace
    /// inherits them. A component among them is a failure: none ends by itself.
    pub(crate) fn reap(&self) -> Result<(), Failure> {
        loop {
            let status = match waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(()),
                Ok(status) => status,
                Err(error) => {
                    return Err(Failure { what: format!("cannot wait: {error}"), log: None, logs: None });
                }
            };
            let ended = status.pid().and_then(|pid| self.running.borrow_mut().remove(&pid));
            if let Some(component) = ended {
                return Err(self.failure(component, describe(status)));
            }
        }
    }

    /// A failure of a component, with the end of its log.
    pub(crate) fn failure(&self, component: Component, what: impl AsRef<str>) -> Failure {
        let log = fs::read(self.spec.logs().join(component.log())).unwrap_or_default();
        Failure {
            what: format!("{} {}", component.name(), what.as_ref()),
            log: Some(LogTail { component, lines: tail(&String::from_utf8_lossy(&log), TAIL_LINES) }),
            logs: Some(registry::kept_logs(self.spec)),
        }
    }
}

fn end(pid: Pid) -> nix::Result<()> {
    kill(pid, Signal::SIGKILL)?;
    waitpid(pid, None).map(drop)
}

fn describe(status: WaitStatus) -> String {
    match status {
        WaitStatus::Exited(_, code) => format!("ended with exit status {code}"),
        WaitStatus::Signaled(_, signal, _) => format!("was ended by {signal}"),
        other => format!("ended: {other:?}"),
    }
}

/// The same command, killed when this process dies, even of `kill -9`.
fn bound_to_this_process(command: &Command) -> Command {
    let mut bound = Command::new("setpriv");
    bound.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
    bound
}

/// The caller's `PATH`, and the folders of system programs, which not everyone has on it.
fn path() -> String {
    let own = std::env::var("PATH").unwrap_or_default();
    format!("{own}:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin")
}
