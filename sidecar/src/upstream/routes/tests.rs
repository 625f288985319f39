//! For which call a message is, and what is remembered of tasks.

use super::*;
use crate::upstream::call::{Waiting, pair};

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

    fn drop_caller(&mut self, number: u64) -> Option<(u64, bool)> {
        let caller = self.routes.calls[&number].caller.as_ref().unwrap().number;
        self.routes.gone(caller)
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
    assert_eq!(table.routes.cancel(2, &key("b"), Instant::now()), None, "nobody cancels the calls of others");
    assert_eq!(table.routes.count(), 3);
}

#[test]
fn of_the_sidecars_own_so_many_are_waited_for() {
    let mut table = Table::new(&[(1, "a")]);
    let first = table.next + 1;
    for number in first..=first + MAX_OWN as u64 {
        assert!(table.routes.add(number, Call::own(About::Other)).is_ok());
    }
    assert_eq!((table.routes.calls.len(), table.routes.count()), (1 + MAX_OWN, 1));
    assert!(table.routes.get(first).is_none() && table.routes.get(first + 1).is_some());
    assert!(table.routes.get(1).is_some(), "a client's is waited for");
}

#[test]
fn what_is_written_is_kept_as_far_as_its_answer_needs_it() {
    for filler in [10, FEW] {
        let mut table = Table::default();
        let (control, _) = tokio::sync::mpsc::unbounded_channel();
        let (caller, _waiting) = pair(control);
        let body = format!("{{\"token\":\"t\",\"more\":\"{}\",\"id\":\"a\"}}", "x".repeat(filler));
        let at = |part: &str| body.find(part).map(|start| start..start + part.len()).unwrap();
        let asked = Asked { id: key("a"), at: at("\"a\""), token: Some(at("\"t\"")), about: About::Other };
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
    assert_eq!(
        table.routes.cancel(1, &key("a"), Instant::now()),
        Some(table.next),
        "the one that has it now"
    );
}

#[test]
fn the_server_is_told_once_that_a_call_is_given_up() {
    let mut table = Table::new(&[(1, "a"), (1, "b")]);
    table.routes.cancel(1, &key("b"), Instant::now());
    assert_eq!([1, 2].map(|number| table.drop_caller(number)), [Some((1, true)), Some((2, false))]);
    let (control, _) = tokio::sync::mpsc::unbounded_channel();
    let (caller, _waiting) = pair(control);
    let (number, about) = (caller.number, About::Subscribe("u".to_owned()));
    let asked = Asked { id: key("c"), at: 0..1, token: None, about };
    assert!(table.routes.add(3, Call::of(1, asked, "c".into(), caller)).is_ok());
    assert_eq!(table.routes.gone(number), Some((3, false)), "what it sets stays set");
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
fn a_cancelled_call_is_given_up_though_its_process_answers_at_once() {
    let mut table = Table::new(&[(1, "a"), (1, "b")]);
    let call = table.routes.answered(1).unwrap();
    table.routes.note_answered(&call);
    assert!(!table.routes.abandoned, "nobody has cancelled it");
    table.routes.cancel(1, &key("b"), Instant::now());
    let call = table.routes.answered(2).unwrap();
    table.routes.note_answered(&call);
    assert!(table.routes.abandoned);
}

/// What a call was about says whether the process may be busy with it still, and whether anybody was kept waiting.
#[test]
fn what_is_left_of_a_call_that_is_given_up_is_as_the_call_was() {
    for (about, abandoned, given_up) in [
        (About::Task, true, 1),
        (About::Other, true, 1),
        (About::Look, false, 1),
        (About::Level(None), false, 1),
        (About::Subscribe("u".to_owned()), false, 1),
        (About::Unsubscribe("u".to_owned()), false, 1),
        (About::Listen, false, 0),
    ] {
        let mut routes = Routes::default();
        assert!(routes.add(1, begun_with(7, about.clone(), "\"t\"")).is_ok());
        assert_eq!(routes.leave(7, &Failure::Ended), [1]);
        assert_eq!((routes.abandoned, routes.given_up), (abandoned, given_up), "{about:?}");
        // Also where the process has answered it first.
        let mut routes = Routes::default();
        assert!(routes.add(1, begun_with(7, about.clone(), "\"t\"")).is_ok());
        assert_eq!(routes.cancel(7, &key("a"), Instant::now()), Some(1));
        let call = routes.answered(1).unwrap();
        routes.note_answered(&call);
        assert_eq!((routes.abandoned, routes.given_up), (abandoned, 0), "{about:?}");
    }
}

#[test]
fn a_cancelled_call_that_the_process_has_not_seen_is_not_made_by_another() {
    let mut table = Table::new(&[(1, "a"), (1, "b")]);
    table.routes.cancel(1, &key("a"), Instant::now());
    let again: Vec<_> = [1, 2].into_iter().filter_map(|number| table.routes.take(number)).collect();
    assert_eq!(again.iter().map(|command| &command.body[..]).collect::<Vec<_>>(), [b"b"]);
    assert_eq!(table.routes.count(), 0);
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
    assert!(begun(7, About::Other).becomes_task(r#"{"resultType":"task","taskId":"i"}"#));
    assert!(!begun(7, About::Other).becomes_task(r#"{"resultType":"complete","content":["task"]}"#));
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
