//! Who serves a session, case by case.

use super::*;
use crate::bounds::{FRESH, INTRODUCED};
use crate::capsule::{PrincipalDigest, ServerSession};
use crate::membership::View;
use crate::message::{Introduction, Word};
use crate::rendezvous;
use crate::replica::Effect;
use crate::tombstones::{Digest, Tombstones};
use longshore_mcp::revision::Revision;

/// How a replica that serves introduces itself.
pub(super) fn serving(peer: &Peer) -> Introduction {
    Introduction {
        pod: peer.pod.clone(),
        address: peer.address,
        word: None,
        state: State::Serving,
        tombstones: Digest::default(),
        left: Vec::new(),
        knows: Vec::new(),
        settled: false,
        shaken: false,
        full: false,
        template: None,
    }
}

/// A replica that knows another one, which serves, and a session that the first has opened.
pub(super) fn two(state: State) -> (Replica<()>, Peer, Capsule) {
    let peer = |name, last| Peer { pod: PodId::new(name).unwrap(), address: [10, 0, 0, last].into() };
    let (me, successor) = (peer("pod-1", 1), peer("pod-2", 2));
    let now = Moment::default();
    let mut view = View::new(me.address);
    view.listed(&[me.address, successor.address], now);
    view.heard(&serving(&successor), now);
    let mut replica = Replica::<()>::new(me.clone(), 0, view, Tombstones::default());
    replica.set_state(state);
    let capsule = Capsule {
        owner: me,
        key: SessionKey::new([0; 16]),
        principal: PrincipalDigest::of("ada"),
        revision: Revision::V2025_11_25,
        server_revision: Revision::V2025_11_25,
        server: ServerSession::None,
        capabilities: None,
        issued: 0,
        expires: u64::MAX,
    };
    (replica, successor, capsule)
}

/// Where a session was handed over and its successor has yet to hear of it, that one still sends requests back.
#[test]
fn a_request_that_is_sent_back_to_where_it_began_goes_round_again() {
    let now = Moment::default();
    let (mut replica, successor, capsule) = two(State::Draining);
    let me = capsule.owner.clone();
    replica.remember(capsule.key, successor.clone());
    let mut route = Route::new(&capsule, Entry::Client, now, 0);
    assert_eq!(route.step(Event::Begin, &mut replica, now), Step::Forward(successor.clone()));
    let sent_back = Event::NotForwarded(NotForwarded::Moved(Some(me)));
    assert_eq!(route.step(sent_back, &mut replica, now), Step::Wait(now.after(RETRY)));
    let asked = route.step(Event::Waited, &mut replica, now.after(RETRY));
    assert_eq!(asked, Step::Ask(vec![successor.address]));
    let none = route.step(Event::Asked(Vec::new()), &mut replica, now.after(RETRY));
    assert_eq!(none, Step::Forward(successor));
}

/// It may wait for its turn there for longer than its client does until the next call.
#[test]
fn a_session_that_was_given_to_a_replica_is_taken_there_by_a_request_that_comes_before_its_turn() {
    let now = Moment::default().after(INTRODUCED);
    let (mut replica, other, mut capsule) = two(State::Serving);
    capsule.owner = Peer { pod: PodId::new("pod-0").unwrap(), address: [10, 0, 0, 9].into() };
    let pods = [replica.me().clone(), other.clone()];
    let is_others = |key: &SessionKey| rendezvous::winner(key, pods.clone()).as_ref() == Some(&other);
    capsule.key = (0..=255_u8).map(|byte| SessionKey::new([byte; 16])).find(is_others).unwrap();
    let begin = |replica: &mut Replica<()>| {
        [Entry::Client, Entry::Forwarded].map(|entry| {
            let mut route = Route::new(&capsule, entry, now, 100).past(Vec::new());
            let step = route.step(Event::Begin, replica, now);
            route.abandon(replica);
            step
        })
    };
    let asks = Step::Ask(vec![other.address]);
    assert_eq!(begin(&mut replica), [asks.clone(), Step::Moved(Some(other.clone()))]);
    assert!(!replica.is_taking());
    replica.line_up(capsule.key);
    assert_eq!(begin(&mut replica), [asks.clone(), asks.clone()]);
    // Who has said that it has no room for it is not asked once more.
    let mut route = Route::new(&capsule, Entry::Forwarded, now, 100).past(vec![replica.me().pod.clone()]);
    assert_eq!(route.step(Event::Begin, &mut replica, now), Step::Moved(Some(other.clone())));
    // Nor has one it first whose server does not stay.
    let goes_by_weight = [asks.clone(), Step::Moved(Some(other.clone()))];
    replica.set_shaken(true);
    assert_eq!(begin(&mut replica), goes_by_weight);
    replica.set_shaken(false);
    replica.had_its_turn(&capsule.key);
    assert_eq!(begin(&mut replica), goes_by_weight);
    // It is so no longer once somebody else is at it, or has it, or it was tried here.
    for (holding, takes) in [(Holding::Pending, false), (Holding::Here, false), (Holding::No, true)] {
        replica.line_up(capsule.key);
        let mut route = Route::new(&capsule, Entry::Forwarded, now, 100).past(Vec::new());
        assert_eq!(route.step(Event::Begin, &mut replica, now), asks);
        let said = Message { from: serving(&other), body: Answer::Holding(holding, None) };
        let asked = Event::Asked(vec![(other.address, Outcome::Said(Box::new(said)))]);
        match route.step(asked, &mut replica, now) {
            Step::Take(Take::Adopt, _) if takes => route.abandon(&mut replica),
            step => assert_eq!((step, takes), (Step::Moved(Some(other.clone())), false)),
        }
        let mut next = Route::new(&capsule, Entry::Forwarded, now, 100).past(Vec::new());
        assert_eq!(next.step(Event::Begin, &mut replica, now), Step::Moved(Some(other.clone())));
        assert!(!replica.is_taking());
    }
}

/// Whoever breaks it off so may do that time and again, and serve others all the while.
#[test]
fn a_request_whose_connection_breaks_is_taken_to_the_same_replica_again_in_a_while_and_not_for_ever() {
    let (mut replica, holder, mut capsule) = two(State::Serving);
    capsule.owner = holder.clone();
    let mut now = Moment::default();
    let mut route = Route::new(&capsule, Entry::Client, now, 0);
    let mut step = route.step(Event::Begin, &mut replica, now);
    while now.since(Moment::default()) < DECIDE {
        assert_eq!(step, Step::Forward(holder.clone()));
        let broken = Event::NotForwarded(NotForwarded::Broken);
        assert_eq!(route.step(broken, &mut replica, now), Step::Wait(now.after(RETRY)));
        let standing = replica.view.standing(&holder, Duration::ZERO, now);
        assert_eq!(standing, Standing::Alive(holder.clone(), State::Serving));
        now = now.after(RETRY);
        replica.view.heard(&serving(&holder), now);
        step = route.step(Event::Waited, &mut replica, now);
    }
    let broken = Event::NotForwarded(NotForwarded::Broken);
    assert_eq!(route.step(broken, &mut replica, now), Step::Fail(Failure::Unreachable));
}

/// Its end has to be noted as any other: what is held of it ends too, and the file says so.
#[test]
fn an_end_that_a_peer_knows_of_is_noted_by_whoever_asked() {
    let now = Moment::default().after(INTRODUCED);
    let (mut replica, other, capsule) = two(State::Serving);
    let mut route = Route::new(&capsule, Entry::Client, now, 0);
    assert_eq!(route.step(Event::Begin, &mut replica, now), Step::Ask(vec![other.address]));
    let tombstone = Tombstone { expires: 5, key: capsule.key };
    let said = Message { from: serving(&other), body: Answer::Holding(Holding::Ended(tombstone), None) };
    let asked = Event::Asked(vec![(other.address, Outcome::Said(Box::new(said)))]);
    assert_eq!(route.step(asked, &mut replica, now), Step::Ended(tombstone));
    assert_eq!(replica.bury(&[tombstone]), Effect::Bury(vec![tombstone], Vec::new()));
    assert_eq!(route.step(Event::Begin, &mut replica, now), Step::Fail(Failure::NotFound));
}

/// It is so new that DNS is behind, where it was opened, or here.
#[test]
fn whoever_opened_a_session_and_is_not_known_yet_is_asked_where_its_id_says() {
    let now = Moment::default();
    let (_, other, capsule) = two(State::Serving);
    let opener = capsule.owner.clone();
    let mut view = View::new(other.address);
    view.listed(&[], now);
    let mut replica = Replica::<()>::new(other, 0, view, Tombstones::default());
    replica.set_state(State::Serving);
    let mut route = Route::new(&capsule, Entry::Client, now, 0);
    assert_eq!(route.step(Event::Begin, &mut replica, now), Step::Ask(vec![opener.address]));
    let said = Message { from: serving(&opener), body: Answer::Holding(Holding::Here, None) };
    let asked = Event::Asked(vec![(opener.address, Outcome::Said(Box::new(said)))]);
    assert_eq!(route.step(asked, &mut replica, now), Step::Forward(opener.clone()));
    // From then on it is known.
    let mut next = Route::new(&capsule, Entry::Client, now, 0);
    assert_eq!(next.step(Event::Begin, &mut replica, now), Step::Forward(opener));
}

/// A sidecar that ends alone says so while it does, then its port refuses, and then it is there again and starts: together
/// that may take longer than each of them.
#[test]
fn a_sidecar_that_is_back_takes_its_sessions_up_itself() {
    let (mut replica, owner, mut capsule) = two(State::Serving);
    capsule.owner = owner.clone();
    let at = |milliseconds| Moment::default().after(INTRODUCED + Duration::from_millis(milliseconds));
    let mut route = Route::new(&capsule, Entry::Client, at(0), 0);
    // What comes of a request that waits, where the owner's process of that number says this, or nobody is there.
    let mut after = |milliseconds, owner_is: Option<(u64, State)>| {
        let now = at(milliseconds);
        let (me, at_owner) = (replica.me().address, owner.address);
        replica.view.listed(&[me, at_owner], now);
        let outcome = || match owner_is {
            None => Outcome::Refused,
            Some((process, state)) => {
                let word = Some(Word { process, number: milliseconds });
                let from = Introduction { word, state, ..serving(&owner) };
                Outcome::Said(Box::new(Message { from, body: Answer::Holding(Holding::No, None) }))
            }
        };
        match outcome() {
            Outcome::Said(message) => replica.view.heard(&message.from, now),
            _ => replica.view.refused(at_owner, now),
        }
        let mut step = route.step(Event::Waited, &mut replica, now);
        while let Step::Ask(_) = step {
            step = route.step(Event::Asked(vec![(at_owner, outcome())]), &mut replica, now);
        }
        step
    };
    let (before, back) = (Some((1, State::Starting)), Some((2, State::Starting)));
    for (milliseconds, owner_is) in
        [(0, before), (3_000, before), (3_500, None), (5_500, None), (6_000, back), (9_000, back)]
    {
        let step = after(milliseconds, owner_is);
        assert!(matches!(step, Step::Wait(_)), "after {milliseconds} ms: {step:?}");
    }
    // One that never serves has nothing to be waited for.
    let step = after(11_000, back);
    assert!(matches!(step, Step::Take(Take::Adopt, _)), "{step:?}");
}

/// Who leaves a call to the process that comes after it holds the session still, and is known to.
#[test]
fn a_call_that_is_left_to_the_next_process_is_taken_to_the_same_replica_again() {
    let now = Moment::default();
    let (mut replica, holder, mut capsule) = two(State::Serving);
    capsule.owner = holder.clone();
    replica.view.heard(&Introduction { state: State::Draining, ..serving(&holder) }, now);
    let mut route = Route::new(&capsule, Entry::Client, now, 0);
    let mut step = route.step(Event::Begin, &mut replica, now);
    for _ in 0..=MAX_FORWARDS {
        assert_eq!(step, Step::Forward(holder.clone()));
        let left = Event::NotForwarded(NotForwarded::Moved(Some(holder.clone())));
        assert_eq!(route.step(left, &mut replica, now), Step::Wait(now.after(NEXT)));
        step = route.step(Event::Waited, &mut replica, now);
    }
}

/// It says so of itself, whoever opened the session. What is sent to it now would cross its end.
#[test]
fn what_is_held_by_a_sidecar_that_is_about_to_end_is_neither_sent_there_nor_taken() {
    let at = |milliseconds| Moment::default().after(INTRODUCED + Duration::from_millis(milliseconds));
    for opened_there in [true, false] {
        let (mut replica, holder, mut capsule) = two(State::Serving);
        let opener = Peer { pod: PodId::new("pod-0").unwrap(), address: [10, 0, 0, 9].into() };
        capsule.owner = if opened_there { holder.clone() } else { opener };
        let ends = Introduction { state: State::Starting, ..serving(&holder) };
        replica.view.heard(&ends, at(0));
        let mut route = Route::new(&capsule, Entry::Client, at(0), 100);
        for milliseconds in [0, 1_000, 9_000] {
            let (now, me) = (at(milliseconds), replica.me().address);
            replica.view.listed(&[me, holder.address], now);
            let mut step = route.step(Event::Waited, &mut replica, now);
            while let Step::Ask(asked) = step {
                assert_eq!(asked, [holder.address]);
                let said = Message { from: ends.clone(), body: Answer::Holding(Holding::Here, None) };
                let asked = Event::Asked(vec![(holder.address, Outcome::Said(Box::new(said)))]);
                step = route.step(asked, &mut replica, now);
            }
            assert_eq!(step, Step::Wait(now.after(RETRY)), "opened there: {opened_there}, {milliseconds} ms");
            assert!(!replica.is_taking());
        }
    }
}

/// What it answered while it still started may arrive after it was heard to serve, and when it is silent again.
#[test]
fn an_owner_that_was_heard_to_serve_takes_its_sessions_up_whatever_it_said_before() {
    for is_silent in [false, true] {
        let (mut replica, owner, mut capsule) = two(State::Serving);
        capsule.owner = owner.clone();
        let at = |milliseconds| Moment::default().after(INTRODUCED + Duration::from_millis(milliseconds));
        let from = |process, number, state| {
            let word = Some(Word { process, number });
            Introduction { word, state, ..serving(&owner) }
        };
        let said = |from| Outcome::Said(Box::new(Message { from, body: Answer::Holding(Holding::No, None) }));
        replica.view.heard(&from(1, 1, State::Serving), at(0));
        replica.view.refused(owner.address, at(10));
        replica.view.heard(&from(2, 1, State::Starting), at(1_000));
        let mut route = Route::new(&capsule, Entry::Client, at(1_010), 0);
        let step = route.step(Event::Begin, &mut replica, at(1_010));
        assert!(matches!(step, Step::Ask(_)), "{step:?}");
        replica.view.heard(&from(2, 3, State::Serving), at(1_020));
        if is_silent {
            replica.view.silent(owner.address, at(1_020));
        }
        let asked = Event::Asked(vec![(owner.address, said(from(2, 2, State::Starting)))]);
        let step = route.step(asked, &mut replica, at(1_021));
        let waits = Step::Wait(at(1_021).after(RETRY));
        assert_eq!(step, if is_silent { waits } else { Step::Forward(owner) });
        assert!(!replica.is_taking());
    }
}

/// A call at the pod that had a session may take longer than its pod is there, and set something when another one has
/// the session already.
#[test]
fn what_is_set_after_a_session_was_taken_is_newer_than_what_is_set_where_it_was() {
    let now = Moment::default();
    let (mut replica, former, mut capsule) = two(State::Serving);
    capsule.owner = former.clone();
    replica.view.heard(&Introduction { state: State::Leaving, ..serving(&former) }, now);
    let before = Copy { version: 3, ..Copy::default() };
    replica.keep(capsule.key, before.clone());
    let now = now.after(INTRODUCED);
    let mut route = Route::new(&capsule, Entry::Client, now, 0);
    let Step::Take(Take::Adopt, taken) = route.step(Event::Begin, &mut replica, now) else { panic!("taken") };
    let change = |copy: &Copy| Copy { version: copy.version + 1, ..copy.clone() };
    assert_eq!(change(&before).newer(change(&taken)), change(&taken));
    // What was set there in the meantime is kept for whoever takes the session next.
    replica.keep(capsule.key, change(&before));
    assert!(route.take(&mut replica, ()).is_ok());
    assert_eq!(replica.copy(&capsule.key), Some(&change(&before)));
}

/// One whose server dies soon after each start takes a session where nobody else can.
#[test]
fn a_session_goes_to_whoever_has_a_server_that_stays() {
    let now = Moment::default();
    for (i_am, they_are, takes) in [(false, true, true), (true, false, false)].into_iter().chain(
        [(false, false), (true, true)].map(|(me, them)| {
            let (replica, successor, capsule) = two(State::Serving);
            let pods = [replica.me().clone(), successor];
            (me, them, rendezvous::winner(&capsule.key, pods).as_ref() == Some(replica.me()))
        }),
    ) {
        let (mut replica, successor, mut capsule) = two(State::Serving);
        capsule.owner = Peer { pod: PodId::new("pod-0").unwrap(), address: [10, 0, 0, 9].into() };
        replica.set_shaken(i_am);
        assert_eq!(replica.introduction(now).shaken, i_am);
        replica.view.heard(&Introduction { shaken: they_are, ..serving(&successor) }, now);
        assert_eq!(replica.successor(&capsule.key, now), (!they_are).then(|| successor.clone()));
        assert_eq!(replica.heir(&capsule.key, now).as_ref(), Some(&successor), "it adopts them all the same");
        let route = Route::new(&capsule, Entry::Client, now, 0);
        let winner = route.winner(&replica, now);
        assert_eq!(winner.as_ref() == Some(replica.me()), takes, "{i_am} {they_are}");
        assert!(winner.is_some());
    }
}

/// Who is silent may hold whatever can move, but not what is at its owner or nowhere.
#[test]
fn a_session_that_ends_with_its_replica_is_lost_with_it_whoever_is_silent() {
    // Whoever was heard at first is not alive any more.
    let now = Moment::default().after(FRESH + RETRY);
    let gone = Peer { pod: PodId::new("pod-0").unwrap(), address: [10, 0, 0, 9].into() };
    let never_heard = IpAddr::from([10, 0, 0, 3]);
    for (stays, is_silent_itself, others, is_lost) in [
        (true, false, &[][..], true),
        (false, false, &[], false),
        (true, true, &[], false),
        // It may be there since its node was started again.
        (true, false, &[never_heard], false),
    ] {
        let case = format!("stays: {stays}, silent itself: {is_silent_itself}, others: {others:?}");
        let (mut replica, silent, mut capsule) = two(State::Serving);
        capsule.owner = if is_silent_itself { silent.clone() } else { gone.clone() };
        let listed: Vec<IpAddr> =
            [replica.me().address, silent.address].into_iter().chain(others.iter().copied()).collect();
        replica.view.listed(&listed, Moment::default());
        let route = Route::new(&capsule, Entry::Client, now, 100);
        let mut route = if stays { route.staying() } else { route };
        let Step::Ask(asked) = route.step(Event::Begin, &mut replica, now) else { panic!("{case}") };
        assert_eq!(asked, listed[1..], "{case}");
        let outcomes = asked.into_iter().map(|address| (address, Outcome::Silent)).collect();
        let step = route.step(Event::Asked(outcomes), &mut replica, now);
        let expected = if is_lost { Step::Fail(Failure::NotFound) } else { Step::Wait(now.after(RETRY)) };
        assert_eq!(step, expected, "{case}");
        assert!(!replica.is_taking(), "{case}");
    }
}
