//! The conversation with one process, from its start to its end.
//!
//! Everything that can wait is waited for at once, so that neither side can stop the other by not reading: while a
//! message is being written, what the process writes is read all the same; while a slow reader holds up what the
//! process writes, messages to it are written. What bounds the waiting is that those who wait have deadlines, and
//! where several sessions share a process, that nobody is waited for twice.

mod afterwards;
mod early;
mod hangs;
mod incoming;
mod indulgence;
mod reading;
mod stateless;
mod taking;
mod unwanted;

use std::collections::{HashMap, VecDeque};
use std::io;

use bytes::Bytes;
use futures::FutureExt;
use tokio::net::unix::pipe;
use tokio::task::yield_now;
use tokio::time::{Duration, Instant, sleep_until};

use super::call::Reader;
use super::conversation::{Conversation, Start};
use super::handshake::FIRST;
use super::lines::{Lines, MAX_LINE};
use super::message::{Command, Key, UNAWAITED};
use super::outgoing::Outgoing;
use super::process::{self, Heard, IMPATIENCE, PATIENCE, Process};
use super::routes::Routes;
use super::{Control, Failure, Gone, Name, Why};
use crate::held::{Came, Coming};
use afterwards::Afterwards;
use early::Early;
use hangs::Hangs;
use indulgence::Indulgence;
use longshore_mcp::level::Level;
use unwanted::Unwanted;

/// How long the rest of what a process wrote is read after its end, and how long its end is waited for when it has
/// closed its pipes.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How much is read before others have their turn.
const TURN: usize = 256 * 1024;
/// How many of a sidecar's calls are numbered before the next sidecar's begin.
const CALLS_OF_A_LIFE: u64 = 1 << 40;
/// How many messages are taken at once, where there is room for what they say.
const AT_ONCE: usize = 16;

/// A process, and all that is under way with it.
pub(super) struct Talk<'a> {
    conversation: &'a mut Conversation,
    process: Process,
    lines: Lines,
    /// What has come of the next line, counted. Nothing is read while there is no room for it.
    coming: Coming,
    /// What counts the line that is being taken.
    came: Option<Came>,
    outgoing: Outgoing,
    routes: Routes,
    afterwards: Afterwards,
    /// The number of the next call.
    next: u64,
    /// What the process has asked clients and was not answered, by our numbers.
    asked: HashMap<u64, Question>,
    /// What it has asked before its client could be.
    early: Early,
    /// What is left of a batch of the process, and what counts that.
    batch: VecDeque<Bytes>,
    batch_came: Option<Came>,
    /// A message that waits for a slow reader. Nothing is read meanwhile.
    delivery: Option<Delivery>,
    /// How long readers may be waited for, where others wait too.
    indulgence: Indulgence,
    /// The handshake is under way.
    shaking: bool,
    /// How long that may take where others wait for it too, or another process has done it before, and until when that
    /// is; where it is one client's own, that client's patience is the limit.
    shake_until: Option<(Instant, Duration)>,
    /// The messages that the process was started again for, until the handshake has been repeated.
    held: Vec<Command>,
    /// How much the process was told to say.
    level: Option<Level>,
    /// The next line may be half of one: of the first another sidecar may have begun to read, and of the last its process
    /// may have died.
    half: bool,
    /// How it ended, and when.
    ended: Option<(Heard, Instant)>,
    /// It has closed stdout.
    end_of_output: bool,
    /// Since when one of its pipes is closed.
    closed: Option<Instant>,
    /// What everybody is told, once it is to end: that is the first reason that was found.
    end: Option<Failure>,
    first_noise: Option<String>,
    /// How much it has written since its last message.
    noise: usize,
    unwanted: Unwanted,
    pause: Option<Instant>,
    hangs: Hangs,
    /// Since when nobody has called it.
    quiet: Option<Instant>,
    /// How much was read since others had their turn.
    turn: usize,
}

/// What a process has asked a client.
struct Question {
    from: Name,
    /// The id that the process knows it by, as it was written.
    id: String,
    /// By what it wants to hear of the client's progress.
    token: Option<Key>,
    /// In which call.
    call: Option<u64>,
}

/// A message that waits for a reader.
struct Delivery {
    to: Reader,
    message: Bytes,
    since: Instant,
    /// Until then, if others wait too.
    until: Option<Instant>,
    /// The number of the question that it is, if it is one.
    question: Option<u64>,
}

impl<'a> Talk<'a> {
    /// A process that has begun in this way, and the first messages for it.
    pub(super) fn new(
        conversation: &'a mut Conversation,
        process: Process,
        start: Start,
        first: Vec<Command>,
    ) -> Self {
        // What those asked for who have left meanwhile, this process has never heard.
        conversation.left.clear();
        let shakes = !start.goes_on && !conversation.stands_alone();
        let is_limited = conversation.handshake.is_complete() || conversation.is_shared();
        let patience = conversation.stdio().starts.patience();
        let coming = conversation.coming();
        let mut talk = Self {
            conversation,
            process,
            lines: Lines::new(MAX_LINE),
            coming,
            came: None,
            outgoing: Outgoing::default(),
            routes: Routes::default(),
            afterwards: Afterwards::default(),
            next: u64::from(start.life) * CALLS_OF_A_LIFE + FIRST + 1,
            asked: HashMap::new(),
            early: Early::default(),
            batch: VecDeque::new(),
            batch_came: None,
            delivery: None,
            indulgence: Indulgence::default(),
            shaking: shakes,
            shake_until: is_limited.then(|| (Instant::now() + patience, patience)),
            held: first,
            level: None,
            half: start.goes_on,
            ended: None,
            end_of_output: false,
            closed: None,
            end: None,
            first_noise: None,
            noise: 0,
            unwanted: Unwanted::default(),
            pause: None,
            hangs: Hangs::default(),
            quiet: None,
            turn: 0,
        };
        if start.goes_on {
            // The sidecar before may have left half a line. This ping completes it, and is lost with it; where there is
            // none, it is an ordinary message, which a bare line feed would not be to every server.
            talk.ping();
            talk.take_held();
        } else if !shakes {
            talk.take_held();
        } else if !start.told {
            talk.outgoing.own(talk.conversation.handshake.line().trim_ascii_end());
        }
        talk
    }

    /// Talks until the process is gone. Gives back messages that it never saw.
    pub(super) async fn run(mut self) -> Vec<Command> {
        loop {
            self.read_lines();
            let now = Instant::now();
            self.tick(now);
            if let Some(failure) = self.over(now) {
                return self.finish(failure).await;
            }
            if self.routes.is_empty() {
                self.lines.shrink();
            }
            let due = self.due();
            let writes = !self.outgoing.is_empty() && self.closed.is_none() && self.ended.is_none();
            let reads = self.delivery.is_none() && self.pause.is_none() && !self.end_of_output;
            let ready = self.is_ready();
            let held_up = self.is_held_up();
            let Process { stdin, stdout, lifeline, running } = &mut self.process;
            tokio::select! {
                Some(control) = self.conversation.control.recv() => self.control(control),
                Some(command) = self.conversation.commands.recv(), if ready => {
                    self.take_several(command);
                    // Nearly always there is room for it.
                    if let Some(written) = self.outgoing.write(&mut self.process.stdin).now_or_never() {
                        self.written(written);
                    }
                }
                written = self.outgoing.write(stdin), if writes => self.written(written),
                readable = readable(stdout, &mut self.coming), if reads => {
                    if held_up {
                        self.last_words_wait();
                    }
                    match readable {
                        Ok(()) => self.read(),
                        Err(_) => self.output_ended(),
                    }
                }
                heard = running.heard(lifeline), if self.ended.is_none() => {
                    self.ended = Some((heard, Instant::now()));
                }
                () = room(&self.delivery), if self.delivery.is_some() => {
                    if let Some(delivery) = self.delivery.take() {
                        self.waited_for(&delivery);
                        delivery.to.offer(&delivery.message);
                    }
                    self.last_words_wait();
                }
                // A timer is only made where one is waited for.
                () = async { sleep_until(due.unwrap_or(now)).await }, if due.is_some() => {}
            }
            if self.turn >= TURN {
                self.turn = 0;
                yield_now().await;
            }
        }
    }

    /// Something was written, or cannot be any more.
    fn written(&mut self, written: io::Result<()>) {
        if written.is_err() {
            self.closed.get_or_insert_with(Instant::now);
        }
        for number in self.outgoing.written() {
            self.routes.written(number);
        }
    }

    /// Whether what the process has written is not read, because it has to wait.
    fn is_held_up(&self) -> bool {
        self.delivery.is_some() || !self.coming.is_counted()
    }

    /// Whether more messages can be taken.
    fn is_ready(&self) -> bool {
        self.outgoing.has_room() && !self.shaking && self.closed.is_none() && self.ended.is_none()
    }

    fn control(&mut self, control: Control) {
        match &control {
            // Of a call that stands alone its end tells more: it has to be taken back.
            Control::Gone(number) if !self.conversation.stands_alone() => {
                if let Some((number, true)) = self.routes.gone(*number) {
                    self.outgoing.cancel(number, UNAWAITED);
                }
            }
            _ => {}
        }
        let listens = matches!(control, Control::Listen(..));
        self.conversation.control(control);
        if listens {
            self.ask_early();
        }
        for left in std::mem::take(&mut self.conversation.left) {
            self.forget(left);
        }
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

    /// A reader was waited for, whether it has read or not.
    fn waited_for(&mut self, delivery: &Delivery) {
        self.coming.put_off();
        if delivery.until.is_some() {
            let now = Instant::now();
            self.indulgence.spend(delivery.to.spend(now - delivery.since), now);
        }
    }

    fn tick(&mut self, now: Instant) {
        self.routes.end_cancelled(now);
        self.conversation.tick(now);
        if self.pause.is_some_and(|until| until <= now) {
            self.pause = None;
        }
        if let Some((_, patience)) = self.handshake_due().filter(|(until, _)| *until <= now) {
            self.doom(Why::Mute(patience.as_secs()));
        }
        self.look_whether_it_hangs(now);
        self.look_whether_it_stops(now);
        self.look_whether_it_waits(now);
        if let Some(late) = self.delivery.take_if(|delivery| delivery.until.is_some_and(|until| until <= now))
        {
            self.waited_for(&late);
            self.missed(&late.to, &late.message, now);
            if let Some(question) = late.question {
                self.unread(question);
            }
        }
        if self.be_quiet(now) && self.ended.is_none() {
            self.end.get_or_insert(Failure::Ended);
        }
        let lingers = self.ended.is_none() && !self.is_held_up();
        if lingers && self.closed.is_some_and(|since| since + LAST_WORDS <= now) {
            self.doom(Why::Closed);
        }
    }

    /// Notes whether nobody calls a process that several share, and says whether that is so for long enough. One that is
    /// to tell somebody of a resource is not idle.
    fn be_quiet(&mut self, now: Instant) -> bool {
        let Some(idle) = self.conversation.patience() else { return false };
        // Not every server answers what the sidecar itself asks, and nobody waits for that.
        let busy = self.shaking || self.routes.count() > 0 || !self.outgoing.is_empty();
        if busy || self.conversation.members.have_subscriptions() {
            self.quiet = None;
            return false;
        }
        *self.quiet.get_or_insert(now) + idle <= now
    }

    /// When the handshake has taken too long, and how long that is.
    fn handshake_due(&self) -> Option<(Instant, Duration)> {
        self.shake_until.filter(|_| self.shaking)
    }

    fn due(&self) -> Option<Instant> {
        let end = self.ended.as_ref().map(|(_, at)| *at).or(self.closed).map(|at| at + LAST_WORDS);
        let end = end.filter(|_| !self.is_held_up());
        let delivery = self.delivery.as_ref().and_then(|delivery| delivery.until);
        let rest = self.quiet.zip(self.conversation.patience()).map(|(since, idle)| since + idle);
        let shaken = self.handshake_due().map(|(until, _)| until);
        let own = [self.routes.due(), self.pause, end, shaken, delivery, rest, self.hangs.due()];
        own.into_iter().chain([self.early.due(), self.conversation.due()]).flatten().min()
    }

    /// It has to be ended.
    fn doom(&mut self, why: Why) {
        self.end.get_or_insert_with(|| Gone::failure(why, &[]));
    }

    /// Whether there is nothing more to be had, and why.
    fn over(&self, now: Instant) -> Option<Failure> {
        if self.conversation.ending {
            return Some(Failure::Ended);
        }
        if let Some(failure) = &self.end {
            return Some(failure.clone());
        }
        let (heard, at) = self.ended.as_ref()?;
        let nobody_waits = self.routes.is_empty() && !self.shaking;
        let read = self.end_of_output || *at + LAST_WORDS <= now;
        (nobody_waits || read && !self.is_held_up()).then(|| match heard {
            // What it wrote could be about anybody's call, where they are not of one principal.
            Heard::Ended(ended) if self.conversation.is_of_many() => Gone::failure(process::why(ended), &[]),
            Heard::Ended(ended) => Gone::failure(process::why(ended), &ended.stderr),
            Heard::Lost => Gone::failure(Why::Lost, &[]),
        })
    }

    /// Tells everybody, and ends the process if it has not ended.
    async fn finish(mut self, failure: Failure) -> Vec<Command> {
        self.conversation.turn = None;
        let unwritten = self.outgoing.give_up(&failure);
        // A process that died before these calls even began, or was ended since it does harm, did not fail them.
        let gone = matches!(failure, Failure::Process(_));
        let complete = self.conversation.handshake.is_complete() && !self.shaking;
        let mut again = Vec::new();
        if gone && complete && !self.conversation.ending {
            again.extend(unwritten.into_iter().filter_map(|number| self.routes.take(number)));
        }
        self.routes.fail(&failure);
        for command in self.held.drain(..) {
            command.caller.end(Err(failure.clone()));
        }
        let why = match &failure {
            Failure::Process(gone) => gone.why.clone(),
            _ => Why::Asked,
        };
        if why != Why::Asked {
            let running = &self.process.running;
            let (number, mebibytes) = (running.number, running.mebibytes());
            tracing::info!(reason = why.name(), number, mebibytes, "a process of the server ended");
        }
        let Self {
            conversation, process, ended, delivery, lines, coming, batch, batch_came, outgoing, ..
        } = self;
        // What they hold is not held for as long as the process takes to end: nor is the turn of a message half of which came.
        drop((delivery, lines, coming, batch, batch_came, outgoing));
        conversation.fail_joining(&failure);
        if matches!(failure, Failure::Forgotten)
            || conversation.ending
            || conversation.is_own()
            || !conversation.handshake.can_be_repeated()
        {
            // Nobody may wait in a queue that nobody will look at.
            conversation.close();
        }
        let metrics = conversation.stdio().metrics.clone();
        if ended.is_none() {
            process.end(if why == Why::Asked { PATIENCE } else { IMPATIENCE }).await;
        }
        match failure {
            Failure::Ended if !conversation.ending => conversation.rest(),
            _ => conversation.note_death(),
        }
        metrics.process_ended(why.end());
        again
    }
}

/// Waits until there is something to read, and room for what is being read.
async fn readable(stdout: &pipe::Receiver, coming: &mut Coming) -> io::Result<()> {
    coming.room_at_last().await;
    // Where nothing comes any more, whoever reads looks why.
    coming.more(stdout.readable()).await.unwrap_or(Ok(()))
}

async fn room(delivery: &Option<Delivery>) {
    match delivery {
        Some(delivery) => delivery.to.room().await,
        None => std::future::pending().await,
    }
}
