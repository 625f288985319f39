//! What one process, and another when that has died, serves: one session, or several that share it.

mod control;

use std::sync::Arc;

use longshore_sessions::message::Copy;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::call::Caller;
use super::channel::Ends;
use super::handshake::{Abilities, Handshake};
use super::limits::Place;
use super::members::Members;
use super::message::{Command, Kind};
use super::process::{Idle, PATIENCE, Process};
use super::registry::Limits;
use super::restarts::Restarts;
use super::talk::Talk;
use super::turns::Turn;
use super::warm::Ready;
use super::{Client, Control, Failure, Gone, Name, Registered, Stdio, Why};
use crate::held::{Coming, Share};
use crate::metrics::ProcessEnd;

/// A conversation, with one session at first.
pub(super) struct Conversation {
    /// A client's; the sidecar's own session has none, and ends with its process.
    place: Option<Place>,
    /// Gone after its place: whoever that is given to waits no more.
    registered: Registered,
    /// Whom its process serves.
    pub(super) kind: Sharing,
    /// What the shim knows its processes by, one after the other.
    number: u128,
    /// For whom a place is taken again, where sessions share a process that rests.
    client: Option<Client>,
    /// A process that is there already, and since when.
    ready: Option<(Process, Instant)>,
    /// What is known of that.
    pub(super) start: Start,
    /// Its process starts, for which others wait.
    pub(super) turn: Option<Turn>,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) control: mpsc::UnboundedReceiver<Control>,
    pub(super) handshake: Handshake,
    pub(super) members: Members,
    /// Those who wait for the answer to the handshake.
    pub(super) joining: Vec<Joining>,
    /// Sessions that have left, until the process has been told.
    pub(super) left: Vec<Left>,
    restarts: Restarts,
    /// Why those had no process who asked for one last, and when they were told.
    failed: Option<(Instant, Failure)>,
    /// The conversation is over, or will be in a moment.
    pub(super) ending: bool,
    /// Those who wait for that: they are told by the end of these.
    farewells: Vec<oneshot::Sender<()>>,
    /// Since when no session is there.
    empty: Option<Instant>,
}

/// Whom a process serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// The sidecar itself.
    Own,
    /// One session.
    One,
    /// Several.
    Several {
        /// All of the same principal.
        same: bool,
        limits: Limits,
    },
}

/// How a process begins its part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Start {
    /// How many sidecars had it before.
    pub(super) life: u16,
    /// It has been told the first message.
    pub(super) told: bool,
    /// It goes on where another sidecar has left it.
    pub(super) goes_on: bool,
}

/// A session that begins.
pub(in crate::upstream) struct Joining {
    pub(super) name: Name,
    /// The id of its first message, as it was written.
    pub(super) id: String,
    pub(super) abilities: Abilities,
    pub(super) caller: Caller,
    /// What its subscriptions will hold. The sidecar's own has none.
    pub(super) share: Option<Share>,
}

/// A session that has left.
pub(super) struct Left {
    pub(super) name: Name,
    /// What it alone was subscribed to.
    pub(super) subscriptions: Vec<String>,
}

/// What a conversation is made of.
pub(super) struct Opening {
    pub(super) registered: Registered,
    pub(super) kind: Sharing,
    pub(super) number: u128,
    pub(super) place: Option<Place>,
    pub(super) ends: Ends<Command>,
    pub(super) handshake: Handshake,
}

impl Conversation {
    pub(super) fn new(opening: Opening) -> Self {
        let Opening { registered, kind, number, place, ends: (commands, control), handshake } = opening;
        Self {
            registered,
            kind,
            number,
            place,
            client: None,
            ready: None,
            start: Start::default(),
            turn: None,
            commands,
            control,
            handshake,
            members: Members::default(),
            joining: Vec::new(),
            left: Vec::new(),
            restarts: Restarts::default(),
            failed: None,
            ending: false,
            farewells: Vec::new(),
            empty: None,
        }
    }

    pub(super) fn stdio(&self) -> &Arc<Stdio> {
        &self.registered.stdio
    }

    /// Whether it is the sidecar's own.
    pub(super) fn is_own(&self) -> bool {
        self.kind == Sharing::Own
    }

    /// Whether its process serves several sessions.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.kind, Sharing::Several { .. })
    }

    /// Whether its process serves sessions of several principals.
    pub(super) fn is_of_many(&self) -> bool {
        matches!(self.kind, Sharing::Several { same: false, .. })
    }

    /// Whether its process is asked for one thing at a time, and knows no sessions.
    pub(super) fn stands_alone(&self) -> bool {
        self.handshake.is_absent()
    }

    /// Whether what its process says is of no client.
    pub(super) fn is_nobodys(&self) -> bool {
        self.is_own() || self.stands_alone() && self.client.is_none()
    }

    /// What its process writes, counted: as its principal's, or as everybody's where it is for all. What it says to the
    /// sidecar itself is not: clients must not keep it from looking after the server.
    pub(super) fn coming(&self) -> Coming {
        let principal = || self.place.as_ref()?.principal().cloned();
        let share = || self.stdio().held.nothing(&principal().unwrap_or_else(|| "".into()));
        Coming::new((!self.is_nobodys()).then(share))
    }

    /// Gives it a process that runs already.
    pub(super) fn with_ready(mut self, ready: Ready) -> Result<Self, Failure> {
        self.make_ready(ready).map(|()| self)
    }

    fn make_ready(&mut self, ready: Ready) -> Result<(), Failure> {
        let Ready { parts, told, started, turn } = ready;
        self.start = Start { life: parts.life, told: told.is_some(), goes_on: false };
        self.turn = turn;
        let broken = |error: std::io::Error| Gone::failure(Why::NotStarted(error.to_string()), &[]);
        self.ready = Some((Process::from_parts(parts).map_err(broken)?, started));
        Ok(())
    }

    /// Its process was left by another sidecar, in the middle of a session, whose client has set this.
    pub(super) fn going_on(mut self, name: Name, set: &Copy, share: Share) -> Self {
        self.start.goes_on = true;
        self.members.join(name, Abilities::default(), Some(share));
        if let Some(member) = self.members.get_mut(name) {
            member.level = set.log_level;
            set.subscriptions.iter().for_each(|uri| member.subscribe(uri));
        }
        self
    }

    /// Lives for as long as there are calls that stand alone, and a while longer. The first of them is on its way. It may go
    /// on where another conversation has left off, which nobody called any more.
    pub(super) async fn run_alone(mut self, client: Option<Client>, restarts: Restarts) {
        self.client = client;
        self.restarts = restarts;
        self.note_tired();
        self.run().await;
    }

    /// A session of several takes its place first: those that join meanwhile wait with the first.
    pub(super) async fn run_shared(mut self, client: Client) {
        self.client = Some(client);
        if let Err(failure) = self.acquire(Instant::now()).await {
            self.fail_joining(&failure);
            self.ending = true;
        }
        self.run().await;
    }

    /// Takes a place, if it has none, for somebody who waits since then.
    async fn acquire(&mut self, since: Instant) -> Result<(), Failure> {
        let Some(client) = self.client.clone().filter(|_| self.place.is_none()) else { return Ok(()) };
        let stdio = self.stdio().clone();
        let line = self.handshake.line().clone();
        // Sessions that share it do not go on with it when this sidecar has died.
        let acquired = self.as_long_as_needed(stdio.acquire(&client, &line, since)).await??.of_nobody();
        (self.place, self.number) = (Some(acquired.place), acquired.number);
        acquired.ready.map_or(Ok(()), |ready| self.make_ready(ready))
    }

    /// Waits for its turn to start a process. The sidecar's own wait for nobody: no client is served without them.
    async fn wait_for_turn(&mut self) -> Result<Option<Turn>, Failure> {
        if self.is_nobodys() {
            return Ok(None);
        }
        let turns = self.stdio().turns.clone();
        let principal = self.place.as_ref().and_then(Place::principal).cloned();
        self.as_long_as_needed(turns.take(principal.as_ref())).await
    }

    /// Waits for what a process needs, as long as it is needed itself.
    async fn as_long_as_needed<T>(&mut self, waiting: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::pin!(waiting);
        loop {
            tokio::select! {
                it = &mut waiting => return Ok(it),
                Some(control) = self.control.recv() => self.control(control),
            }
            if self.is_shared() && self.members.is_empty() {
                self.vanish();
            }
            if self.ending {
                return Err(Failure::Ended);
            }
        }
    }

    /// Its process has ended because nobody called it: somebody else may have its place.
    pub(super) fn rest(&mut self) {
        self.restarts.rested();
        self.place = None;
    }

    /// Its process has ended, and somebody may call it still.
    pub(super) fn note_death(&mut self) {
        self.restarts.died();
    }

    /// Lives for as long as its sessions do.
    pub(super) async fn run(mut self) {
        let mut waits = Vec::new();
        // The first process is there for the handshake, or goes on with what it did.
        let mut needed = !self.stands_alone();
        while !self.ending {
            if needed || !waits.is_empty() {
                let unseen = self.with_process(waits).await;
                self.registered.ended();
                if self.is_own() || !self.handshake.can_be_repeated() {
                    waits = unseen;
                    break;
                }
                self.note_tired();
                waits = self.admit(unseen);
                needed = false;
                if waits.is_empty() {
                    self.members.end_listening();
                }
            } else {
                match self.next().await {
                    Some(commands) => (waits, needed) = (commands, true),
                    None => break,
                }
            }
        }
        self.close();
        for command in waits {
            command.caller.end(Err(Failure::Forgotten));
        }
        // Those who wait for the end hear of it now.
    }

    /// It has no process. Where the next one would be one too many, others go elsewhere, if they can.
    fn note_tired(&self) {
        if let Some(until) = self.restarts.until(Instant::now()) {
            self.registered.tires(until);
        }
    }

    /// Lets messages have another process, if it is not one too many.
    fn admit(&mut self, commands: Vec<Command>) -> Vec<Command> {
        if commands.is_empty() {
            return commands;
        }
        match self.restarts.take(Instant::now()) {
            Ok(()) => commands,
            Err(seconds) => {
                for command in commands {
                    command.caller.end(Err(Failure::Restarts { seconds }));
                }
                Vec::new()
            }
        }
    }

    /// Starts a process for these messages, and talks to it until it is gone. Gives back messages that it never saw.
    async fn with_process(&mut self, commands: Vec<Command>) -> Vec<Command> {
        let since = commands.first().map_or_else(Instant::now, |first| first.caller.since);
        match self.process(since).await {
            Ok(process) => {
                // Who waits for an answer is known before that is read: one that was told ahead may be there already.
                self.hear();
                let start = std::mem::take(&mut self.start);
                Talk::new(self, process, start, commands).run().await
            }
            Err(failure) => {
                match &failure {
                    // The container is away for a moment: the session has done nothing that is to be slowed down.
                    Failure::Process(gone) if gone.why.concerns_all() => self.restarts.give_back(),
                    Failure::Process(_) => self.restarts.died(),
                    // Nothing has died: there was no room.
                    _ => {}
                }
                // Who has just come is told why, and not only that there is nothing.
                self.hear();
                self.fail_joining(&failure);
                for command in commands {
                    command.caller.end(Err(failure.clone()));
                }
                Vec::new()
            }
        }
    }

    /// The process that is there, or another one.
    async fn process(&mut self, since: Instant) -> Result<Process, Failure> {
        let (process, started) = self.any_process(since).await?;
        if let Some(client) = &self.client {
            self.registered.renewed(client.limits, started);
        }
        Ok(process)
    }

    /// The same. Once asked for, another one is waited for even if nobody needs it any more: only so can it be ended.
    async fn any_process(&mut self, since: Instant) -> Result<(Process, Instant), Failure> {
        self.acquire(since).await?;
        if let Some(ready) = self.ready.take() {
            return Ok(ready);
        }
        let turn = self.wait_for_turn().await?;
        let stdio = self.stdio().clone();
        // The same number again: whoever comes after this sidecar finds the process that is there by then.
        let starting = Idle::start(&stdio.socket, self.number, &stdio.metrics);
        tokio::pin!(starting);
        let started = loop {
            tokio::select! {
                started = &mut starting => break started,
                Some(control) = self.control.recv() => self.control(control),
            }
        };
        let started = started.and_then(|idle| {
            let parts = idle.into_parts().map_err(|error| Why::NotStarted(error.to_string()))?;
            Process::from_parts(parts).map_err(|error| Why::NotStarted(error.to_string()))
        });
        let process = started.map_err(|why| {
            tracing::debug!(%why, "no process for a session");
            Gone::failure(why, &[])
        })?;
        if self.ending {
            drop(turn);
            self.close();
            process.end(PATIENCE).await;
            stdio.metrics.process_ended(ProcessEnd::Asked);
            return Err(Failure::Ended);
        }
        self.turn = turn;
        Ok((process, Instant::now()))
    }

    /// Waits, without a process, for what needs one: a message, or somebody who listens for what it has subscribed to.
    async fn next(&mut self) -> Option<Vec<Command>> {
        let since = Instant::now();
        loop {
            // Nothing is lost with a process that is not there.
            self.left.clear();
            if self.is_shared() && self.members.is_empty() {
                self.vanish();
            }
            if self.ending {
                return None;
            }
            let idle = self.patience().filter(|_| self.place.is_some()).map(|idle| since + idle);
            tokio::select! {
                // Nobody calls: somebody else may have its place, as if the process had not died before.
                () = sleep_until(idle.unwrap_or(since)), if idle.is_some() => self.place = None,
                Some(control) = self.control.recv() => {
                    let listens = if let Control::Listen(name, _) = &control { Some(*name) } else { None };
                    self.control(control);
                    if listens.is_some_and(|name| self.members.awaits_updates(name)) {
                        if self.restarts.take_uncalled(Instant::now()).is_ok() {
                            return Some(Vec::new());
                        }
                        self.members.end_listening();
                    }
                }
                command = self.commands.recv() => {
                    let command = command?;
                    if !command.counts() {
                        continue;
                    }
                    match command.kind {
                        Kind::Request(_) if let Some(failure) = self.failed_meanwhile(&command) => {
                            command.caller.end(Err(failure));
                        }
                        Kind::Request(_) => {
                            let admitted = self.admit(vec![command]);
                            if !admitted.is_empty() {
                                return Some(admitted);
                            }
                        }
                        Kind::Initialized => {
                            self.handshake.initialized = true;
                            command.caller.end(Ok(None));
                        }
                        // Meant for a process that is gone; another one has asked for nothing.
                        Kind::Cancelled(_)
                        | Kind::Response(_)
                        | Kind::Progress(_)
                        | Kind::RootsChanged
                        | Kind::Other => command.caller.end(Ok(None)),
                    }
                }
            }
        }
    }

    /// Why those had no process who were before this message, if it has waited as long as they.
    fn failed_meanwhile(&self, command: &Command) -> Option<Failure> {
        let (told, failure) = self.failed.as_ref()?;
        let takes_long = matches!(failure, Failure::Process(gone) if gone.why.takes_long());
        (takes_long && command.caller.since <= *told).then(|| failure.clone())
    }

    /// The revision of the server is known: others may join who speak it.
    pub(super) fn publish_version(&self) {
        if let Some(version) = self.handshake.version() {
            self.registered.speaks(version);
        }
    }

    pub(super) fn fail_joining(&mut self, failure: &Failure) {
        self.failed = Some((Instant::now(), failure.clone()));
        for joining in self.joining.drain(..) {
            joining.caller.end(Err(failure.clone()));
        }
    }

    /// Takes no more messages. Nobody waits in a queue that nobody will look at.
    pub(super) fn close(&mut self) {
        self.ending = true;
        self.registered.close();
        self.commands.close();
        self.control.close();
        while let Ok(command) = self.commands.try_recv() {
            command.caller.end(Err(Failure::Forgotten));
        }
        self.hear();
        // Who has come just now is told why, as those before; but sessions that were ended here are not this one.
        let failure =
            self.failed.take().map(|(_, failure)| failure).filter(|it| !matches!(it, Failure::Ended));
        let failure = failure.unwrap_or(Failure::Forgotten);
        self.fail_joining(&failure);
    }
}
