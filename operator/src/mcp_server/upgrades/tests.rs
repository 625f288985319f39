//! Who has a turn, who waits for one, and what is said of who was refused.

use std::collections::HashSet;

use futures::FutureExt as _;

use super::*;
use crate::mcp_server::condition::{Problem, Reason};
use crate::mcp_server::memory::Record;
use crate::view::Live;

#[test]
fn a_server_is_rolling_while_it_has_pods_of_before() {
    let pod = |template: &str| PodView { template: Some(template.to_owned()), ..PodView::default() };
    let live = Live { uid: "d".to_owned(), version: 1, fingerprint: 1, controller: None, applied: None };
    for (replicas, pods, expected, why) in [
        (2, vec![pod("new"), pod("new")], false, "all are new"),
        (2, vec![pod("new"), pod("old")], true, "one is left"),
        (2, vec![pod("old"), pod("old")], true, "it has not begun"),
        (2, vec![], false, "a new server"),
        (2, vec![pod("new"), PodView { ending: true, ..pod("old") }], false, "it serves already"),
        (2, vec![PodView { failed: Some("Evicted".to_owned()), ..pod("old") }], false, "nothing runs"),
        (0, vec![pod("old")], false, "it is to have none"),
    ] {
        let template = Some("new".to_owned());
        let (replicas, refused) = (Some(replicas), None);
        let deployment =
            DeploymentView { live: live.clone(), template, replicas, refused, unmade: None, is_seen: true };
        let pods: Vec<_> = pods.into_iter().map(Arc::new).collect();
        assert_eq!(is_rolling(&deployment, &pods), expected, "{why}");
    }
}

/// A manifest of this generation, and of which one the pods were made that are there.
fn manifest(generation: i64, made_of: i64) -> McpServer {
    accepted(generation, made_of, "Accepted")
}

fn accepted(generation: i64, made_of: i64, reason: &str) -> McpServer {
    let is = |type_: &str, generation: i64, reason: &str| {
        condition(type_, if reason == type_ { "True" } else { "False" }, reason, generation)
    };
    serde_json::from_value(serde_json::json!({
        "apiVersion": "longshore.dev/v1alpha1", "kind": "McpServer",
        "metadata": {"name": "demo", "namespace": "tools", "generation": generation},
        "spec": {},
        "status": {"observedGeneration": generation, "conditions": [
            is("Accepted", generation, reason), is("Available", made_of, "Available"),
        ]},
    }))
    .unwrap()
}

fn condition(type_: &str, status: &str, reason: &str, generation: i64) -> serde_json::Value {
    serde_json::json!({
        "type": type_, "status": status, "reason": reason, "message": "", "observedGeneration": generation,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

#[test]
fn a_change_of_a_manifest_never_waits_however_often_it_is_tried() {
    let upgrades = Upgrades::new(1);
    assert!(upgrades.ask(&server("other")));
    let mut memory = ServerMemory::default();
    let later = Turn::Later;
    for (why, generation, made_of, template, expected) in [
        ("a new release", 1, 1, "upgrade", later),
        ("it still waits", 1, 1, "upgrade", later),
        ("it is only scaled", 2, 1, "upgrade", later),
        ("its owner changes it", 3, 2, "change", Turn::Free),
        ("that could not be applied", 3, 2, "change", Turn::Free),
        ("it is scaled meanwhile", 4, 2, "change", Turn::Free),
        ("its owner takes the change back", 5, 2, "upgrade", later),
    ] {
        let mut desired = desired(template);
        let manifest = manifest(generation, made_of);
        let live = Some("live".to_owned());
        let turn = decide(&manifest, &upgrades, &server("demo"), &mut memory, live, &mut desired);
        assert_eq!(turn, expected, "{why}");
        assert_eq!(desired.template, if turn == later { "live" } else { template }, "{why}");
    }
}

/// Another operator leads, and knows no more than the status tells. Before it was there, *Available* may have been of the
/// manifest, whatever pods there were.
#[test]
fn whoever_takes_over_tells_a_change_from_an_upgrade_whatever_is_wrong() {
    let (is_used, is_of_before) = (Reason::Ready, Reason::ServingPrevious);
    let rows = [
        ("a new release", 2, Reason::Accepted, (is_used, 2), true),
        ("its upgrade was refused before", 2, Reason::Rejected, (is_used, 2), true),
        ("what it names went away, and is back", 2, Reason::SecretNotFound, (is_of_before, 2), true),
        ("its change is on its way", 2, Reason::Accepted, (is_of_before, 1), true),
        ("its change failed for a moment", 1, Reason::Accepted, (is_of_before, 1), false),
        ("its change was refused", 1, Reason::Rejected, (is_of_before, 1), false),
        ("what its change names came late", 1, Reason::SecretNotFound, (is_of_before, 1), false),
        ("a release before had its change refused", 2, Reason::Rejected, (is_of_before, 1), false),
        ("or had not what it names", 2, Reason::SecretNotFound, (is_of_before, 1), false),
    ];
    let waits = rows.map(|(why, made_of, reason, ready, _)| {
        let upgrades = Upgrades::new(1);
        upgrades.ask(&server("other"));
        let mut manifest = accepted(2, made_of, reason.name());
        let conditions = &mut manifest.status.as_mut().unwrap().conditions;
        let ready = condition("Ready", "True", ready.0.name(), ready.1);
        conditions.push(serde_json::from_value(ready).unwrap());
        let live = Some("live".to_owned());
        let (mut memory, mut desired) = (ServerMemory::default(), desired("new"));
        let turn = decide(&manifest, &upgrades, &server("demo"), &mut memory, live, &mut desired);
        (why, turn == Turn::Later)
    });
    assert_eq!(waits, rows.map(|(why, .., waits)| (why, waits)));
}

/// Somebody was faster with the Deployment, whose pods are still those of before.
#[test]
fn an_upgrade_that_waits_goes_on_waiting_where_its_deployment_was_found_to_be_another() {
    let upgrades = Upgrades::new(1);
    upgrades.ask(&server("other"));
    let live = Live { uid: "d".to_owned(), version: 2, fingerprint: 1, controller: None, applied: None };
    let found = |digest: &str| Record { digest: digest.to_owned(), live: live.clone(), at: Instant::now() };
    for (record, expected) in [(None, Turn::Later), (Some(""), Turn::Later), (Some("applied"), Turn::Free)] {
        let mut memory = ServerMemory::default();
        memory.applied.extend(record.map(|it| (("Deployment", "demo".to_owned()), found(it))));
        let live = Some("live".to_owned());
        let mut desired = desired("upgrade");
        let turn = decide(&manifest(1, 1), &upgrades, &server("demo"), &mut memory, live, &mut desired);
        assert_eq!(turn, expected, "{record:?}");
    }
}

/// What it takes back is what it was upgraded to, by this very operator.
#[test]
fn a_change_that_is_taken_back_after_an_upgrade_waits_for_no_turn_although_somebody_was_faster() {
    // Or where what was applied came through, and no word of that.
    for record in ["applied", ""] {
        let upgrades = Upgrades::new(1);
        let mut memory = ServerMemory::default();
        let live = Live { uid: "d".to_owned(), version: 2, fingerprint: 1, controller: None, applied: None };
        let found =
            |digest: &str| Record { digest: digest.to_owned(), live: live.clone(), at: Instant::now() };
        let mut look = |record: Option<&str>, generation, made_of, live: &str, template: &str| {
            memory.applied.extend(record.map(|it| (("Deployment", "demo".to_owned()), found(it))));
            let (manifest, live) = (manifest(generation, made_of), Some(live.to_owned()));
            decide(&manifest, &upgrades, &server("demo"), &mut memory, live, &mut desired(template))
        };
        assert_eq!(look(None, 1, 1, "old", "upgrade"), Turn::Upgrade);
        assert_eq!(look(Some(record), 1, 1, "upgrade", "upgrade"), Turn::Free);
        assert_eq!(look(None, 2, 1, "upgrade", "change"), Turn::Free);
        upgrades.done(&server("demo"));
        assert!(upgrades.ask(&server("other")));
        assert_eq!(look(Some(""), 3, 2, "change", "upgrade"), Turn::Free, "{record:?}");
    }
}

#[tokio::test]
async fn what_goes_on_counts_and_takes_nobodys_turn() {
    let upgrades = Upgrades::new(1);
    upgrades.goes_on(&server("a"));
    upgrades.goes_on(&server("b"));
    assert!(!upgrades.ask(&server("c")));
    upgrades.not_needed(&server("a"));
    upgrades.done(&server("a"));
    assert_eq!(called(&upgrades), None, "b is still at it");
    upgrades.done(&server("b"));
    assert_eq!(called(&upgrades), Some(server("c")));
}

/// A server of one pod that is to have this template.
fn desired(template: &str) -> Desired {
    Desired { template: template.to_owned(), configs: Default::default(), replicas: 1, recreates: false }
}

fn server(name: &str) -> ServerKey {
    of("tools", name)
}

fn of(namespace: &str, name: &str) -> ServerKey {
    ServerKey { namespace: namespace.to_owned(), name: name.to_owned() }
}

fn called(upgrades: &Upgrades) -> Option<ServerKey> {
    upgrades.called().now_or_never()
}

/// One that stands in the line of its namespace comes late.
#[tokio::test(start_paused = true)]
async fn a_turn_is_kept_for_a_moment_and_who_had_one_in_vain_is_last() {
    let upgrades = Upgrades::new(1);
    assert!(upgrades.ask(&of("aaa", "1")));
    for waits in [of("aaa", "2"), of("team", "1"), of("team", "2")] {
        assert!(!upgrades.ask(&waits));
    }
    // Its new pods are refused.
    upgrades.done(&of("aaa", "1"));
    assert_eq!([called(&upgrades), called(&upgrades)], [Some(of("team", "1")), None]);
    tokio::time::advance(KEPT / 2).await;
    assert!(!upgrades.ask(&of("aaa", "2")), "it is first, and of a namespace that had a turn");
    assert!(!upgrades.ask(&of("aaa", "1")), "it asks again");
    assert_eq!(called(&upgrades), None);
    tokio::time::advance(KEPT / 2).await;
    assert_eq!(
        [called(&upgrades), called(&upgrades)],
        [Some(of("aaa", "2")), None],
        "the other does not come"
    );
    assert!(upgrades.ask(&of("aaa", "2")));
    assert!(!upgrades.ask(&of("team", "1")), "it comes too late");
    upgrades.done(&of("aaa", "2"));
    assert_eq!(called(&upgrades), Some(of("team", "2")));
    assert!(upgrades.ask(&of("team", "2")));
    upgrades.done(&of("team", "2"));
    assert_eq!(called(&upgrades), Some(of("aaa", "1")));
    upgrades.not_needed(&of("aaa", "1"));
    assert_eq!(called(&upgrades), Some(of("team", "1")), "what is kept for one that needs none is free");
}

#[tokio::test]
async fn every_namespace_has_its_turn_whoever_asks_first() {
    for namespaces in 2..12 {
        let upgrades = Upgrades::new(1);
        assert!(upgrades.ask(&server("x")));
        for (namespace, number) in (0..namespaces).flat_map(|it| (0..50).map(move |number| (it, number))) {
            upgrades.ask(&of(&format!("n{namespace:02}"), &number.to_string()));
        }
        let mut had = HashSet::new();
        let mut rolling = server("x");
        for _ in 0..namespaces {
            upgrades.done(&rolling);
            rolling = called(&upgrades).unwrap();
            assert!(upgrades.ask(&rolling));
            assert_eq!(called(&upgrades), None);
            had.insert(rolling.namespace.clone());
        }
        assert_eq!(had.len(), namespaces, "{had:?} had a turn");
    }
}

/// Whether or not anybody asks or is done meanwhile.
#[tokio::test(start_paused = true)]
async fn a_turn_that_nobody_comes_for_is_given_on_until_somebody_does() {
    let upgrades = Upgrades::new(1);
    assert!(upgrades.ask(&server("x")));
    for number in 0..30 {
        assert!(!upgrades.ask(&of(&format!("n{:02}", number / 3), &number.to_string())));
    }
    upgrades.done(&server("x"));
    let began = Instant::now();
    let mut given = Vec::new();
    for number in 0..10 {
        given.push(upgrades.called().await);
        // A moment more, as a timer has it.
        let took = began.elapsed().saturating_sub(KEPT * number);
        assert!(took < Duration::from_millis(100), "{given:?} after {:?}", began.elapsed());
    }
    let namespaces: HashSet<_> = given.iter().map(|server| &server.namespace).collect();
    assert_eq!(namespaces.len(), 10, "{given:?}");
    // However late they come, one of them has it.
    let begun: Vec<_> = given.iter().filter(|server| upgrades.ask(server)).collect();
    assert_eq!(begun, [&given[0]]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_goes_on_for_too_long_is_given_on() {
    let upgrades = Upgrades::new(1);
    assert!(upgrades.ask(&server("a")));
    assert!(!upgrades.ask(&server("b")));
    let began = Instant::now();
    assert_eq!(upgrades.called().await, server("b"));
    assert!((PATIENCE..PATIENCE + KEPT).contains(&began.elapsed()), "after {:?}", began.elapsed());
    assert!(upgrades.ask(&server("b")));
}

#[test]
fn what_was_refused_is_said_of_the_upgrade_that_waits_and_of_no_change_that_was_taken_back() {
    let upgrades = Upgrades::new(1);
    let mut memory = ServerMemory::default();
    let words = |what: &str| Problem::new(Reason::Rejected, format!("{what} is refused"));
    let waits = "upgrade is refused";
    for (why, is_free, generation, template, expected) in [
        ("it waits", false, 1, "upgrade", None),
        ("its turn", true, 1, "upgrade", None),
        ("that was refused, and it waits again", false, 1, "upgrade", Some(waits)),
        ("its owner changes it", false, 2, "change", None),
        ("that is refused, and its owner takes it back", false, 3, "upgrade", None),
        ("its turn again", true, 3, "upgrade", None),
        ("that was refused, and it waits again", false, 3, "upgrade", Some(waits)),
    ] {
        if is_free {
            upgrades.done(&server("other"));
        } else {
            upgrades.ask(&server("other"));
        }
        let mut desired = desired(template);
        let manifest = manifest(generation, (generation - 1).max(1));
        let live = Some("live".to_owned());
        let turn = decide(&manifest, &upgrades, &server("demo"), &mut memory, live, &mut desired);
        let said = if turn == Turn::Later { memory.refused_upgrade() } else { None };
        assert_eq!(said.map(|problem| problem.message).as_deref(), expected, "{why}");
        if turn != Turn::Later {
            memory.note_refused(("Deployment", "demo".to_owned()), &desired.template, Some(words(template)));
            upgrades.done(&server("demo"));
        }
    }
    // Somebody deletes its Deployment, and the next one is refused as well.
    let mut desired = desired("upgrade");
    let turn = decide(&manifest(3, 3), &upgrades, &server("demo"), &mut memory, None, &mut desired);
    assert_eq!(turn, Turn::Free, "it waits for no turn");
}

#[tokio::test(start_paused = true)]
async fn so_many_at_once_and_the_others_in_turn() {
    let upgrades = Upgrades::new(2);
    assert!(upgrades.ask(&server("a")));
    assert!(upgrades.ask(&server("b")));
    assert!(upgrades.ask(&server("a")), "who has a turn keeps it");
    assert!(!upgrades.ask(&server("c")));
    assert!(!upgrades.ask(&server("d")));
    upgrades.done(&server("x"));
    assert_eq!(called(&upgrades), None);
    upgrades.done(&server("b"));
    assert_eq!([called(&upgrades), called(&upgrades)], [Some(server("c")), None]);
    assert!(upgrades.ask(&server("c")));
    assert!(!upgrades.ask(&server("d")));
    assert!(!upgrades.ask(&server("e")));
    upgrades.not_needed(&server("d"));
    upgrades.done(&server("a"));
    assert_eq!(called(&upgrades), Some(server("e")), "who needs no turn any more is passed over");
    upgrades.not_needed(&server("e"));
    assert!(upgrades.ask(&server("d")), "a turn that nobody took is free");
    assert!(!upgrades.ask(&server("f")));
    tokio::time::advance(PATIENCE).await;
    assert!(upgrades.ask(&server("d")), "a server that never serves does not stop the upgrade");
    for server in ["a", "b", "c", "d", "e", "f"].map(server) {
        upgrades.done(&server);
    }
    let state = upgrades.state.lock();
    assert!(state.given.is_empty() && state.waiting.is_empty() && state.called.is_empty(), "{state:?}");
    assert!(state.had.is_empty(), "{state:?}");
}
