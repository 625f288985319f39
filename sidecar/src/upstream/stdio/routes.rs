//! The calls of a session that are under way, and for which of them a message of the process is.

use std::collections::HashSet;

use tokio::time::{Duration, Instant};

use super::Failure;
use super::call::Caller;
use super::message::Key;

/// How long an answer may still come to a call that its client has cancelled. Servers do not answer them, and the
/// client does not wait; what waits is only its HTTP request.
const GRACE: Duration = Duration::from_secs(1);
/// How much memory the ids may take of calls that nobody waits for and that were never answered.
const MAX_UNANSWERED: usize = 1024 * 1024;

/// Calls under way, oldest first.
#[derive(Default)]
pub(super) struct Routes {
    calls: Vec<Call>,
    /// The ids of calls that were given up. Their answers may still come, and must not be taken for those of others:
    /// what is taken out of one answer need not be taken out of another.
    given_up: HashSet<Key>,
    weight: usize,
}

/// A call under way.
pub(super) struct Call {
    pub(super) id: Key,
    pub(super) token: Option<Key>,
    pub(super) caller: Caller,
    /// Cancelled by its client: it ends then.
    until: Option<Instant>,
}

impl Routes {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Adds a call. Its caller comes back if its id is in use.
    pub(super) fn add(&mut self, id: Key, token: Option<Key>, caller: Caller) -> Result<(), Caller> {
        if self.given_up.contains(&id) || self.calls.iter().any(|call| call.id == id) {
            return Err(caller);
        }
        self.calls.push(Call { id, token, caller, until: None });
        Ok(())
    }

    /// The call that an answer is for; it is over.
    pub(super) fn answered(&mut self, id: &Key) -> Option<Caller> {
        if self.given_up.remove(id) {
            self.weight -= id.weight();
            return None;
        }
        let index = self.calls.iter().position(|call| call.id == *id)?;
        Some(self.calls.remove(index).caller)
    }

    /// The call whose progress this is.
    pub(super) fn progressing(&self, token: &Key) -> Option<&Caller> {
        self.calls.iter().rev().find(|call| call.token.as_ref() == Some(token)).map(|call| &call.caller)
    }

    /// The newest call that is waited for.
    pub(super) fn newest(&self) -> Option<&Caller> {
        self.calls.iter().rev().find(|call| call.until.is_none()).map(|call| &call.caller)
    }

    /// The client does not want the answer any more.
    pub(super) fn cancel(&mut self, id: &Key, now: Instant) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.id == *id) {
            call.until.get_or_insert(now + GRACE);
            call.caller.begin();
        }
    }

    /// When the next cancelled call ends.
    pub(super) fn due(&self) -> Option<Instant> {
        self.calls.iter().filter_map(|call| call.until).min()
    }

    /// Ends the cancelled calls whose time is over.
    pub(super) fn end_cancelled(&mut self, now: Instant) {
        while let Some(index) =
            self.calls.iter().position(|call| call.until.is_some_and(|until| until <= now))
        {
            self.give_up(index).end(Err(Failure::Cancelled));
        }
    }

    /// Nobody waits for this call any more.
    pub(super) fn gone(&mut self, number: u64) {
        if let Some(index) = self.calls.iter().position(|call| call.caller.number == number) {
            self.give_up(index);
        }
    }

    /// Takes a call out that the process has not seen.
    pub(super) fn take(&mut self, number: u64) -> Option<Call> {
        let index = self.calls.iter().position(|call| call.caller.number == number)?;
        Some(self.calls.remove(index))
    }

    /// Whether more calls were given up and never answered than anybody can remember.
    pub(super) fn is_overburdened(&self) -> bool {
        self.weight > MAX_UNANSWERED
    }

    /// Ends all calls.
    pub(super) fn fail(&mut self, failure: &Failure) {
        for call in self.calls.drain(..) {
            call.caller.end(Err(failure.clone()));
        }
    }

    fn give_up(&mut self, index: usize) -> Caller {
        let call = self.calls.remove(index);
        self.weight += call.id.weight();
        self.given_up.insert(call.id);
        call.caller
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::{Waiting, pair};
    use super::*;

    struct Table {
        routes: Routes,
        waiting: Vec<Waiting>,
    }

    fn key(id: &str) -> Key {
        Key::Text(id.to_owned())
    }

    impl Table {
        fn new(calls: &[(&str, Option<&str>)]) -> Self {
            let mut table = Self { routes: Routes::default(), waiting: Vec::new() };
            for (id, token) in calls {
                assert!(table.add(id, *token));
            }
            table
        }

        fn add(&mut self, id: &str, token: Option<&str>) -> bool {
            let (control, _) = tokio::sync::mpsc::unbounded_channel();
            let (caller, waiting) = pair(control);
            self.waiting.push(waiting);
            self.routes.add(key(id), token.map(key), caller).is_ok()
        }

        fn id_of(&self, caller: Option<&Caller>) -> Option<String> {
            let number = caller?.number;
            let call = self.routes.calls.iter().find(|call| call.caller.number == number)?;
            match &call.id {
                Key::Text(id) | Key::Number(id) => Some(id.clone()),
            }
        }
    }

    #[test]
    fn messages_find_their_calls() {
        let mut table = Table::new(&[("a", Some("t")), ("b", None), ("c", Some("u"))]);
        assert_eq!(table.id_of(table.routes.newest()).as_deref(), Some("c"));
        assert_eq!(table.id_of(table.routes.progressing(&key("t"))).as_deref(), Some("a"));
        assert!(table.routes.progressing(&key("x")).is_none());
        assert!(table.routes.answered(&key("x")).is_none());
        assert!(table.routes.answered(&key("c")).is_some());
        assert!(table.routes.answered(&key("c")).is_none());
        assert_eq!(table.id_of(table.routes.newest()).as_deref(), Some("b"));
        table.routes.cancel(&key("b"), Instant::now());
        assert_eq!(
            table.id_of(table.routes.newest()).as_deref(),
            Some("a"),
            "a cancelled call is not waited for"
        );
    }

    #[test]
    fn an_id_is_in_use_until_it_is_answered() {
        let mut table = Table::new(&[("a", None)]);
        assert!(!table.add("a", None), "under way");
        assert!(table.routes.answered(&key("a")).is_some());
        assert!(table.add("a", None), "answered");
        let number = table.routes.newest().unwrap().number;
        table.routes.gone(number);
        assert!(!table.add("a", None), "given up, and the answer may still come");
        assert!(table.routes.answered(&key("a")).is_none(), "and is nobody's");
        assert!(table.add("a", None));
        assert_eq!(table.routes.weight, 0);
    }

    #[test]
    fn a_cancelled_call_ends_soon() {
        let mut table = Table::new(&[("a", None), ("b", None)]);
        let now = Instant::now();
        table.routes.cancel(&key("a"), now);
        table.routes.cancel(&key("a"), now + GRACE);
        table.routes.cancel(&key("x"), now);
        assert_eq!(table.routes.due(), Some(now + GRACE));
        table.routes.end_cancelled(now);
        assert_eq!(table.routes.calls.len(), 2);
        table.routes.end_cancelled(now + GRACE);
        assert_eq!(table.routes.calls.len(), 1);
        assert_eq!(table.routes.due(), None);
        assert!(!table.add("a", None));
    }

    #[test]
    fn what_is_never_answered_is_bounded() {
        let mut table = Table::new(&[]);
        let mut count = 0;
        while !table.routes.is_overburdened() {
            count += 1;
            assert!(count < MAX_UNANSWERED / 64, "without end");
            assert!(table.add(&count.to_string(), None));
            let number = table.routes.newest().unwrap().number;
            table.routes.gone(number);
        }
        assert!(count > 10_000, "{count}");
    }
}
