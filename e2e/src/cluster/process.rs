//! The keeper, as whoever started it sees it.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::direct::direct;
use super::messages::{Failure, Order, Report};
use super::spec::{Plan, Spec};
use super::supervisor::Lifetime;
use super::{ClusterError, StartError};

/// A running keeper. Dropping it ends the cluster, unless it is detached.
#[derive(Debug)]
pub(crate) struct Keeper {
    process: Mutex<Child>,
    /// Taken to cut the lifeline.
    conversation: Mutex<Option<Conversation>>,
    failure: Arc<OnceLock<Failure>>,
    lifetime: Lifetime,
}

#[derive(Debug)]
struct Conversation {
    orders: Option<ChildStdin>,
    answers: Receiver<Report>,
}

impl Keeper {
    /// Starts a keeper, and returns when its cluster is ready.
    pub(crate) fn start(plan: &Plan, lifetime: Lifetime) -> Result<(Spec, Self), StartError> {
        let mut process = spawn(plan, lifetime).map_err(StartError::Keeper)?;
        let failure = Arc::new(OnceLock::new());
        let (sender, answers) = channel();
        if let Some(output) = process.stdout.take() {
            let failure = Arc::clone(&failure);
            std::thread::spawn(move || read(output, &failure, |report| sender.send(report).is_ok()));
        }
        let orders = process.stdin.take();
        let keeper = Self {
            process: Mutex::new(process),
            conversation: Mutex::new(Some(Conversation { orders, answers })),
            failure,
            lifetime,
        };
        let spec = keeper.until_ready()?;
        Ok((spec, keeper))
    }

    fn until_ready(&self) -> Result<Spec, StartError> {
        let mut folder: Option<PathBuf> = None;
        loop {
            match (self.answer(), folder) {
                (Some(Report::Placed(placed)), _) => folder = Some(placed),
                (Some(Report::Ready), Some(folder)) => {
                    return Spec::read(&folder).map_err(StartError::Keeper);
                }
                (Some(Report::Failed(failure)), _) => {
                    // It ends by itself, once it has kept the logs.
                    let _ = self.process.lock().wait();
                    return Err(StartError::Failed(failure));
                }
                (Some(_), _) | (None, _) => {
                    return Err(StartError::Keeper(io::ErrorKind::UnexpectedEof.into()));
                }
            }
        }
    }

    /// Gives an order, and returns when it has been carried out.
    pub(crate) fn order(&self, order: Order) -> Result<(), ClusterError> {
        let line = serde_json::to_string(&order).map_err(io::Error::other)?;
        let mut conversation = self.conversation.lock();
        let Some(Conversation { orders: Some(orders), answers }) = conversation.as_mut() else {
            return Err(ClusterError::NotOurs);
        };
        writeln!(orders, "{line}")?;
        match answers.recv() {
            Ok(Report::Done) => Ok(()),
            Ok(Report::Failed(failure)) => Err(ClusterError::Failed(failure)),
            Ok(_) | Err(_) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }

    pub(crate) fn failure(&self) -> Option<Failure> {
        self.failure.get().cloned()
    }

    fn answer(&self) -> Option<Report> {
        self.conversation.lock().as_ref().and_then(|conversation| conversation.answers.recv().ok())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if self.lifetime == Lifetime::Detached {
            return;
        }
        // The lifeline is cut; the keeper clears away and ends.
        drop(self.conversation.lock().take());
        let _ = self.process.lock().wait();
    }
}

fn spawn(plan: &Plan, lifetime: Lifetime) -> io::Result<Child> {
    let mut command = direct(program()?);
    command.arg("keep").arg("--plan").arg(serde_json::to_string(plan)?).stdout(Stdio::piped());
    match lifetime {
        Lifetime::Lifeline => command.args(["--lifetime", "lifeline"]).stdin(Stdio::piped()),
        Lifetime::Detached => {
            command.args(["--lifetime", "detached"]).stdin(Stdio::null()).stderr(Stdio::null())
        }
    };
    command.spawn()
}

/// The binary `longshore-cluster`. Cargo builds it before the tests of this crate, and puts it beside them.
fn program() -> io::Result<PathBuf> {
    const NAME: &str = "longshore-cluster";
    let this = std::env::current_exe()?;
    let beside = this.with_file_name(NAME);
    let above = this.parent().and_then(|folder| folder.parent()).map(|folder| folder.join(NAME));
    [Some(beside), above]
        .into_iter()
        .flatten()
        .find(|path| path.is_file())
        .ok_or_else(|| io::Error::other(format!("{NAME} is not beside {}", this.display())))
}

/// Passes reports on until there are no more. Answers to orders are waited for; a failure may come at any time.
fn read(output: ChildStdout, failure: &OnceLock<Failure>, pass_on: impl Fn(Report) -> bool) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let Ok(report) = serde_json::from_str(&line) else { continue };
        if let Report::Failed(reported) = &report {
            let _ = failure.set(reported.clone());
        }
        // Nobody may wait for it.
        let _ = pass_on(report);
    }
}
