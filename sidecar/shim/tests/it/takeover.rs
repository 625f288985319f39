//! A sidecar that dies, and the one that comes after it.

use std::time::Instant;

use longshore_shim::protocol::{ADOPTION, Cause, Left, Outcome, Refusal, Request, Session};

use crate::harness::{ALL_PATIENCE, Process, Shim, eventually};

/// What the kernel does to the descriptors of a sidecar that is killed: it has no copies of them left. A program that
/// another test is just about to start has, for a moment.
pub(super) fn killed(sidecar: Vec<Process>) {
    sidecar.iter().for_each(|process| process.lifeline.shut());
    drop(sidecar);
}

#[test]
fn the_next_sidecar_takes_living_processes_over() {
    let shim = Shim::script("n=0; while read -r line; do n=$((n+1)); echo $n $line; done; exit $n");
    let mut first = shim.start(1);
    let mut second = shim.start(2);
    first.write("one\n");
    assert_eq!(first.line(), "1 one");
    // Half a line, as a crash leaves it.
    second.write("half a");
    killed(vec![first, second]);

    let mut first = shim.adopt(1).unwrap();
    assert_eq!((first.number, first.life), (1, 1));
    first.write("two\n");
    assert_eq!(first.line(), "2 two", "it is the same process");
    let mut second = shim.adopt(2).unwrap();
    second.write("\nwhole\n");
    assert_eq!((second.line(), second.line()), ("1 half a".to_owned(), "2 whole".to_owned()));

    // Once more, and then to a good end.
    killed(vec![first]);
    let mut first = shim.adopt(1).unwrap();
    assert_eq!(first.life, 2);
    first.end(ALL_PATIENCE);
    let ended = first.ended();
    assert_eq!((ended.outcome, ended.cause), (Outcome::Exited(2), Cause::Asked));
    assert!(shim.log().contains("[1] longshore: taken over by another sidecar"));
}

#[test]
fn nobody_takes_what_is_not_free() {
    let shim = Shim::of(&["cat"]);
    let refusal = |session| shim.adopt(session).unwrap_err().0;
    assert_eq!(refusal(1), Refusal::Unknown, "there is none");
    let mut process = shim.start(1);
    assert_eq!(refusal(1), Refusal::Unknown, "its sidecar lives");
    process.write("mine\n");
    assert_eq!(process.line(), "mine");

    process.end(ALL_PATIENCE);
    killed(vec![process]);
    eventually("it has ended", || shim.children().is_empty());
    assert_eq!(refusal(1), Refusal::Unknown, "its sidecar had ended it");
}

#[test]
fn a_process_that_ends_while_nobody_has_it_is_gone() {
    let shim = Shim::script("read -r line; sleep 0.1; exit 4");
    let mut process = shim.start(1);
    process.write("go\n");
    killed(vec![process]);
    eventually("it has ended", || shim.children().is_empty());
    assert_eq!(shim.adopt(1).unwrap_err().0, Refusal::Unknown);
    shim.start(1);
}

#[test]
fn what_nobody_takes_over_within_ten_seconds_is_ended() {
    let shim = Shim::of(&["cat"]);
    let descriptors = shim.descriptors();
    killed((1..=5).map(|session| shim.start(session)).collect());
    eventually("the shim knows", || shim.log().matches("its sidecar went away").count() == 5);
    assert_eq!(shim.children().len(), 5);
    eventually("they are ended", || shim.children().is_empty());
    assert_eq!(shim.descriptors(), descriptors);
    assert_eq!(shim.log().matches("no other sidecar came for it").count(), 5);
}

/// As where sessions share processes, and none goes on with the one that it had.
#[test]
fn what_the_next_sidecar_has_no_use_for_is_ended_at_once() {
    let shim = Shim::of(&["cat"]);
    let mut alive = shim.start(1);
    killed((2..=5).map(|session| shim.start(session)).collect());
    eventually("the shim knows", || shim.log().matches("its sidecar went away").count() == 4);
    let told = Instant::now();
    shim.connect().send(&Request::Leave(Left::All).encode());
    eventually("they are ended", || shim.children().len() == 1);
    assert!(told.elapsed() < ADOPTION / 2, "{:?}", told.elapsed());
    assert_eq!(shim.adopt(2).unwrap_err().0, Refusal::Unknown);
    alive.write("mine\n");
    assert_eq!(alive.line(), "mine", "its sidecar lives");
}

/// As where some processes serve sessions, and others what has none.
#[test]
fn what_no_sidecar_can_ask_for_is_ended_at_once_and_the_rest_is_kept() {
    let shim = Shim::of(&["cat"]);
    let numbers = [Session::of_somebody(1).0, Session::of_nobody(2).0, Session::of_nobody(3).0];
    killed(numbers.map(|number| shim.start(number)).into());
    eventually("the shim knows", || shim.log().matches("its sidecar went away").count() == 3);
    let told = Instant::now();
    shim.connect().send(&Request::Leave(Left::OfNobody).encode());
    eventually("two are ended", || shim.children().len() == 1);
    assert!(told.elapsed() < ADOPTION / 2, "{:?}", told.elapsed());
    assert_eq!(shim.log().matches("no other sidecar will come for it").count(), 2);
    let mut kept = shim.adopt(1).unwrap();
    kept.write("still\n");
    assert_eq!(kept.line(), "still");
}
