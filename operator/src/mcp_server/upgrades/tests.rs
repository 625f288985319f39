//! Who has a turn, who waits for one, and what is said of who was refused.

use std::collections::HashSet;

use super::*;
use crate::mcp_server::apply::Part;
use crate::mcp_server::condition::{Problem, Reason};
use crate::view::Live;

#[test]
fn a_server_is_rolling_while_it_has_pods_of_before() {
    let pod = |template: &str| PodView { template: Some(template.to_owned()), ..PodView::default() };
    let live = Live { uid: "d".to_owned(), version: 1, fingerprint: 1, controller: None };
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
        let deployment = DeploymentView { live: live.clone(), template, replicas, refused };
        let pods: Vec<_> = pods.into_iter().map(Arc::new).collect();
        assert_eq!(is_rolling(&deployment, &pods), expected, "{why}");
    }
}

/// A manifest of this generation, and of which one the pods were made that are there.
fn manifest(generation: i64, made_of: i64) -> McpServer {
    accepted(generation, made_of, "Accepted")
}

fn accepted(generation: i64, made_of: i64, reason: &str) -> McpServer {
    let condition = |type_: &str, generation: i64, reason: &str| {
        let status = if reason == type_ { "True" } else { "False" };
        serde_json::json!({
            "type": type_, "status": status, "reason": reason, "message": "", "observedGeneration": generation,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    serde_json::from_value(serde_json::json!({
        "apiVersion": "longshore.dev/v1alpha1", "kind": "McpServer",
        "metadata": {"name": "demo", "namespace": "tools", "generation": generation},
        "spec": {},
        "status": {"observedGeneration": generation, "conditions": [
            condition("Accepted", generation, reason), condition("Available", made_of, "Available"),
        ]},
    }))
    .unwrap()
}

#[test]
fn a_change_of_a_manifest_never_waits_however_often_it_is_tried() {
    let (upgrades, _turns) = Upgrades::new(1);
    assert_eq!(upgrades.ask(&server("other")), Turn::Now);
    let mut memory = ServerMemory::default();
    let later = Turn::Later(PATIENCE);
    for (why, generation, made_of, template, expected) in [
        ("a new release", 1, 1, "upgrade", later),
        ("it still waits", 1, 1, "upgrade", later),
        ("it is only scaled", 2, 1, "upgrade", later),
        ("its owner changes it", 3, 2, "change", Turn::Now),
        ("that could not be applied", 3, 2, "change", Turn::Now),
        ("it is scaled meanwhile", 4, 2, "change", Turn::Now),
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

/// Another operator leads, and knows no more than the status tells.
#[test]
fn whoever_takes_over_tells_a_change_from_an_upgrade_whatever_is_wrong() {
    let rows = [
        ("a new release", 2, Reason::Accepted, true),
        ("its upgrade was refused before", 2, Reason::Rejected, true),
        ("what it names went away, and is back", 2, Reason::SecretNotFound, true),
        ("its change failed for a moment", 1, Reason::Accepted, false),
        ("its change was refused", 1, Reason::Rejected, false),
        ("what its change names came late", 1, Reason::SecretNotFound, false),
    ];
    let waits = rows.map(|(why, made_of, reason, _)| {
        let (upgrades, _turns) = Upgrades::new(1);
        upgrades.ask(&server("other"));
        let manifest = accepted(2, made_of, reason.name());
        let live = Some("live".to_owned());
        let (mut memory, mut desired) = (ServerMemory::default(), desired("new"));
        let turn = decide(&manifest, &upgrades, &server("demo"), &mut memory, live, &mut desired);
        (why, turn != Turn::Now)
    });
    assert_eq!(waits, rows.map(|(why, .., waits)| (why, waits)));
}

#[test]
fn what_goes_on_counts_and_takes_nobodys_turn() {
    let (upgrades, mut turns) = Upgrades::new(1);
    upgrades.goes_on(&server("a"));
    upgrades.goes_on(&server("b"));
    assert_eq!(upgrades.ask(&server("c")), Turn::Later(PATIENCE));
    upgrades.not_needed(&server("a"));
    upgrades.done(&server("a"));
    assert!(turns.try_recv().is_err(), "b is still at it");
    upgrades.done(&server("b"));
    assert_eq!(turns.try_recv(), Ok(server("c")));
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

fn told(turns: &mut mpsc::UnboundedReceiver<ServerKey>) -> Vec<ServerKey> {
    std::iter::from_fn(|| turns.try_recv().ok()).collect()
}

/// One that stands in the line of its namespace comes late.
#[tokio::test(start_paused = true)]
async fn a_turn_is_kept_for_a_moment_and_who_had_one_in_vain_is_last() {
    let (upgrades, mut turns) = Upgrades::new(1);
    let later = Turn::Later(PATIENCE);
    assert_eq!(upgrades.ask(&of("aaa", "1")), Turn::Now);
    for waits in [of("aaa", "2"), of("team", "1"), of("team", "2")] {
        assert_eq!(upgrades.ask(&waits), later);
    }
    // Its new pods are refused.
    upgrades.done(&of("aaa", "1"));
    assert_eq!(told(&mut turns), [of("team", "1"), of("aaa", "2")]);
    tokio::time::advance(KEPT / 2).await;
    assert_eq!(
        upgrades.ask(&of("aaa", "2")),
        Turn::Later(KEPT / 2),
        "it is first, and not of those who wait"
    );
    assert_eq!(upgrades.ask(&of("aaa", "1")), Turn::Later(KEPT / 2), "it asks again");
    tokio::time::advance(KEPT / 2).await;
    assert_eq!(upgrades.ask(&of("aaa", "2")), Turn::Now, "the other does not come");
    assert_eq!(upgrades.ask(&of("team", "1")), later, "it comes too late");
    upgrades.done(&of("aaa", "2"));
    assert_eq!(told(&mut turns), [of("team", "2"), of("aaa", "1")]);
    assert_eq!(upgrades.ask(&of("team", "2")), Turn::Now);
    assert_eq!(upgrades.ask(&of("aaa", "1")), later);
    upgrades.done(&of("team", "2"));
    assert_eq!(told(&mut turns), [of("aaa", "1"), of("team", "1")]);
    upgrades.not_needed(&of("aaa", "1"));
    assert_eq!(upgrades.ask(&of("team", "1")), Turn::Now, "what is kept for one that needs none is free");
}

/// Of the servers that are told at once, the last one comes first.
#[test]
fn every_namespace_has_its_turn_whoever_comes_first() {
    for namespaces in [2, 3, SPARE + 1, SPARE + 2, SPARE + 4] {
        let (upgrades, mut turns) = Upgrades::new(1);
        assert_eq!(upgrades.ask(&server("x")), Turn::Now);
        for (namespace, number) in (0..namespaces).flat_map(|it| (0..50).map(move |number| (it, number))) {
            upgrades.ask(&of(&format!("n{namespace:02}"), &number.to_string()));
        }
        let mut had = HashSet::new();
        let mut rolling = server("x");
        for _ in 0..2 * namespaces {
            upgrades.done(&rolling);
            let asked = told(&mut turns).into_iter().rev();
            let given: Vec<_> = asked.filter(|server| upgrades.ask(server) == Turn::Now).collect();
            assert_eq!(given.len(), 1, "{given:?}");
            rolling = given[0].clone();
            had.insert(rolling.namespace.clone());
        }
        assert_eq!(had.len(), namespaces, "{had:?} had a turn");
    }
}

#[tokio::test(start_paused = true)]
async fn where_many_do_not_come_others_are_told_the_next_time() {
    let (upgrades, mut turns) = Upgrades::new(1);
    assert_eq!(upgrades.ask(&server("x")), Turn::Now);
    for number in 0..3 * SPARE {
        for name in ["a", "b", "c"] {
            let namespace = format!("n{number:02}");
            assert_eq!(upgrades.ask(&of(&namespace, name)), Turn::Later(PATIENCE));
        }
    }
    upgrades.done(&server("x"));
    let first = told(&mut turns);
    tokio::time::advance(KEPT).await;
    // As whoever was upgraded does, each time it is looked after.
    upgrades.done(&server("x"));
    let second = told(&mut turns);
    assert_eq!([first.len(), second.len()], [1 + SPARE; 2]);
    let namespaces: HashSet<_> = first.iter().chain(&second).map(|server| &server.namespace).collect();
    assert_eq!(namespaces.len(), 2 * (1 + SPARE));
}

#[test]
fn what_was_refused_is_said_of_the_upgrade_that_waits_and_of_no_change_that_was_taken_back() {
    let (upgrades, _turns) = Upgrades::new(1);
    let mut memory = ServerMemory::default();
    let words = |what: &str| Problem::new(Reason::Rejected, format!("{what} is refused"));
    let waits = "this server waits for another turn to be upgraded: upgrade is refused";
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
        let said = if turn == Turn::Now { None } else { memory.refused_upgrade() };
        assert_eq!(said.map(|problem| problem.message).as_deref(), expected, "{why}");
        if turn == Turn::Now {
            memory.note_refused(Part::Deployment, &desired.template, words(template));
            upgrades.done(&server("demo"));
        } else {
            memory.note_taken(true);
        }
    }
    // Somebody deletes its Deployment, and the next one is refused as well.
    let mut desired = desired("upgrade");
    decide(&manifest(3, 3), &upgrades, &server("demo"), &mut memory, None, &mut desired);
    let said = memory.note_refused(Part::Deployment, &desired.template, words("upgrade"));
    assert_eq!(said.message, "upgrade is refused", "it waits for no turn");
}

#[tokio::test(start_paused = true)]
async fn so_many_at_once_and_the_others_in_turn() {
    let (upgrades, mut turns) = Upgrades::new(2);
    assert_eq!(upgrades.ask(&server("a")), Turn::Now);
    assert_eq!(upgrades.ask(&server("b")), Turn::Now);
    assert_eq!(upgrades.ask(&server("a")), Turn::Now, "who has a turn keeps it");
    assert_eq!(upgrades.ask(&server("c")), Turn::Later(PATIENCE));
    assert_eq!(upgrades.ask(&server("d")), Turn::Later(PATIENCE));
    upgrades.done(&server("x"));
    assert!(turns.try_recv().is_err());
    upgrades.done(&server("b"));
    assert_eq!(turns.try_recv(), Ok(server("c")));
    assert_eq!(upgrades.ask(&server("c")), Turn::Now);
    assert_eq!(upgrades.ask(&server("d")), Turn::Later(PATIENCE));
    assert_eq!(upgrades.ask(&server("e")), Turn::Later(PATIENCE));
    upgrades.not_needed(&server("d"));
    upgrades.done(&server("a"));
    assert_eq!(turns.try_recv(), Ok(server("e")), "who needs no turn any more is passed over");
    upgrades.not_needed(&server("e"));
    assert_eq!(upgrades.ask(&server("d")), Turn::Now, "a turn that nobody took is free");
    assert_eq!(upgrades.ask(&server("f")), Turn::Later(PATIENCE));
    tokio::time::advance(PATIENCE).await;
    assert_eq!(upgrades.ask(&server("d")), Turn::Now, "a server that never serves does not stop the upgrade");
}
