//! The conversation with one process, from its start to its end.
//!
//! Everything that can wait is waited for at once, so that neither side can stop the other by not reading: while a
//! message is being written, what the process writes is read all the same; while a slow reader holds up what the
//! process writes, messages to it are written. What bounds the waiting is that those who wait have deadlines.

mod incoming;

use std::collections::HashMap;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::{Duration, Instant, sleep_until};

use super::conversation::Conversation;
use super::lines::{Lines, MAX_LINE};
use super::message::{Command, Key, Kind};
use super::outgoing::Outgoing;
use super::process::{self, Heard, IMPATIENCE, PATIENCE, Process};
use super::routes::{Call, Routes};
use super::{Control, Failure, Gone, Why};

/// How long the rest of what a process wrote is read after its end, and how long its end is waited for when it has
/// closed its pipes.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long a process that is started again may take for the handshake.
const HANDSHAKE: Duration = Duration::from_secs(30);
/// How much is read before others have their turn.
const TURN: usize = 256 * 1024;

/// A process, and all that is under way with it.
pub(super) struct Talk<'a> {
    conversation: &'a mut Conversation,
    process: Process,
    lines: Lines,
    outgoing: Outgoing,
    routes: Routes,
    /// What the process has asked the client and was not answered, and whether an answer says more than that somebody
    /// is there. Another process of the session counts its questions from the beginning again, and must not be given
    /// the answers to these.
    asked: HashMap<Key, bool>,
    /// A message that waits for a slow reader. Nothing is read meanwhile.
    delivery: Option<(mpsc::Sender<Bytes>, Bytes)>,
    /// The message that the process was started again for, until the handshake has been repeated.
    replay: Option<(Command, Instant)>,
    /// How it ended, and when.
    ended: Option<(Heard, Instant)>,
    /// It has closed stdout.
    end_of_output: bool,
    /// Since when one of its pipes is closed.
    closed: Option<Instant>,
    /// It is not the server that the client has shaken hands with.
    stranger: bool,
    /// Why it has to be ended.
    doom: Option<Why>,
    first_noise: Option<String>,
    /// How much it has written since its last message.
    noise: usize,
    /// How much of what it wrote was dropped since something of it was not.
    dropped: usize,
    pause: Option<Instant>,
    /// How much was read since others had their turn.
    turn: usize,
}

impl<'a> Talk<'a> {
    pub(super) fn new(conversation: &'a mut Conversation, process: Process, first: Command) -> Self {
        let again = conversation.handshake.again();
        let mut talk = Self {
            conversation,
            process,
            lines: Lines::new(MAX_LINE),
            outgoing: Outgoing::default(),
            routes: Routes::default(),
            asked: HashMap::new(),
            delivery: None,
            replay: None,
            ended: None,
            end_of_output: false,
            closed: None,
            stranger: false,
            doom: None,
            first_noise: None,
            noise: 0,
            dropped: 0,
            pause: None,
            turn: 0,
        };
        match again {
            Some(line) => {
                talk.outgoing.own(line);
                talk.replay = Some((first, Instant::now() + HANDSHAKE));
            }
            None => talk.take(first),
        }
        talk
    }

    /// Talks until the process is gone. Gives back a message that it never saw.
    pub(super) async fn run(mut self) -> Option<Command> {
        loop {
            self.read_lines();
            let now = Instant::now();
            self.tick(now);
            if let Some(failure) = self.over(now) {
                return self.finish(failure).await;
            }
            let due = self.due();
            let writes = !self.outgoing.is_empty() && self.closed.is_none() && self.ended.is_none();
            let reads = self.delivery.is_none() && self.pause.is_none() && !self.end_of_output;
            tokio::select! {
                Some(control) = self.conversation.control.recv() => self.control(control),
                Some(command) = self.conversation.commands.recv(), if self.is_ready() => self.take(command),
                written = self.outgoing.write(&mut self.process.stdin), if writes => {
                    if written.is_err() {
                        self.closed.get_or_insert_with(Instant::now);
                    }
                }
                readable = self.process.stdout.readable(), if reads => match readable {
                    Ok(()) => self.read(),
                    Err(_) => self.output_ended(),
                },
                heard = self.process.lifeline.heard(), if self.ended.is_none() => {
                    self.ended = Some((heard, Instant::now()));
                }
                room = room(&self.delivery), if self.delivery.is_some() => {
                    if let (Some((_, message)), Ok(room)) = (self.delivery.take(), room) {
                        room.send(message);
                    }
                    self.last_words_wait();
                }
                () = sleep_until(due.unwrap_or(now)), if due.is_some() => {}
            }
            if self.turn >= TURN {
                self.turn = 0;
                yield_now().await;
            }
        }
    }

    // === What comes from the sidecar ===

    /// Whether another message can be taken: one at a time, so that those behind it know how long they have waited.
    fn is_ready(&self) -> bool {
        self.outgoing.is_empty() && self.replay.is_none() && self.closed.is_none() && self.ended.is_none()
    }

    fn take(&mut self, command: Command) {
        let Command { kind, line, caller } = command;
        if caller.is_gone() {
            return;
        }
        match kind {
            Kind::Request { id, token } => {
                let number = caller.number;
                match self.routes.add(id, token, caller) {
                    Ok(()) => self.outgoing.call(line, number),
                    Err(caller) => caller.end(Err(Failure::IdInUse)),
                }
                return;
            }
            Kind::Cancelled(Some(id)) => self.routes.cancel(&id, Instant::now()),
            Kind::Initialized => self.conversation.handshake.initialized = true,
            // An answer to nobody, or to what a process before this one asked.
            Kind::Response(id) if id.as_ref().is_none_or(|id| self.asked.remove(id).is_none()) => {
                return caller.end(Ok(None));
            }
            Kind::Cancelled(None) | Kind::Response(_) | Kind::Other => {}
        }
        self.outgoing.told(line, caller);
    }

    fn control(&mut self, control: Control) {
        if let Control::Gone(number) = &control {
            self.routes.gone(*number);
        }
        self.conversation.control(control);
    }

    // === Time, and the end ===

    /// Whatever is left to be read was held up until now.
    fn last_words_wait(&mut self) {
        let now = Instant::now();
        let ended = self.ended.as_mut().map(|(_, at)| at);
        for at in [ended, self.closed.as_mut()].into_iter().flatten() {
            *at = now;
        }
    }

    fn tick(&mut self, now: Instant) {
        self.routes.end_cancelled(now);
        if self.pause.is_some_and(|until| until <= now) {
            self.pause = None;
        }
        if self.replay.as_ref().is_some_and(|(_, until)| *until <= now) {
            self.doom.get_or_insert(Why::Mute);
        }
        if self.routes.is_overburdened() {
            self.doom.get_or_insert(Why::Unanswered);
        }
        let lingers = self.ended.is_none() && self.delivery.is_none();
        if lingers && self.closed.is_some_and(|since| since + LAST_WORDS <= now) {
            self.doom.get_or_insert(Why::Closed);
        }
    }

    fn due(&self) -> Option<Instant> {
        let end = self.ended.as_ref().map(|(_, at)| *at).or(self.closed).map(|at| at + LAST_WORDS);
        let end = end.filter(|_| self.delivery.is_none());
        let replay = self.replay.as_ref().map(|(_, until)| *until);
        [self.routes.due(), self.pause, end, replay].into_iter().flatten().min()
    }

    /// Whether there is nothing more to be had, and why.
    fn over(&self, now: Instant) -> Option<Failure> {
        if self.conversation.ending {
            return Some(Failure::Ended);
        }
        if self.stranger {
            return Some(Failure::Forgotten);
        }
        if let Some(why) = &self.doom {
            return Some(Gone::failure(why.clone(), &[]));
        }
        let (heard, at) = self.ended.as_ref()?;
        let nobody_waits = self.routes.is_empty() && self.replay.is_none();
        let read = self.end_of_output || *at + LAST_WORDS <= now;
        (nobody_waits || read && self.delivery.is_none()).then(|| match heard {
            Heard::Ended(ended) => Gone::failure(process::why(ended), &ended.stderr),
            Heard::Lost => Gone::failure(Why::Lost, &[]),
        })
    }

    /// Tells everybody, and ends the process if it has not ended.
    async fn finish(mut self, failure: Failure) -> Option<Command> {
        let unwritten = self.outgoing.give_up(&failure);
        // A process that died before this call even began did not fail it.
        let again = unwritten
            .filter(|_| self.ended.is_some() || self.closed.is_some())
            .filter(|_| self.conversation.handshake.is_complete() && !self.conversation.ending)
            .and_then(|(number, line)| Some((self.routes.take(number)?, line)))
            .map(|(Call { id, token, caller, .. }, line)| Command {
                kind: Kind::Request { id, token },
                line,
                caller,
            });
        self.routes.fail(&failure);
        if let Some((command, _)) = self.replay.take() {
            command.caller.end(Err(failure.clone()));
        }
        let why = match &failure {
            Failure::Process(gone) => gone.why.clone(),
            _ => Why::Asked,
        };
        if why != Why::Asked {
            tracing::info!(reason = why.name(), "a process of the server ended");
        }
        let Self { conversation, process, ended, doom, stranger, asked, delivery, lines, outgoing, .. } =
            self;
        // What they hold is not held for as long as the process takes to end.
        drop((delivery, lines, outgoing));
        if stranger
            || asked.values().any(|matters| *matters)
            || conversation.ending
            || conversation.is_own()
            || conversation.handshake.again().is_none()
        {
            // Nobody may wait in a queue that nobody will look at.
            conversation.close();
        }
        let metrics = conversation.stdio().metrics.clone();
        if ended.is_none() {
            process.end(if doom.is_some() { IMPATIENCE } else { PATIENCE }).await;
        }
        metrics.process_ended(why.label());
        again
    }
}

async fn room(
    delivery: &Option<(mpsc::Sender<Bytes>, Bytes)>,
) -> Result<mpsc::OwnedPermit<Bytes>, mpsc::error::SendError<()>> {
    match delivery {
        Some((to, _)) => to.clone().reserve_owned().await,
        None => std::future::pending().await,
    }
}
