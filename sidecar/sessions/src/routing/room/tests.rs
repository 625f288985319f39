//! Where a session goes when its replica has no room for it.

use std::sync::Arc;
use std::time::Duration;

use super::super::tests::{serving, two};
use super::super::{Event, Failure, NotForwarded, Outcome, Take};
use super::*;
use crate::bounds::{INTRODUCED, RETRY};
use crate::capsule::Capsule;
use crate::message::{Answer, Holding, Introduction, Message, Word};

/// A replica that serves and knows so many others that do, by weight the lightest last, with a session of one that is gone.
/// The replica itself is heavier than all of them.
fn many(others: u8) -> (Replica<()>, Vec<Peer>, Capsule, Moment) {
    let (_, _, mut capsule) = two(State::Serving);
    capsule.owner = peer(99);
    let mut all: Vec<Peer> = (1..=others + 1).map(peer).collect();
    let mut by_weight = Vec::new();
    while let Some(heaviest) = rendezvous::winner(&capsule.key, all.iter().cloned()) {
        all.retain(|peer| *peer != heaviest);
        by_weight.push(heaviest);
    }
    let me = by_weight.remove(0);
    (replica(&me, &by_weight), by_weight, capsule, Moment::default().after(INTRODUCED))
}

fn peer(number: u8) -> Peer {
    let pod = PodId::new(&format!("pod-{number}")).unwrap();
    Peer { pod, address: [10, 0, 0, number].into() }
}

fn replica(me: &Peer, others: &[Peer]) -> Replica<()> {
    let now = Moment::default();
    let mut view = crate::View::new(me.address);
    let listed: Vec<_> = others.iter().chain([me]).map(|peer| peer.address).collect();
    view.listed(&listed, now);
    let mut replica = Replica::new(me.clone(), 0, view, crate::tombstones::Tombstones::default());
    others.iter().for_each(|other| replica.view.heard(&serving(other), now));
    replica.set_state(State::Serving);
    replica
}

/// Follows a route to where nobody else has anything of the session.
fn follow(route: &mut Route, event: Event, replica: &mut Replica<()>, now: Moment) -> Step {
    let mut step = route.step(event, replica, now);
    while let Step::Ask(asked) = &step {
        let says = |address| {
            let from = replica.view.alive(now).map(|(peer, _)| peer).find(|peer| peer.address == address);
            let said = Message { from: serving(&from.unwrap()), body: Answer::Holding(Holding::No, None) };
            (address, Outcome::Said(Box::new(said)))
        };
        let outcomes = asked.iter().map(|address| says(*address)).collect();
        step = route.step(Event::Asked(outcomes), replica, now);
    }
    step
}

/// What these say of a session.
fn asked<'a>(say: impl IntoIterator<Item = (&'a Peer, Holding)>) -> Event {
    let said = |(from, holding): (&Peer, _)| {
        let message = Message { from: serving(from), body: Answer::Holding(holding, None) };
        (from.address, Outcome::Said(Box::new(message)))
    };
    Event::Asked(say.into_iter().map(said).collect())
}

fn pods(peers: &[Peer]) -> Vec<PodId> {
    peers.iter().map(|peer| peer.pod.clone()).collect()
}

#[test]
fn who_has_no_room_is_given_a_session_only_where_nobody_has_any() {
    let (mut replica, others, capsule, now) = many(2);
    assert_eq!(replica.successor(&capsule.key, now).as_ref(), Some(&others[0]));
    let says = |full, peer| Introduction { full, ..serving(peer) };
    replica.view.heard(&says(true, &others[0]), now);
    assert_eq!(replica.successor(&capsule.key, now).as_ref(), Some(&others[1]));
    assert_eq!(replica.heir(&capsule.key, now).as_ref(), Some(&others[0]), "copies stay where they are");
    replica.view.heard(&says(true, &others[1]), now);
    assert_eq!(replica.successor(&capsule.key, now).as_ref(), Some(&others[0]));
    replica.view.heard(&says(false, &others[1]), now);
    assert_eq!(replica.successor(&capsule.key, now).as_ref(), Some(&others[1]));
    assert!(!replica.introduction(now).full);
    replica.set_full(true);
    assert!(replica.introduction(now).full);
}

/// In a rollout those that are older end next. One of an earlier release does not say how old it is.
#[test]
fn a_session_is_given_to_who_is_younger_if_there_is_room() {
    let (mut replica, others, capsule, now) = many(2);
    let says = |process, number, full, peer| {
        let word = Some(Word { process, number });
        Introduction { word, full, ..serving(peer) }
    };
    for (number, words, expected) in [
        (1, [None, None], 0),
        (2, [None, Some((1, false))], 1),
        (3, [None, Some((1, true))], 0),
        // As old as this one.
        (4, [Some((0, false)), Some((1, false))], 1),
        (5, [Some((2, false)), Some((1, false))], 0),
        (6, [Some((2, true)), Some((1, false))], 1),
        (7, [Some((2, true)), Some((1, true))], 0),
    ] {
        for (other, word) in others.iter().zip(words) {
            if let Some((process, full)) = word {
                replica.view.heard(&says(process, number, full, other), now);
            }
        }
        let successor = replica.successor(&capsule.key, now);
        assert_eq!(successor.as_ref(), Some(&others[expected]), "{words:?}");
    }
}

/// Those of the same template are about to end too, however young they are, or nothing is rolled out. One of an earlier
/// release does not say which it has.
#[test]
fn a_session_is_given_to_the_next_template_if_there_is_room() {
    let (mut replica, others, capsule, now) = many(2);
    replica.set_template(Some("a".into()));
    assert_eq!(replica.introduction(now).template.as_deref(), Some("a"));
    let says = |number, (process, template, full): (_, Option<&str>, _), peer| {
        let word = Some(Word { process, number });
        Introduction { word, full, template: template.map(Arc::from), ..serving(peer) }
    };
    for (number, words, expected) in [
        (1, [(1, Some("a"), false), (2, Some("a"), false)], 0),
        (2, [(0, Some("a"), false), (2, Some("a"), false)], 0),
        (3, [(3, Some("a"), false), (2, Some("b"), false)], 1),
        (4, [(3, Some("a"), false), (2, Some("b"), true)], 0),
        (5, [(3, Some("b"), false), (2, Some("b"), false)], 0),
        (6, [(3, Some("a"), false), (2, None, false)], 1),
        // It is the one of before that goes.
        (7, [(3, Some("a"), false), (0, Some("b"), false)], 0),
        (8, [(3, Some("a"), false), (0, None, false)], 0),
        (9, [(0, Some("b"), false), (3, Some("a"), false)], 1),
        (10, [(0, None, false), (3, Some("a"), false)], 1),
        (11, [(0, Some("b"), false), (3, Some("a"), true)], 0),
    ] {
        for (other, word) in others.iter().zip(words) {
            replica.view.heard(&says(number, word, other), now);
        }
        let successor = replica.successor(&capsule.key, now);
        assert_eq!(successor.as_ref(), Some(&others[expected]), "{words:?}");
    }
}

/// One rollout may begin before another is over, and a sidecar may be younger than its pod, as this one is.
#[test]
fn a_session_is_given_to_the_last_of_several_templates() {
    let (older, others, capsule, now) = many(3);
    let tombstones = crate::tombstones::Tombstones::default();
    let mut replica = Replica::<()>::new(older.me().clone(), 5, older.view, tombstones);
    replica.set_template(Some("a".into()));
    let says = |number, (process, template, full): (_, &str, _), peer| {
        let word = Some(Word { process, number });
        Introduction { word, full, template: Some(template.into()), ..serving(peer) }
    };
    for (number, words, expected) in [
        (1, [(7, "b", false), (8, "c", false), (9, "b", false)], 1),
        (2, [(1, "a", false), (8, "c", true), (9, "b", false)], 2),
        (3, [(1, "a", false), (2, "a", false), (3, "b", false)], 2),
        // It is rolled back, and what was made for that stays.
        (4, [(3, "b", false), (4, "a", false), (9, "b", false)], 2),
    ] {
        for (other, word) in others.iter().zip(words) {
            replica.view.heard(&says(number, word, other), now);
        }
        let successor = replica.successor(&capsule.key, now);
        assert_eq!(successor.as_ref(), Some(&others[expected]), "{words:?}");
    }
}

/// The request of a client goes from one to the next by weight, and comes back to the first, which has the last word.
#[test]
fn a_request_goes_on_to_who_has_room() {
    let (mut replica, others, capsule, now) = many(2);
    let me = replica.me().pod.clone();
    let mut route = Route::new(&capsule, Entry::Client, now, 100).past(Vec::new());
    let step = follow(&mut route, Event::Begin, &mut replica, now);
    assert!(matches!(step, Step::Take(Take::Adopt, _)), "{step:?}");
    assert!(route.may_go_on(&replica, now));
    assert_eq!(follow(&mut route, Event::Full, &mut replica, now), Step::Forward(others[0].clone()));
    assert!(!replica.is_taking());
    assert_eq!(route.full(), Some(&[me.clone()][..]));
    let full = Event::NotForwarded(NotForwarded::Full(Some(others[1].clone())));
    assert_eq!(follow(&mut route, full, &mut replica, now), Step::Forward(others[1].clone()));
    assert_eq!(route.full(), Some(&[me, others[0].pod.clone()][..]));
    let full = Event::NotForwarded(NotForwarded::Full(None));
    let step = follow(&mut route, full, &mut replica, now);
    assert!(matches!(step, Step::Take(Take::Adopt, _)), "{step:?}");
    assert!(!route.may_go_on(&replica, now), "it waits for room");
    assert_eq!(route.full(), None);
}

/// Each of them may have waited for room.
#[test]
fn the_last_word_is_said_however_long_the_others_took() {
    let many_others: Vec<PodId> = (50..).take(MAX_FULL - 1).map(|number| peer(number).pod).collect();
    for passed in [vec![], many_others] {
        let (mut replica, others, capsule, began) = many(1);
        let both = [replica.me().address, others[0].address];
        let mut route = Route::new(&capsule, Entry::Client, began, 100).past(passed);
        let mut after = |seconds, event| {
            let now = began.after(Duration::from_secs(seconds));
            replica.view.listed(&both, now);
            replica.view.heard(&serving(&others[0]), now);
            let step = follow(&mut route, event, &mut replica, now);
            (step, route.may_go_on(&replica, now))
        };
        after(0, Event::Begin);
        assert_eq!(after(10, Event::Full).0, Step::Forward(others[0].clone()));
        let (step, may_go_on) = after(20, Event::NotForwarded(NotForwarded::Full(None)));
        assert!(matches!(step, Step::Take(Take::Adopt, _)), "{step:?}");
        assert!(!may_go_on, "it waits for room");
        assert_eq!(after(39, Event::Begin).0, Step::Fail(Failure::Undecided), "once");
    }
}

/// Whoever it is brought to takes it, though others weigh more, and says who is next if there is no room.
#[test]
fn a_request_that_was_passed_on_is_taken_or_passed_on() {
    let (_, others, capsule, now) = many(3);
    let passed = [peer(50)];
    let (next, rest) = (&others[1], [others[0].clone(), others[2].clone()]);
    let mut replica = replica(next, &rest);
    let mut route = Route::new(&capsule, Entry::Forwarded, now, 100);
    assert_eq!(follow(&mut route, Event::Begin, &mut replica, now), Step::Moved(Some(others[0].clone())));
    for (full, goes_to) in [(vec![], None), (pods(&passed), Some(&others[0])), (pods(&rest), None)] {
        let mut route = Route::new(&capsule, Entry::Forwarded, now, 100).past(full.clone());
        let step = follow(&mut route, Event::Begin, &mut replica, now);
        if full.is_empty() {
            assert_eq!(step, Step::Moved(Some(others[0].clone())), "nobody has passed it on");
            continue;
        }
        assert!(matches!(step, Step::Take(Take::Adopt, _)), "{step:?}");
        assert_eq!(route.may_go_on(&replica, now), goes_to.is_some(), "{full:?}");
        if let Some(peer) = goes_to {
            let step = follow(&mut route, Event::Full, &mut replica, now);
            assert_eq!(step, Step::Full(Some(peer.clone())));
        }
        route.abandon(&mut replica);
        assert!(!replica.is_taking());
    }
}

#[test]
fn a_session_that_is_handed_over_is_handed_on() {
    let (mut replica, others, capsule, now) = many(2);
    let mut route = Route::new(&capsule, Entry::HandOver, now, 100).past(pods(&others[..1]));
    let step = follow(&mut route, Event::Begin, &mut replica, now);
    assert!(matches!(step, Step::Take(Take::Adopt, _)), "{step:?}");
    assert_eq!(follow(&mut route, Event::Full, &mut replica, now), Step::HandOn(others[1].clone()));
    let full = [others[0].pod.clone(), replica.me().pod.clone()];
    assert_eq!(route.full(), Some(&full[..]));
    assert_eq!(replica.holding(&capsule.key, now), Holding::No, "the other one may have no room either");
    // Nobody is left, or too many have passed it on.
    for full in [pods(&others), (50..).take(MAX_FULL).map(|number| peer(number).pod).collect()] {
        let mut route = Route::new(&capsule, Entry::HandOver, now, 100).past(full);
        let step = follow(&mut route, Event::Begin, &mut replica, now);
        assert!(matches!(step, Step::Take(Take::Adopt, _)), "{step:?}");
        assert!(!route.may_go_on(&replica, now));
        route.abandon(&mut replica);
    }
}

/// It may have no room for it, and if each of two remembered the other, a request would go back and forth between them.
#[test]
fn who_wants_a_session_is_not_remembered_to_have_it() {
    let (mut replica, others, capsule, now) = many(1);
    for entry in [Entry::Forwarded, Entry::HandOver] {
        let mut route = Route::new(&capsule, entry, now, 100).past(Vec::new());
        assert_eq!(route.step(Event::Begin, &mut replica, now), Step::Ask(vec![others[0].address]));
        let step = route.step(asked([(&others[0], Holding::Pending)]), &mut replica, now);
        assert_eq!(step, Step::Moved(Some(others[0].clone())));
        assert_eq!(replica.holding(&capsule.key, now), Holding::No, "{entry:?}");
    }
}

/// Each of two remembers the other, which had no room for it, or a server that did not begin it: their requests were answered
/// so, and of what comes by way of others they learn nothing.
#[test]
fn a_request_that_went_back_and_forth_goes_by_weight() {
    let (heavy, others, capsule, now) = many(3);
    let [one, other, me] = [&others[0], &others[1], &others[2]];
    let heavy = heavy.me();
    let mut replica = replica(me, &[heavy.clone(), one.clone(), other.clone()]);
    replica.remember(capsule.key, one.clone());
    let mut route = Route::new(&capsule, Entry::Client, now, 100).past(Vec::new());
    let mut step = route.step(Event::Begin, &mut replica, now);
    for (at, remembers) in [(one, other), (other, one), (one, other)] {
        assert_eq!(step, Step::Forward(at.clone()));
        let back = Event::NotForwarded(NotForwarded::Moved(Some(remembers.clone())));
        step = route.step(back, &mut replica, now);
    }
    let again = now.after(RETRY);
    assert_eq!(step, Step::Wait(again));
    // Another request goes the same way.
    replica.remember(capsule.key, one.clone());
    let step = route.step(Event::Waited, &mut replica, again);
    assert!(matches!(step, Step::Ask(_)), "{step:?}");
    let remember = [(one, Holding::At(other.clone())), (other, Holding::At(one.clone()))];
    let step = route.step(asked(remember.into_iter().chain([(heavy, Holding::No)])), &mut replica, again);
    assert_eq!(step, Step::Forward(heavy.clone()));
}

/// Another request of the same client's has come to it meanwhile, and it would say that it has no room once more.
#[test]
fn who_has_passed_a_session_on_does_not_get_it_back() {
    let (mut first, others, capsule, now) = many(1);
    let (heavy, light) = (first.me().clone(), others[0].clone());
    let mut next = replica(&light, std::slice::from_ref(&heavy));
    for entry in [Entry::Client, Entry::Forwarded] {
        let mut route = Route::new(&capsule, entry, now, 100).past(vec![heavy.pod.clone()]);
        assert_eq!(route.step(Event::Begin, &mut next, now), Step::Ask(vec![heavy.address]));
        let step = route.step(asked([(&heavy, Holding::Pending)]), &mut next, now);
        let Step::Wait(until) = step else { panic!("it stays with its claim: {step:?}") };
        assert_eq!(next.holding(&capsule.key, now), Holding::Pending);
        assert_eq!(route.step(Event::Waited, &mut next, until), Step::Ask(vec![heavy.address]));
        let step = route.step(asked([(&heavy, Holding::No)]), &mut next, until);
        assert!(matches!(step, Step::Take(Take::Adopt, _)), "{step:?}");
        route.abandon(&mut next);
    }
    // Whoever is asked steps back, also where the other one has passed it on, too. It does not name it then, or it would be
    // passed by as if it had no room either.
    for (full, named) in [(vec![], Some(light.clone())), (vec![light.pod.clone()], None)] {
        let mut route = Route::new(&capsule, Entry::Forwarded, now, 100).past(full);
        assert_eq!(route.step(Event::Begin, &mut first, now), Step::Ask(vec![light.address]));
        let step = route.step(asked([(&light, Holding::Pending)]), &mut first, now);
        assert_eq!(step, Step::Moved(named));
    }
}

/// Whoever gave it there remembers that it did.
#[test]
fn who_has_passed_a_session_on_is_not_asked_again_where_others_remember_it_there() {
    let (heavy, others, capsule, now) = many(2);
    let [giver, me] = [&others[0], &others[1]];
    let heavy = heavy.me();
    let mut replica = replica(me, &[heavy.clone(), giver.clone()]);
    for (passed, goes_to) in [(vec![], heavy), (vec![heavy.pod.clone()], giver)] {
        let mut route = Route::new(&capsule, Entry::Client, now, 100).past(passed);
        let step = route.step(Event::Begin, &mut replica, now);
        assert!(matches!(step, Step::Ask(_)), "{step:?}");
        let asked = asked([(heavy, Holding::No), (giver, Holding::At(heavy.clone()))]);
        assert_eq!(route.step(asked, &mut replica, now), Step::Forward(goes_to.clone()));
        replica.forget_at(&capsule.key, &goes_to.pod);
    }
}

/// One of an earlier release sends on to whom it would have take it, whoever has passed it on.
#[test]
fn an_earlier_release_is_passed_by() {
    let (mut replica, others, capsule, now) = many(2);
    let me = replica.me().clone();
    let mut route = Route::new(&capsule, Entry::Client, now, 100).past(Vec::new());
    follow(&mut route, Event::Begin, &mut replica, now);
    assert_eq!(follow(&mut route, Event::Full, &mut replica, now), Step::Forward(others[0].clone()));
    let back = Event::NotForwarded(NotForwarded::Moved(Some(me)));
    assert_eq!(follow(&mut route, back, &mut replica, now), Step::Forward(others[1].clone()));
    assert_eq!(route.full().map(<[PodId]>::len), Some(2));
}

/// Its server may know it still, and others leave it to this replica.
#[test]
fn a_session_that_was_opened_here_goes_nowhere_else() {
    let (mut replica, _, mut capsule, now) = many(2);
    capsule.owner = replica.me().clone();
    let mut route = Route::new(&capsule, Entry::Client, now, 100).past(Vec::new());
    let step = follow(&mut route, Event::Begin, &mut replica, now);
    assert!(matches!(step, Step::Take(Take::Up, _)), "{step:?}");
    assert!(!route.may_go_on(&replica, now));
}
