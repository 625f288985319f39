//! The calls that are under way in one conversation with the server, and for which of them a message of the server is.
//!
//! The server knows them by numbers of ours, which are never used twice: an answer that comes late, when nobody waits
//! for it any more, is never taken for that of another call.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::{Bytes, BytesMut};
use longshore_mcp::{object, tasks};
use tokio::time::{Duration, Instant};

use super::call::{Caller, Failure, Matched};
use super::channel::Name;
use super::message::{About, Asked, Command, Key, Kind, Span, text};
use crate::held::Came;

/// How long an answer may still come to a call that its client has cancelled. Servers do not answer them, and the
/// client does not wait; what waits is only its HTTP request.
const GRACE: Duration = Duration::from_secs(1);
/// What is kept whole of a message that the server has: more than this is let go.
pub(super) const FEW: usize = 4 * 1024;
/// How many calls that have become tasks are remembered, of one session and in all: of those that began last the progress is
/// told. Nobody hears when a task ends.
const MAX_TASKS_OF_ONE: usize = 64;
const MAX_TASKS: usize = 4096;
/// How many of the sidecar's own calls are waited for: not every server answers them, and the oldest matter least.
const MAX_OWN: usize = 1024;
/// The longest token of theirs that is kept for that: twice as long as people have.
const MAX_TOKEN_OF_TASK: usize = 64;

/// Calls under way.
#[derive(Default)]
pub(super) struct Routes {
    /// By number: the newest is the last.
    calls: BTreeMap<u64, Call>,
    ids: HashMap<(Name, Key), u64>,
    /// When the calls end that were cancelled. All get the same time, so they are in order.
    cancelled: VecDeque<(Instant, u64)>,
    /// Those that have become tasks, with the tokens that their progress goes on under: the oldest is the first.
    tasks: BTreeMap<u64, (Name, Box<str>)>,
    /// A call was given up that the process may still be busy with, so what it says of no call could be of that one.
    pub(super) abandoned: bool,
    /// How many calls were given up before their answer came. Who only listened had all that was to come.
    pub(super) given_up: u64,
}

/// A call under way.
pub(super) struct Call {
    /// In which session. None: the sidecar's own, whose answer nobody needs.
    pub(super) from: Option<Name>,
    caller: Option<Caller>,
    asked: Asked,
    body: Bytes,
    is_cancelled: bool,
}

impl Call {
    /// A call of a client.
    pub(super) fn of(from: Name, asked: Asked, body: Bytes, caller: Caller) -> Self {
        Self { from: Some(from), caller: Some(caller), asked, body, is_cancelled: false }
    }

    /// One of the sidecar's own.
    pub(super) fn own(about: About) -> Self {
        let asked = Asked { id: Key::Number(0), at: 0..0, token: None, about };
        Self { from: None, caller: None, asked, body: Bytes::new(), is_cancelled: false }
    }

    pub(super) fn caller(&self) -> Option<&Caller> {
        self.caller.as_ref().filter(|_| !self.is_cancelled)
    }

    pub(super) fn about(&self) -> &About {
        &self.asked.about
    }

    pub(super) fn asked(&self) -> &Asked {
        &self.asked
    }

    pub(super) fn body(&self) -> &Bytes {
        &self.body
    }

    /// Its id, as its client wrote it.
    pub(super) fn id(&self) -> String {
        text(&self.body, &self.asked.at)
    }

    /// The token of its progress, as its client wrote it.
    pub(super) fn token(&self) -> Option<String> {
        self.asked.token.as_ref().map(|at| text(&self.body, at))
    }

    /// Whether it is a task once it is answered with this.
    pub(super) fn becomes_task(&self, result: &str) -> bool {
        match self.about() {
            About::Task => object::at(result, &["task"]).is_some(),
            // The server may make one of what nobody has asked it to.
            About::Other => tasks::is_task(result),
            _ => false,
        }
    }

    /// Keeps what its answer needs, and no more: it may be a long time until that comes.
    fn shrink(&mut self) {
        if self.body.len() <= FEW {
            return;
        }
        let mut kept = BytesMut::new();
        let mut keep = |at: &mut Span| {
            let begin = kept.len();
            kept.extend_from_slice(self.body.get(at.clone()).unwrap_or_default());
            *at = begin..kept.len();
        };
        keep(&mut self.asked.at);
        self.asked.token.iter_mut().for_each(keep);
        self.body = kept.freeze();
    }

    pub(super) fn end(self, ending: Result<Option<Bytes>, Failure>) {
        if let Some(caller) = self.caller {
            caller.end(ending);
        }
    }

    /// Ends it with the server's answer, and what counts that.
    pub(super) fn answer(self, answer: Bytes, matched: Matched, came: Option<Came>) {
        if let Some(caller) = self.caller {
            caller.answer(answer, matched, came);
        }
    }

    fn into_command(self) -> Option<Command> {
        let Self { from, caller, asked, body, .. } = self;
        Some(Command { from: from?, kind: Kind::Request(asked), body, caller: caller? })
    }
}

impl Routes {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Adds a call under a number. It comes back if its id is in use in its session.
    pub(super) fn add(&mut self, number: u64, call: Call) -> Result<&Call, Box<Call>> {
        if let Some(from) = call.from {
            match self.ids.entry((from, call.asked.id.clone())) {
                Entry::Occupied(_) => return Err(Box::new(call)),
                Entry::Vacant(free) => free.insert(number),
            };
        } else if self.calls.len().saturating_sub(self.ids.len()) >= MAX_OWN {
            let own = self.calls.iter().find(|(_, call)| call.from.is_none());
            if let Some(oldest) = own.map(|(number, _)| *number) {
                self.calls.remove(&oldest);
            }
        }
        Ok(self.calls.entry(number).or_insert(call))
    }

    /// A call was written, and is not sent again.
    pub(super) fn written(&mut self, number: u64) {
        if let Some(call) = self.calls.get_mut(&number) {
            call.shrink();
        }
    }

    /// The call that an answer is for; it is over.
    pub(super) fn answered(&mut self, number: u64) -> Option<Call> {
        let call = self.calls.remove(&number)?;
        if let Some(from) = call.from {
            self.ids.remove(&(from, call.asked.id.clone()));
        }
        Some(call)
    }

    /// The process has answered a call. It may go on with one that was cancelled all the same.
    pub(super) fn note_answered(&mut self, call: &Call) {
        self.abandoned |= call.is_cancelled && call.about().may_go_on();
    }

    /// A call was answered with this: if it is a task now, its token stays good. One that nobody has asked for is told of
    /// in its own way, and has no token.
    pub(super) fn note_task(&mut self, number: u64, call: &Call, result: &str) {
        let (About::Task, Some(from)) = (call.about(), call.from) else { return };
        let token = call.token().filter(|token| token.len() <= MAX_TOKEN_OF_TASK);
        let Some(token) = token.filter(|_| call.becomes_task(result)) else { return };
        let mut of_session =
            self.tasks.iter().filter(|(_, (name, _))| *name == from).map(|(begun, _)| *begun);
        if let Some(oldest) = of_session.next()
            && of_session.count() + 1 >= MAX_TASKS_OF_ONE
        {
            self.tasks.remove(&oldest);
        } else if self.tasks.len() >= MAX_TASKS {
            self.tasks.pop_first();
        }
        self.tasks.insert(number, (from, token.into()));
    }

    /// In which session the call of this number has become a task, and the token of that, as its client wrote it.
    pub(super) fn task(&self, number: u64) -> Option<(Name, &str)> {
        let (from, token) = self.tasks.get(&number)?;
        Some((*from, token))
    }

    /// The call of this number.
    pub(super) fn get(&self, number: u64) -> Option<&Call> {
        self.calls.get(&number)
    }

    /// The newest call that is waited for, of this session if one is named.
    pub(super) fn newest(&self, of: Option<Name>) -> Option<&Call> {
        let mut calls = self.calls.values().rev();
        calls.find(|call| call.caller().is_some() && (of.is_none() || call.from == of))
    }

    /// The newest call that is waited for, of those that something holds for, and its number.
    pub(super) fn newest_where(&self, holds: impl Fn(&Call) -> bool) -> Option<(u64, &Call)> {
        let found = self.calls.iter().rev().find(|(_, call)| call.caller().is_some() && holds(call));
        found.map(|(number, call)| (*number, call))
    }

    /// The call of a client, where there is one alone. Those that listen do not count: what is of them names them.
    pub(super) fn only(&self) -> Option<&Call> {
        let mut calls =
            self.calls.values().filter(|call| call.from.is_some() && !matches!(call.about(), About::Listen));
        let first = calls.next();
        first.filter(|_| calls.next().is_none())
    }

    /// Whether a session is about to be subscribed to this resource.
    pub(super) fn subscribes(&self, uri: &str) -> bool {
        let subscribes = |call: &Call| matches!(call.about(), About::Subscribe(to) if to == uri);
        self.newest_where(subscribes).is_some()
    }

    /// Whether a client has the server asked to say so much of its log.
    pub(super) fn sets_level(&self) -> bool {
        self.newest_where(|call| matches!(call.about(), About::Level(_))).is_some()
    }

    /// Whether the server is about to hear that nobody is subscribed to this resource, or to have done with it.
    pub(super) fn unsubscribes(&self, uri: &str) -> bool {
        self.calls.values().any(|call| matches!(call.about(), About::Unsubscribe(from) if from == uri))
    }

    /// A session does not want to be subscribed to this resource any more: what it asked for before is answered, and
    /// makes it no subscriber.
    pub(super) fn take_back(&mut self, from: Name, uri: &str) {
        for call in self.calls.values_mut().filter(|call| call.from == Some(from)) {
            if matches!(call.about(), About::Subscribe(to) if to == uri) {
                call.asked.about = About::TakenBack(uri.to_owned());
            }
        }
    }

    /// The sessions that have calls under way, without telling any of them twice in a row.
    pub(super) fn sessions(&self) -> impl Iterator<Item = Name> {
        let mut last = None;
        self.calls
            .values()
            .filter_map(|call| call.from)
            .filter(move |name| last.replace(*name) != Some(*name))
    }

    /// How many there are, the sidecar's own not counted.
    pub(super) fn count(&self) -> usize {
        self.ids.len()
    }

    /// The client does not want the answer any more. Gives the number that the process knows the call by.
    pub(super) fn cancel(&mut self, from: Name, id: &Key, now: Instant) -> Option<u64> {
        let number = *self.ids.get(&(from, id.clone()))?;
        let call = self.calls.get_mut(&number)?;
        if let Some(caller) = call.caller.as_ref().filter(|_| !call.is_cancelled) {
            caller.begin();
            self.cancelled.push_back((now + GRACE, number));
        }
        call.is_cancelled = true;
        Some(number)
    }

    /// When the next cancelled call ends.
    pub(super) fn due(&self) -> Option<Instant> {
        self.cancelled.front().map(|(until, _)| *until)
    }

    /// Ends the cancelled calls whose time is over. Gives their numbers.
    pub(super) fn end_cancelled(&mut self, now: Instant) -> Vec<u64> {
        let mut ended = Vec::new();
        while let Some((_, number)) = self.cancelled.pop_front_if(|(until, _)| *until <= now) {
            if let Some(call) = self.answered(number) {
                self.give_up(call.about());
                call.end(Err(Failure::Cancelled));
                ended.push(number);
            }
        }
        ended
    }

    /// Nobody waits for this caller's call any more. Gives its number, and whether the server is to be told.
    pub(super) fn gone(&mut self, caller: u64) -> Option<(u64, bool)> {
        let (number, call) = self.abandon(caller)?;
        // That only once, and not of what stays as it is set, whether anybody hears so or not.
        Some((number, !call.is_cancelled && !call.about().sets()))
    }

    /// This caller waits, and reads nothing. Gives the number that the process knows the call by.
    pub(super) fn unread(&mut self, caller: u64) -> Option<u64> {
        let (number, call) = self.abandon(caller)?;
        call.end(Err(Failure::Unread));
        Some(number)
    }

    /// Takes a caller's call out, which the process may still be busy with.
    fn abandon(&mut self, caller: u64) -> Option<(u64, Call)> {
        let is = |call: &Call| call.caller.as_ref().is_some_and(|waits| waits.number == caller);
        let number = self.calls.iter().find(|(_, call)| is(call)).map(|(number, _)| *number)?;
        let call = self.answered(number)?;
        self.give_up(call.about());
        Some((number, call))
    }

    /// Takes a call out that the process has not seen. One that its client does not want any more is over with that.
    pub(super) fn take(&mut self, number: u64) -> Option<Command> {
        let call = self.answered(number)?;
        if call.is_cancelled {
            call.end(Err(Failure::Cancelled));
            return None;
        }
        call.into_command()
    }

    /// Takes the calls of one session out, which has ended. Gives their numbers.
    pub(super) fn leave(&mut self, name: Name, failure: &Failure) -> Vec<u64> {
        self.tasks.retain(|_, (from, _)| *from != name);
        let of = |call: &Call| call.from == Some(name);
        let numbers: Vec<_> =
            self.calls.iter().filter(|(_, call)| of(call)).map(|(number, _)| *number).collect();
        for number in &numbers {
            if let Some(call) = self.answered(*number) {
                self.give_up(call.about());
                call.end(Err(failure.clone()));
            }
        }
        numbers
    }

    fn give_up(&mut self, about: &About) {
        self.abandoned |= about.may_go_on();
        self.given_up += u64::from(!matches!(about, About::Listen));
    }

    /// Ends all calls.
    pub(super) fn fail(&mut self, failure: &Failure) {
        self.ids.clear();
        for call in std::mem::take(&mut self.calls).into_values() {
            call.end(Err(failure.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
