//! Which replicas there are, by what they say of themselves and of each other, and what DNS lists.

use super::*;
use crate::message::Word;
use crate::tombstones::Digest;

fn says(pod: &str, address: IpAddr, state: State, left: Vec<Peer>) -> Introduction {
    let pod = PodId::new(pod).unwrap();
    let left = left.into_iter().map(|peer| Departure { peer, ago: 0 }).collect();
    Introduction {
        pod,
        address,
        word: None,
        state,
        tombstones: Digest::default(),
        left,
        knows: Vec::new(),
        settled: false,
        shaken: false,
        full: false,
        template: None,
    }
}

#[test]
fn who_served_and_is_silent_may_serve() {
    let (me, them): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let now = Moment::default().after(Duration::from_secs(1));
    let is = |state, happens: fn(&mut View, IpAddr, Moment)| {
        let mut view = View::new(me);
        view.listed(&[me, them], now);
        view.heard(&says("pod-2", them, state, Vec::new()), now);
        happens(&mut view, them, now);
        view.may_serve(now)
    };
    assert!(is(State::Serving, |_, _, _| {}));
    assert!(is(State::Serving, View::silent));
    assert!(!is(State::Serving, View::refused));
    for state in [State::Starting, State::Draining, State::Leaving] {
        assert!(!is(state, |_, _, _| {}) && !is(state, View::silent), "{state:?}");
    }
}

#[test]
fn who_leaves_is_gone_although_dns_lists_it_until_it_starts_again() {
    let (me, them): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let peer = Peer { pod: PodId::new("pod-2").unwrap(), address: them };
    let says = |process, number, state| {
        let word = Some(Word { process, number });
        Introduction { word, ..says("pod-2", them, state, Vec::new()) }
    };
    let at = |seconds| Moment::default().after(Duration::from_secs(seconds));
    let stands = |view: &View, second| view.standing(&peer, Duration::from_secs(3_600), at(second));
    let mut view = View::new(me);
    view.listed(&[me, them], at(1));
    view.heard(&says(1, 6, State::Draining), at(1));
    assert!(matches!(stands(&view, 1), Standing::Alive(_, State::Draining)));
    view.heard(&says(1, 8, State::Leaving), at(2));
    // An older word that comes later.
    view.heard(&says(1, 7, State::Draining), at(2));
    for second in 2..40 {
        view.listed(&[me, them], at(second));
        view.silent(them, at(second));
        assert_eq!(stands(&view, second), Standing::Gone, "{second}");
        assert!(view.to_ask(at(second)).is_empty(), "{second}");
    }
    view.heard(&says(2, 0, State::Starting), at(40));
    assert_eq!(stands(&view, 40), Standing::Restarting);
    assert_eq!(view.to_ask(at(40)), [them]);
}

/// Its node was started anew, and another pod has the address that it had.
#[test]
fn a_pod_that_is_back_elsewhere_is_looked_for_there_though_it_is_silent() {
    let [me, before, since]: [IpAddr; 3] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]].map(IpAddr::from);
    let pod = PodId::new("pod-2").unwrap();
    let now = Moment::default().after(Duration::from_secs(1));
    let mut view = View::new(me);
    let at = |view: &View| view.last_heard(&pod).map(|peer| peer.address);
    assert_eq!(at(&view), None);
    view.listed(&[me, before, since], now);
    view.heard(&says("pod-2", before, State::Serving, Vec::new()), now);
    assert_eq!(at(&view), Some(before));
    view.heard(&says("pod-2", since, State::Serving, Vec::new()), now);
    view.heard(&says("pod-3", before, State::Serving, Vec::new()), now);
    assert_eq!(at(&view), Some(since));
    view.silent(since, now);
    assert_eq!(at(&view), Some(since));
    let there = Peer { pod: pod.clone(), address: since };
    assert_eq!(view.standing(&there, Duration::MAX, now), Standing::Unknown);
    view.heard(&says("pod-2", since, State::Leaving, Vec::new()), now);
    assert_eq!(at(&view), None);
}

/// The answer to a question of this replica's may be read after a question of that one's own that it asked later.
#[test]
fn an_older_word_is_not_believed_after_a_newer_one() {
    let (me, them): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let now = Moment::default();
    let mut view = View::new(me);
    let word = |process, number| Some(Word { process, number });
    for (pod, word, state, expected) in [
        ("pod-2", word(7, 0), State::Starting, (State::Starting, 1)),
        ("pod-2", word(7, 2), State::Serving, (State::Serving, 1)),
        ("pod-2", word(7, 1), State::Starting, (State::Serving, 1)),
        ("pod-2", word(7, 3), State::Draining, (State::Draining, 1)),
        // Of another process, and of another pod, there is no order.
        ("pod-2", word(3, 1), State::Serving, (State::Serving, 1)),
        ("pod-2", word(4, 0), State::Starting, (State::Starting, 2)),
        ("pod-3", word(4, 0), State::Serving, (State::Serving, 3)),
        // A release that does not number its words.
        ("pod-3", None, State::Draining, (State::Draining, 3)),
        ("pod-3", None, State::Leaving, (State::Leaving, 3)),
    ] {
        view.heard(&Introduction { word, ..says(pod, them, state, Vec::new()) }, now);
        let member = view.members().next().unwrap();
        assert_eq!((member.state, member.lives), expected, "{pod} {word:?} {state:?}");
    }
}

#[test]
fn a_process_that_restarts_in_place_is_another_one() {
    let (me, them): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let now = Moment::default();
    let mut view = View::new(me);
    let mut seen = Vec::new();
    for (pod, state) in [
        ("one", State::Starting),
        ("one", State::Starting),
        ("one", State::Serving),
        ("one", State::Serving),
        // Within the same moment, so that nobody saw it gone.
        ("one", State::Starting),
        ("one", State::Serving),
        // Whose start was not heard.
        ("two", State::Serving),
        ("two", State::Draining),
    ] {
        view.heard(&says(pod, them, state, Vec::new()), now);
        seen.push(view.serving_lives(now).next().map(|(pod, life)| (pod.as_str().to_owned(), life)));
    }
    let serves = |pod: &str, life| Some((pod.to_owned(), life));
    let expected =
        [None, None, serves("one", 1), serves("one", 1), None, serves("one", 2), serves("two", 3), None];
    assert_eq!(seen, expected);
}

#[test]
fn a_replica_that_came_later_hears_who_left_from_those_who_were_there() {
    let [me, witness, gone]: [IpAddr; 3] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]].map(IpAddr::from);
    let peer = |name, address| Peer { pod: PodId::new(name).unwrap(), address };
    let left = peer("gone", gone);
    let says = |name, address, left| says(name, address, State::Serving, left);
    let at = |seconds| Moment::default().after(Duration::from_secs(seconds));
    let age = Duration::from_secs(3_600);
    let tells = says("witness", witness, vec![left.clone()]);
    let mut view = View::new(me);
    view.listed(&[me, witness, gone], at(1));
    view.silent(gone, at(3));
    assert_eq!(view.standing(&left, age, at(3)), Standing::Unknown);
    view.heard(&tells, at(3));
    assert_eq!(view.standing(&left, age, at(3)), Standing::Gone);
    assert_eq!(view.to_ask(at(3)), [witness]);
    assert!(view.left(at(3)).eq([Departure { peer: left.clone(), ago: 0 }]));
    // Another pod that has the address now speaks for itself, and whoever speaks has not left.
    view.heard(&says("new", gone, Vec::new()), at(4));
    view.heard(&tells, at(4));
    assert_eq!(view.standing(&left, age, at(4)), Standing::Gone);
    assert!(view.find(&PodId::new("new").unwrap(), at(4)).is_some());
}

/// Name servers answer from caches.
#[test]
fn whom_dns_does_not_list_yet_is_settled_by_those_who_know_it() {
    let [me, witness, new]: [IpAddr; 3] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]].map(IpAddr::from);
    let peer = |address: &IpAddr| Peer { pod: PodId::new("pod").unwrap(), address: *address };
    let began = Moment::default();
    let now = began.after(INTRODUCED);
    let settled = |listed: &[IpAddr], knows: &[IpAddr]| {
        let mut view = View::new(me);
        view.listed(listed, began);
        view.listed(listed, now);
        let says = says("witness", witness, State::Serving, Vec::new());
        view.heard(&Introduction { knows: knows.iter().map(peer).collect(), ..says }, now);
        assert!(
            !view.is_settled(now.after(DNS_FRESH + Duration::from_millis(1))),
            "it has not answered since"
        );
        (view.is_settled(now), view.to_ask(now))
    };
    assert_eq!(settled(&[me, witness], &[]), (true, vec![witness]));
    assert_eq!(settled(&[witness], &[]), (false, vec![witness]));
    assert_eq!(settled(&[witness], &[me]), (true, vec![witness]));
    // Of whom it knows, the others hear, and ask them too.
    assert_eq!(settled(&[witness], &[me, new]), (true, vec![witness, new]));
    // It may be as new.
    assert_eq!(settled(&[], &[me]), (false, vec![witness]));
    assert_eq!(settled(&[new], &[me]), (false, vec![witness, new]));
}

/// All of those whom DNS lists may have left: then those who came later vouch for each other.
#[test]
fn whom_dns_overlooks_is_settled_by_those_who_are_and_stays_so() {
    let [me, old, other]: [IpAddr; 3] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]].map(IpAddr::from);
    let knows = vec![Peer { pod: PodId::new("me").unwrap(), address: me }];
    let says = |settled, state| Introduction {
        knows: knows.clone(),
        settled,
        ..says("other", other, state, Vec::new())
    };
    let now = Moment::default().after(INTRODUCED);
    let view = || {
        let mut view = View::new(me);
        assert!(!view.is_overlooked(), "DNS has said nothing");
        view.listed(&[old], Moment::default());
        view.listed(&[old], now);
        assert!(view.is_overlooked());
        view
    };
    let (mut first, mut second) = (view(), view());
    first.heard(&says(false, State::Serving), now);
    assert!(!first.is_settled(now), "nobody knows whom that one has not heard of");
    second.heard(&says(true, State::Serving), now);
    assert!(second.is_settled(now));
    // Whoever comes after that finds this one, also when the other one is gone.
    second.heard(&says(true, State::Leaving), now);
    assert!(second.is_settled(now));
    // From here on DNS says it.
    second.listed(&[old, me], now);
    assert!(second.is_settled(now) && !second.is_overlooked());
    second.listed(&[old], now);
    assert!(!second.is_settled(now));
}

/// Of two that come at once, each may have the address of one that left, of whom both hear from those who were there.
#[test]
fn who_has_the_address_of_one_that_left_is_greeted_and_heard_of() {
    let [me, witness, used]: [IpAddr; 3] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]].map(IpAddr::from);
    let peer = |name| Peer { pod: PodId::new(name).unwrap(), address: used };
    let now = Moment::default();
    let mut view = View::new(me);
    view.listed(&[me, witness, used], now);
    view.heard(&says("witness", witness, State::Serving, vec![peer("old")]), now);
    assert_eq!((view.to_ask(now), view.to_greet(now)), (vec![witness], vec![witness, used]));
    let mut tells = |knows| {
        let says = says("witness", witness, State::Serving, Vec::new());
        view.heard(&Introduction { knows, ..says }, now);
        view.to_ask(now)
    };
    // It has yet to hear that the old one left.
    assert_eq!(tells(vec![peer("old")]), [witness]);
    assert_eq!(tells(vec![peer("new")]), [witness, used]);
    view.listed(&[me, witness], now);
    view.heard(&says("new", used, State::Leaving, Vec::new()), now);
    assert_eq!(view.to_greet(now), [witness]);
}

/// A process that has just started has forgotten what the one before it had heard.
#[test]
fn whoever_starts_takes_nothing_before_it_has_heard_everybody_who_knows_it() {
    let [me, one]: [IpAddr; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
    let at = |milliseconds| Moment::default().after(Duration::from_millis(milliseconds));
    let mut view = View::new(me);
    assert!(!view.is_settled(at(1)));
    view.listed(&[me], at(2));
    assert!(view.is_settled(at(2)), "it is the only one");
    view.heard(&says("one", one, State::Serving, Vec::new()), at(900));
    assert!(!view.is_settled(at(1_200)));
    assert!(view.is_settled(at(2).after(INTRODUCED)));
}

#[test]
fn others_hear_of_whom_it_has_heard_and_of_nobody_else() {
    let [me, one, other]: [IpAddr; 3] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]].map(IpAddr::from);
    let at = |seconds| Moment::default().after(Duration::from_secs(seconds));
    let known = |view: &View, second| view.known(at(second)).map(|peer| peer.address).collect::<Vec<_>>();
    let knows = vec![Peer { pod: PodId::new("other").unwrap(), address: other }];
    let mut view = View::new(me);
    view.listed(&[me, one, other], at(1));
    assert!(known(&view, 1).is_empty());
    assert!(view.is_untried(one) && !view.is_untried(me));
    view.heard(&Introduction { knows, ..says("one", one, State::Serving, Vec::new()) }, at(1));
    assert_eq!(known(&view, 1), [one]);
    assert!(!view.is_untried(one) && view.is_untried(other));
    view.silent(other, at(3));
    assert!(!view.is_untried(other));
    // Whoever is silent may live.
    view.silent(one, at(3));
    assert_eq!(known(&view, 60), [one]);
    view.heard(&says("one", one, State::Leaving, Vec::new()), at(61));
    assert!(known(&view, 61).is_empty());
}

/// Ids of sessions name it, and DNS may list it later than it was there.
#[test]
fn who_left_before_anybody_met_it_is_remembered_for_a_while() {
    let [me, witness, gone]: [IpAddr; 3] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]].map(IpAddr::from);
    let peer = Peer { pod: PodId::new("gone").unwrap(), address: gone };
    let at = |seconds| Moment::default().after(Duration::from_secs(seconds));
    let tells = |ago| {
        let left = vec![Departure { peer: peer.clone(), ago }];
        Introduction { left, ..says("witness", witness, State::Serving, Vec::new()) }
    };
    let mut view = View::new(me);
    view.listed(&[me, witness], at(1));
    view.heard(&tells(REMEMBERED.as_secs()), at(1));
    assert_eq!(view.left(at(1)).count(), 0, "it is too long ago");
    assert_eq!(view.standing(&peer, Duration::ZERO, at(1)), Standing::Unknown);
    view.heard(&tells(30), at(2));
    assert_eq!(view.standing(&peer, Duration::ZERO, at(2)), Standing::Gone);
    assert!(view.left(at(10)).eq([Departure { peer: peer.clone(), ago: 38 }]));
    view.listed(&[me, witness, gone], at(11));
    assert_eq!(view.to_ask(at(11)), [witness]);
    view.listed(&[me, witness], at(12));
    view.listed(&[me, witness], at(2 + REMEMBERED.as_secs() - 30));
    assert_eq!(view.left(at(90)).count(), 0);
}
