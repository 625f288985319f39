//! The calls that are under way in one conversation with the server, and for which of them a message of the server is.
//!
//! The server knows them by numbers of ours, which are never used twice: an answer that comes late, when nobody waits
//! for it any more, is never taken for that of another call.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::{Bytes, BytesMut};
use longshore_mcp::object;
use tokio::time::{Duration, Instant};

use super::call::{Caller, Failure};
use super::channel::Name;
use super::message::{About, Asked, Command, Key, Kind, Span, text};
use crate::held::Came;

/// How long an answer may still come to a call that its client has cancelled. Servers do not answer them, and the
/// client does not wait; what waits is only its HTTP request.
const GRACE: Duration = Duration::from_secs(1);
/// What is kept whole of a message that the server has: more than this is let go.
pub(super) const FEW: usize = 4 * 1024;
/// How many calls that nobody waits for are remembered, so that the server can be told. That comes at once or never.
const MAX_LOST: usize = 256;
/// How many calls that have become tasks are remembered, of one session and in all: of those that began last the progress is
/// told. Nobody hears when a task ends.
const MAX_TASKS_OF_ONE: usize = 64;
const MAX_TASKS: usize = 4096;
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
    /// Those that nobody waits for any more.
    lost: VecDeque<(Name, Key, u64)>,
    /// Those that have become tasks, with the tokens that their progress goes on under: the oldest is the first.
    tasks: BTreeMap<u64, (Name, Box<str>)>,
    /// A call was given up that the process may still be busy with, so what it says of no call could be of that one.
    pub(super) abandoned: bool,
    /// How many calls were given up before their answer came.
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
        self.end_counted(ending, None);
    }

    /// Ends it with an answer that is counted by this.
    pub(super) fn end_counted(self, ending: Result<Option<Bytes>, Failure>, came: Option<Came>) {
        if let Some(caller) = self.caller {
            caller.end_counted(ending, came);
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
            let id = (from, call.asked.id.clone());
            if self.ids.contains_key(&id) {
                return Err(Box::new(call));
            }
            self.ids.insert(id, number);
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

    /// A call was answered with this: if it is a task now, its token stays good.
    pub(super) fn note_task(&mut self, number: u64, call: &Call, result: &str) {
        let (About::Task, Some(from), Some(token)) = (call.about(), call.from, call.token()) else { return };
        if token.len() > MAX_TOKEN_OF_TASK || object::at(result, &["task"]).is_none() {
            return;
        }
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

    /// The newest call that is waited for, of those that something holds for.
    pub(super) fn newest_where(&self, holds: impl Fn(&Call) -> bool) -> Option<&Call> {
        self.calls.values().rev().find(|call| call.caller().is_some() && holds(call))
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

    /// The number of the newest call that is waited for.
    pub(super) fn newest_number(&self) -> Option<u64> {
        self.calls.iter().rev().find(|(_, call)| call.caller().is_some()).map(|(number, _)| *number)
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
        if let Some(number) = self.take_lost(from, id) {
            return Some(number);
        }
        let number = *self.ids.get(&(from, id.clone()))?;
        let call = self.calls.get_mut(&number)?;
        if let Some(caller) = call.caller.as_ref().filter(|_| !call.is_cancelled) {
            caller.begin();
            self.cancelled.push_back((now + GRACE, number));
        }
        call.is_cancelled = true;
        Some(number)
    }

    /// The same where that was said long ago, at that time: the id may be another call's by now.
    pub(super) fn cancel_late(&mut self, from: Name, id: &Key, since: Instant, now: Instant) -> Option<u64> {
        let call = self.ids.get(&(from, id.clone())).and_then(|number| self.calls.get(number));
        let is_another =
            call.and_then(|call| call.caller.as_ref()).is_some_and(|caller| caller.since > since);
        if is_another { self.take_lost(from, id) } else { self.cancel(from, id, now) }
    }

    /// The number of a call with this id that nobody waits for any more. It is told only once.
    fn take_lost(&mut self, from: Name, id: &Key) -> Option<u64> {
        let index = self.lost.iter().position(|(name, key, _)| *name == from && key == id)?;
        self.lost.remove(index).map(|(_, _, number)| number)
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
                self.give_up();
                call.end(Err(Failure::Cancelled));
                ended.push(number);
            }
        }
        ended
    }

    /// Nobody waits for this caller's call any more. Gives its number.
    pub(super) fn gone(&mut self, caller: u64) -> Option<u64> {
        let (number, call) = self.abandon(caller)?;
        let Call { from: Some(from), asked, is_cancelled, .. } = call else { return None };
        if is_cancelled {
            // The server is told only once.
            return Some(number);
        }
        if self.lost.len() >= MAX_LOST {
            self.lost.pop_front();
        }
        self.lost.push_back((from, asked.id, number));
        Some(number)
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
        self.give_up();
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
        self.lost.retain(|(from, ..)| *from != name);
        self.tasks.retain(|_, (from, _)| *from != name);
        let of = |call: &Call| call.from == Some(name);
        let numbers: Vec<_> =
            self.calls.iter().filter(|(_, call)| of(call)).map(|(number, _)| *number).collect();
        for number in &numbers {
            if let Some(call) = self.answered(*number) {
                self.give_up();
                call.end(Err(failure.clone()));
            }
        }
        numbers
    }

    fn give_up(&mut self) {
        self.abandoned = true;
        self.given_up += 1;
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
mod tests {
    use super::super::call::{Waiting, pair};
    use super::*;

    #[derive(Default)]
    struct Table {
        routes: Routes,
        waiting: Vec<Waiting>,
        next: u64,
    }

    fn key(id: &str) -> Key {
        Key::Text(id.to_owned())
    }

    impl Table {
        fn new(calls: &[(Name, &str)]) -> Self {
            let mut table = Self::default();
            for (from, id) in calls {
                assert!(table.add(*from, id));
            }
            table
        }

        fn add(&mut self, from: Name, id: &str) -> bool {
            let (control, _) = tokio::sync::mpsc::unbounded_channel();
            let (caller, waiting) = pair(control);
            self.waiting.push(waiting);
            self.next += 1;
            let asked = Asked { id: key(id), at: 0..id.len(), token: None, about: About::Other };
            self.routes.add(self.next, Call::of(from, asked, id.to_owned().into(), caller)).is_ok()
        }

        fn newest(&self, of: Option<Name>) -> Option<String> {
            self.routes.newest(of).map(Call::id)
        }

        fn drop_caller(&mut self, number: u64) {
            let caller = self.routes.calls[&number].caller.as_ref().unwrap().number;
            self.routes.gone(caller);
        }
    }

    #[test]
    fn messages_find_their_calls() {
        let mut table = Table::new(&[(1, "a"), (2, "a"), (1, "b"), (2, "c")]);
        assert_eq!(table.newest(None).as_deref(), Some("c"));
        assert_eq!(table.newest(Some(1)).as_deref(), Some("b"));
        assert_eq!(table.routes.sessions().collect::<Vec<_>>(), [1, 2, 1, 2]);
        assert!(table.routes.answered(9).is_none());
        assert_eq!(table.routes.answered(4).unwrap().from, Some(2));
        assert!(table.routes.answered(4).is_none());
        assert_eq!(table.routes.cancel(1, &key("b"), Instant::now()), Some(3));
        assert_eq!(table.newest(None).as_deref(), Some("a"), "a cancelled call is not waited for");
        assert_eq!(
            table.routes.cancel(2, &key("b"), Instant::now()),
            None,
            "nobody cancels the calls of others"
        );
        assert_eq!(table.routes.count(), 3);
    }

    #[test]
    fn what_is_written_is_kept_as_far_as_its_answer_needs_it() {
        for filler in [10, FEW] {
            let mut table = Table::default();
            let (control, _) = tokio::sync::mpsc::unbounded_channel();
            let (caller, _waiting) = pair(control);
            let body = format!("{{\"token\":\"t\",\"more\":\"{}\",\"id\":\"a\"}}", "x".repeat(filler));
            let at = |part: &str| body.find(part).map(|start| start..start + part.len()).unwrap();
            let asked =
                Asked { id: key("a"), at: at("\"a\""), token: Some(at("\"t\"")), about: About::Other };
            assert!(table.routes.add(1, Call::of(1, asked, body.clone().into(), caller)).is_ok());
            table.routes.written(1);
            table.routes.written(1);
            let call = table.routes.get(1).unwrap();
            assert_eq!((call.id(), call.token()), ("\"a\"".to_owned(), Some("\"t\"".to_owned())));
            assert_eq!(call.body.len(), if filler < FEW { body.len() } else { 6 });
        }
    }

    #[test]
    fn an_id_is_in_use_in_its_session_until_its_call_is_over() {
        let mut table = Table::new(&[(1, "a")]);
        assert!(!table.add(1, "a"), "under way");
        assert!(table.add(2, "a"), "in another session");
        assert!(table.routes.answered(1).is_some());
        assert!(table.add(1, "a"), "answered");
        let number = table.next;
        table.drop_caller(number);
        assert!(table.routes.answered(number).is_none(), "given up: its answer is nobody's");
        assert!(table.add(1, "a"));
        // The one that was given up first: that it is so is why it is cancelled.
        assert_eq!(table.routes.cancel(1, &key("a"), Instant::now()), Some(number));
        assert_eq!(table.routes.cancel(1, &key("a"), Instant::now()), Some(table.next));
        let number = table.next;
        table.drop_caller(number);
        assert_eq!(table.routes.cancel(1, &key("a"), Instant::now()), None, "it was cancelled before");
    }

    /// Late, because the server took nothing for so long.
    #[test]
    fn a_late_cancellation_is_that_of_the_call_that_it_was_said_of() {
        let mut table = Table::new(&[(1, "a"), (1, "b")]);
        let said = Instant::now();
        let cancel = |table: &mut Table, id: &str, since| {
            table.routes.cancel_late(1, &key(id), since, said + Duration::from_secs(10))
        };
        assert_eq!(cancel(&mut table, "b", said), Some(2), "it is under way still");
        table.drop_caller(1);
        table.waiting.clear();
        assert!(table.add(1, "a"));
        let next = table.routes.calls[&3].caller.as_ref().unwrap().since;
        assert!(said <= next);
        let before = next - Duration::from_nanos(1);
        assert_eq!(cancel(&mut table, "a", before), Some(1), "its id is used again");
        assert_eq!(cancel(&mut table, "a", before), None, "and what has it now is another call");
        assert!(!table.routes.calls[&3].is_cancelled);
    }

    #[test]
    fn a_cancelled_call_ends_soon() {
        let mut table = Table::new(&[(1, "a"), (1, "b")]);
        let now = Instant::now();
        table.routes.cancel(1, &key("a"), now);
        table.routes.cancel(1, &key("a"), now + GRACE);
        table.routes.cancel(1, &key("x"), now);
        assert_eq!(table.routes.due(), Some(now + GRACE));
        table.routes.end_cancelled(now);
        assert_eq!(table.routes.count(), 2);
        table.routes.end_cancelled(now + GRACE);
        assert_eq!((table.routes.count(), table.routes.due()), (1, None));
        assert!(table.add(1, "a"));
    }

    #[test]
    fn a_cancelled_call_that_the_process_has_not_seen_is_not_made_by_another() {
        let mut table = Table::new(&[(1, "a"), (1, "b")]);
        table.routes.cancel(1, &key("a"), Instant::now());
        let again: Vec<_> = [1, 2].into_iter().filter_map(|number| table.routes.take(number)).collect();
        assert_eq!(again.iter().map(|command| &command.body[..]).collect::<Vec<_>>(), [b"b"]);
        assert_eq!(table.routes.count(), 0);
    }

    #[test]
    fn what_is_remembered_of_lost_calls_is_bounded() {
        let mut table = Table::default();
        for count in 0..3 * MAX_LOST {
            assert!(table.add(1, &count.to_string()));
            let number = table.next;
            table.drop_caller(number);
        }
        assert_eq!((table.routes.lost.len(), table.routes.count()), (MAX_LOST, 0));
        assert_eq!(table.routes.leave(1, &Failure::Ended), [0; 0]);
        assert!(table.routes.lost.is_empty());
    }

    /// A call with this token.
    fn begun_with(name: Name, about: About, token: &str) -> Call {
        let (control, _) = tokio::sync::mpsc::unbounded_channel();
        let (caller, _waiting) = pair(control);
        let asked = Asked { id: key("a"), at: 0..3, token: Some(3..3 + token.len()), about };
        Call::of(name, asked, format!("\"a\"{token}").into(), caller)
    }

    #[test]
    fn calls_that_became_tasks_are_remembered_with_their_session() {
        let mut routes = Routes::default();
        let begun = |name, about| begun_with(name, about, "\"t\"");
        for (number, about, result, expected) in [
            (1, About::Task, r#"{"task":{}}"#, Some((7, "\"t\""))),
            (2, About::Task, r#"{"content":[]}"#, None),
            (3, About::Other, r#"{"task":{}}"#, None),
        ] {
            routes.note_task(number, &begun(7, about), result);
            assert_eq!(routes.task(number), expected, "{number}");
        }
        routes.note_task(4, &begun(8, About::Task), r#"{"task":{}}"#);
        for number in (5..).take(MAX_TASKS_OF_ONE) {
            routes.note_task(number, &begun(7, About::Task), r#"{"task":{}}"#);
        }
        assert!(routes.task(1).is_none() && routes.task(5).is_some());
        routes.leave(7, &Failure::Ended);
        assert!(routes.task(5).is_none());
        assert_eq!(routes.task(4), Some((8, "\"t\"")), "another session's");
    }

    #[test]
    fn what_is_remembered_of_tasks_is_bounded() {
        let mut routes = Routes::default();
        let mut number = 0;
        for name in 0..200 {
            for _ in 0..MAX_TASKS_OF_ONE {
                number += 1;
                routes.note_task(number, &begun_with(name, About::Task, "\"t\""), r#"{"task":{}}"#);
            }
        }
        assert_eq!(routes.tasks.len(), MAX_TASKS);
        assert!(routes.task(1).is_none());
        routes.note_task(number + 1, &begun_with(999, About::Task, "\"u\""), r#"{"task":{}}"#);
        assert_eq!(routes.task(number + 1), Some((999, "\"u\"")), "whoever begins one has it");
        assert_eq!(routes.tasks.len(), MAX_TASKS);
        for (length, is_kept) in [(MAX_TOKEN_OF_TASK, true), (MAX_TOKEN_OF_TASK + 1, false)] {
            number += 2;
            let token = format!("\"{}\"", "x".repeat(length - 2));
            routes.note_task(number, &begun_with(999, About::Task, &token), r#"{"task":{}}"#);
            assert_eq!(routes.task(number).is_some(), is_kept, "{length}");
        }
    }
}
