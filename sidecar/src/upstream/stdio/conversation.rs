//! One session: its process, and another when that has died.

use std::sync::Arc;

use bytes::Bytes;
use longshore_mcp::initialize;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::call::Caller;
use super::limits::Place;
use super::message::{Command, Key, Kind};
use super::process::{PATIENCE, Process};
use super::restarts::Restarts;
use super::talk::Talk;
use super::{Control, Failure, Gone, Registered, Stdio, Why};

/// The longest handshake that is kept, to be said again to another process.
const MAX_HANDSHAKE: usize = 64 * 1024;

/// A session.
pub(super) struct Conversation {
    registered: Registered,
    /// A client's; the sidecar's own session has none, and ends with its process.
    place: Option<Place>,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) control: mpsc::UnboundedReceiver<Control>,
    pub(super) handshake: Handshake,
    restarts: Restarts,
    /// Who hears what belongs to no call.
    pub(super) listener: Option<Caller>,
    /// The session is over, or will be in a moment.
    pub(super) ending: bool,
    /// Those who wait for that: they are told by the end of these.
    farewells: Vec<oneshot::Sender<()>>,
}

/// How the session began.
#[derive(Default)]
pub(super) struct Handshake {
    /// The client's first message, if it is to be kept.
    line: Option<Bytes>,
    id: Option<Key>,
    /// The revision that the server chose. None: it has not answered yet.
    version: Option<String>,
    /// The client has said that it has heard the answer.
    pub(super) initialized: bool,
}

impl Handshake {
    fn begin(command: &Command) -> Self {
        let Kind::Request { id, .. } = &command.kind else { return Self::default() };
        let line = (command.line.len() <= MAX_HANDSHAKE).then(|| command.line.clone());
        Self { line, id: Some(id.clone()), version: None, initialized: false }
    }

    /// Whether the server has answered it.
    pub(super) fn is_complete(&self) -> bool {
        self.version.is_some()
    }

    /// Whether this is the id of its first message.
    pub(super) fn is(&self, id: &Key) -> bool {
        self.id.as_ref() == Some(id)
    }

    /// Takes the server's answer. Says whether it completes the handshake.
    pub(super) fn answered(&mut self, message: &[u8]) -> bool {
        self.version = version(message);
        self.version.is_some()
    }

    /// Whether another process's answer is the same, as far as the client has heard.
    pub(super) fn is_repeated_by(&self, message: &[u8]) -> bool {
        self.version.is_some() && version(message) == self.version
    }

    /// What another process is told first.
    pub(super) fn again(&self) -> Option<Bytes> {
        self.line.clone().filter(|_| self.is_complete())
    }
}

fn version(message: &[u8]) -> Option<String> {
    let accepted = initialize::accepted(std::str::from_utf8(message).ok()?).ok()?;
    Some(accepted.version)
}

impl Conversation {
    pub(super) fn new(
        registered: Registered,
        place: Option<Place>,
        commands: mpsc::Receiver<Command>,
        control: mpsc::UnboundedReceiver<Control>,
    ) -> Self {
        Self {
            registered,
            place,
            commands,
            control,
            handshake: Handshake::default(),
            restarts: Restarts::default(),
            listener: None,
            ending: false,
            farewells: Vec::new(),
        }
    }

    pub(super) fn stdio(&self) -> &Arc<Stdio> {
        &self.registered.stdio
    }

    /// Whether it is the sidecar's own.
    pub(super) fn is_own(&self) -> bool {
        self.place.is_none()
    }

    /// Lives for as long as the session does.
    pub(super) async fn run(mut self, first: Command) {
        self.handshake = Handshake::begin(&first);
        let mut waits = Some(first);
        while !self.ending {
            let next = match waits.take() {
                Some(command) => command,
                None => match self.next().await {
                    Some(command) => command,
                    None => break,
                },
            };
            let unseen = self.with_process(next).await;
            if self.is_own() || self.handshake.again().is_none() {
                break;
            }
            waits = unseen.and_then(|command| self.admit(command));
        }
        self.close();
        if let Some(command) = waits {
            command.caller.end(Err(Failure::Forgotten));
        }
        // Those who wait for the end hear of it now.
    }

    /// Lets a message have another process, if it is not one too many.
    fn admit(&mut self, command: Command) -> Option<Command> {
        match self.restarts.take(Instant::now()) {
            Ok(()) => Some(command),
            Err(seconds) => {
                command.caller.end(Err(Failure::Restarts { seconds }));
                None
            }
        }
    }

    /// Starts a process for this message, and talks to it until it is gone. Gives back a message that it never saw.
    async fn with_process(&mut self, command: Command) -> Option<Command> {
        match self.start().await {
            Ok(process) => Talk::new(self, process, command).run().await,
            Err(failure) => {
                if matches!(&failure, Failure::Process(gone) if gone.why.concerns_all()) {
                    // The container is away for a moment: the session has done nothing that is to be slowed down.
                    self.restarts.give_back();
                }
                command.caller.end(Err(failure));
                None
            }
        }
    }

    /// Starts a process. Once asked for, it is waited for even if nobody needs it any more: only so can it be ended.
    async fn start(&mut self) -> Result<Process, Failure> {
        let stdio = self.stdio().clone();
        let starting = Process::start(&stdio.socket, &stdio.metrics);
        tokio::pin!(starting);
        let started = loop {
            tokio::select! {
                started = &mut starting => break started,
                Some(control) = self.control.recv() => self.control(control),
            }
        };
        let process = started.map_err(|why| {
            tracing::debug!(%why, "no process for a session");
            Gone::failure(why, &[])
        })?;
        if self.ending {
            self.close();
            process.end(PATIENCE).await;
            stdio.metrics.process_ended(Why::Asked.label());
            return Err(Failure::Ended);
        }
        Ok(process)
    }

    /// Waits, without a process, for a message that needs one.
    async fn next(&mut self) -> Option<Command> {
        loop {
            tokio::select! {
                Some(control) = self.control.recv() => {
                    self.control(control);
                    if self.ending {
                        return None;
                    }
                }
                command = self.commands.recv() => {
                    let command = command?;
                    match command.kind {
                        _ if command.caller.is_gone() => {}
                        Kind::Request { .. } => {
                            if let Some(command) = self.admit(command) {
                                return Some(command);
                            }
                        }
                        Kind::Initialized => {
                            self.handshake.initialized = true;
                            command.caller.end(Ok(None));
                        }
                        // Meant for a process that is gone; another one has asked for nothing.
                        Kind::Cancelled(_) | Kind::Response(_) | Kind::Other => {
                            command.caller.end(Ok(None));
                        }
                    }
                }
            }
        }
    }

    /// What can be done at any time. Calls that nobody waits for are the business of whoever has them.
    pub(super) fn control(&mut self, control: Control) {
        match control {
            Control::Gone(number) => {
                self.listener.take_if(|listener| listener.number == number);
            }
            Control::Listen(caller) => self.listener = Some(caller),
            Control::End(told) => {
                self.ending = true;
                self.farewells.extend(told);
            }
        }
    }

    /// Takes no more messages. Nobody waits in a queue that nobody will look at.
    pub(super) fn close(&mut self) {
        self.ending = true;
        self.registered.close();
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            command.caller.end(Err(Failure::Forgotten));
        }
    }
}
