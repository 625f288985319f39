//! A new version over one that works.

use super::used::{one_by_one, unreachable};
use super::*;
use crate::view::Told;

#[test]
fn a_new_version_that_fails_takes_nothing_away() {
    let crash =
        ContainerView { ended: ended(1, "Error", "no token"), ..waiting("CrashLoopBackOff", "back-off") };
    let scene = Scene::of(vec![
        said(ready(pod("old")), summary()),
        said(PodView { server: crash, ..pod("new") }, failed(ConnectionReason::ConnectionRefused, "x")),
    ])
    .after(&was_ready());
    assert_eq!(
        scene.conditions(),
        [
            "Accepted=True/Accepted",
            "Available=True/RolloutFailing",
            "Connected=True/Connected",
            "Isolated=True/LoopbackOnly",
            "Published=True/Published",
            "Ready=True/ServingPrevious",
        ]
    );
    let status = scene.status();
    let available = of(&status, ConditionType::Available);
    assert_eq!(
        available.message,
        "the previous version goes on serving; the new one (generation 4) fails: ServerExited: the server exited with code 1; \
         its last lines: no token"
    );
    let ready = of(&status, ConditionType::Ready);
    assert_eq!((ready.observed_generation, ready.last_transition_time.0.as_second()), (Some(3), 10));
    assert_eq!((status.replicas, status.ready_replicas), (Some(2), Some(1)));
}

/// As one that dies some seconds after each handshake, and is the only one that serves in some of them.
#[test]
fn a_version_that_fails_is_not_in_force_while_the_one_before_is_away_for_a_moment() {
    let older = || Scene::of(vec![said(ready(pod("old")), summary()), said(pod("new"), summary())]);
    let blip = || Scene::of(vec![said(pod("old"), summary()), said(ready(pod("new")), summary())]);
    let newer = || Scene::of(vec![said(ready(pod("new")), summary())]);
    let found = one_by_one(was_ready(), vec![older(), blip(), older(), blip(), newer()]);
    let is_before = "True/ServingPrevious 3";
    assert_eq!(found, [is_before, is_before, is_before, is_before, "True/Ready 4"]);
    let status = blip().after(&was_ready()).status();
    assert_eq!(
        of(&status, ConditionType::Ready).message,
        "clients can use the server, but not all of the last change is in force: a pod from before it is still there"
    );
    // An upgrade of Longshore changes nothing of the manifest.
    let in_force = newer().after(&was_ready()).status();
    assert_eq!(one_by_one(in_force, vec![older(), blip()]), ["True/ServingPrevious 4", "True/Ready 4"]);
}

/// What programs go by that know no McpServers: nothing of this is there without need.
#[test]
fn what_is_not_in_force_yet_and_what_never_will_be_are_told_apart() {
    let starting = || vec![said(ready(pod("old")), summary()), said(pod("new"), summary())];
    let with = |pods: Vec<PodFacts>, reason: Option<Reason>| {
        let mut scene = Scene::of(pods).after(&was_ready());
        scene.problems = reason.map(|reason| Problem::new(reason, "x")).into_iter().collect();
        let all = scene.status().conditions;
        let more = all.get(6..).unwrap_or_default().iter();
        more.map(|it| format!("{}={}/{} {:?}", it.type_, it.status, it.reason, it.observed_generation))
            .collect::<Vec<_>>()
    };
    let serves = || vec![said(ready(pod("new")), summary())];
    for (pods, problem, expected) in [
        (serves(), None, vec![]),
        (starting(), None, vec!["Reconciling=True/ServingPrevious Some(4)"]),
        (starting(), Some(Reason::SecretNotFound), vec!["Reconciling=True/ServingPrevious Some(4)"]),
        (starting(), Some(Reason::Invalid), vec!["Stalled=True/Invalid Some(4)"]),
        (vec![], Some(Reason::Malformed), vec!["Stalled=True/Malformed Some(4)"]),
        (vec![], None, vec![]),
    ] {
        assert_eq!(with(pods, problem), expected, "{problem:?}");
    }
}

/// Each time it runs it is ready for a moment. Its sidecar has been restarted too, long ago.
#[test]
fn a_new_version_that_shakes_hands_and_dies_has_one_status() {
    let crash = ended(1, "Error", "no database").map(|ended| Ended { at: Some(990), ..ended });
    let dies = |state: ContainerState, is_ready: bool| {
        let server = ContainerView { state, ended: crash.clone(), restarted: true, ..running() };
        let sidecar = ContainerView { restarted: true, began: Some(900), ..running() };
        PodView { sidecar, server, ready: is_ready, ready_changed: Some(998), ..pod("new") }
    };
    let back_off = waiting("CrashLoopBackOff", "back-off").state;
    let scene = |new: PodView, old: usize| {
        let others = (0..old).map(|n| PodView { uid: format!("old-{n}"), ..ready(pod("old")) });
        let others = others.map(|other| said(other, summary()));
        let mut scene = Scene::of(std::iter::once(said(new, summary())).chain(others).collect());
        scene = scene.after(&was_ready());
        scene.second = 1000;
        scene
    };
    for old in [1, 2] {
        let before = scene(dies(back_off.clone(), false), old).status().conditions;
        let available = before.iter().find(|it| it.type_ == "Available").unwrap();
        assert!(available.reason == "RolloutFailing" && available.message.contains("no database"));
        for (state, is_ready) in [
            (ContainerState::Running, false),
            (ContainerState::Running, true),
            (ContainerState::Terminated, true),
            (ContainerState::Terminated, false),
        ] {
            let after = scene(dies(state.clone(), is_ready), old).status().conditions;
            assert_eq!(after, before, "{old} of before, {state:?}, ready: {is_ready}");
        }
    }
    // One that goes on serves beside the others, and one that has nobody beside it serves all the same.
    let goes_on = PodView { ready_changed: Some(989), ..dies(ContainerState::Running, true) };
    assert_eq!(trials_end(&[said(goes_on.clone(), summary())], 1000), None);
    let status = scene(goes_on.clone(), 1).status();
    let available = of(&status, ConditionType::Available);
    assert_eq!(
        (available.reason.as_str(), available.message.as_str()),
        (
            "RollingOut",
            "the new version (generation 4) serves; once it has for 10 seconds, the previous one is removed"
        )
    );
    // Nor does it wait for as long as its node's clock is wrong, unless that is a matter of seconds.
    for (changed, expected) in [(1001, "RolloutFailing"), (1600, "RollingOut")] {
        let ahead = PodView { ready_changed: Some(changed), ..goes_on.clone() };
        let waits = trials_end(&[said(ahead.clone(), summary())], 1000).is_some();
        assert_eq!(waits, expected == "RolloutFailing", "ready since {changed}");
        assert_eq!(
            of(&scene(ahead, 1).status(), ConditionType::Available).reason,
            expected,
            "since {changed}"
        );
    }
    let alone = dies(ContainerState::Running, true);
    assert_eq!(trials_end(&[said(alone.clone(), summary())], 1000), Some(std::time::Duration::from_secs(9)));
    assert_eq!(of(&scene(alone, 0).status(), ConditionType::Ready).reason, "Ready");
}

/// Nothing else may happen by then.
#[test]
fn a_sidecar_that_cannot_be_asked_is_looked_at_again_when_it_has_been_told_long_enough() {
    let told = || {
        let told = Some(Told { digest: WANTED.to_owned(), since: 950 });
        PodView { told, ..ready(pod("new")) }
    };
    let left = |facts: PodFacts, now| trials_end(&[said(ready(pod("new")), summary()), facts], now);
    for (now, expected) in [(950, Some(120)), (1000, Some(70)), (1069, Some(1)), (1070, None)] {
        let found = left(unreachable(told()), now).map(|left| left.as_secs());
        assert_eq!(found, expected, "at second {now}");
    }
    assert_eq!(left(said(told(), summary()), 1000), None, "it says itself what it runs");
    assert_eq!(left(unreachable(ready(pod("new"))), 1000), None, "it was never told");
}

#[test]
fn ready_is_the_generation_that_clients_use() {
    let stale = Summary {
        config: ConfigState { digest: "sha256:old".to_owned(), generation: 3, error: None, callers: None },
        ..summary()
    };
    let refused = Summary {
        config: ConfigState { error: Some("no such field".to_owned()), ..stale.config.clone() },
        ..summary()
    };
    let missing = vec![Problem::new(Reason::SecretNotFound, "Secret tools/token does not exist")];
    let pods = |summary: Summary| vec![said(ready(pod("new")), summary)];
    // It waits for its turn to be upgraded: until then the template that it has is the one that is wanted.
    let of_older_contract = || {
        vec![said(
            PodView { config_maps: vec!["github-longshore-v0-x".to_owned()], ..ready(pod("new")) },
            stale.clone(),
        )]
    };
    let old_and_new = || vec![said(ready(pod("old")), summary()), silent(pod("new"))];
    for (name, pods, problems, before, after) in [
        ("in force", pods(summary()), vec![], "True/Ready 4", "True/Ready 4"),
        ("rolling out", old_and_new(), vec![], "True/ServingPrevious 3", "True/ServingPrevious 3"),
        (
            "configuration of another contract",
            of_older_contract(),
            vec![],
            "True/ServingPrevious 3",
            "True/ServingPrevious 3",
        ),
        (
            "configuration on its way",
            pods(stale.clone()),
            vec![],
            "False/ConfigurationPending 4",
            "True/ServingPrevious 3",
        ),
        (
            "configuration refused",
            pods(refused),
            vec![],
            "True/ConfigurationRefused 3",
            "True/ConfigurationRefused 3",
        ),
        ("not accepted", pods(summary()), missing.clone(), "True/Ready 4", "True/Ready 4"),
        ("not accepted, no pod", vec![], missing, "False/SecretNotFound 4", "False/SecretNotFound 3"),
        (
            "operator has just started",
            vec![silent(ready(pod("new")))],
            vec![],
            "False/Connecting 4",
            "True/ServingPrevious 3",
        ),
    ] {
        let ready_of = |scene: Scene| {
            let status = scene.status();
            let ready = of(&status, ConditionType::Ready);
            format!("{}/{} {}", ready.status, ready.reason, ready.observed_generation.unwrap())
        };
        let mut scene = Scene::of(pods.clone());
        scene.problems.clone_from(&problems);
        assert_eq!(ready_of(scene), before, "{name}, for the first time");
        let mut scene = Scene::of(pods).after(&was_ready());
        scene.problems = problems;
        assert_eq!(ready_of(scene), after, "{name}, over a server that works");
    }
}

/// Whoever takes over tells by it what makes other pods: a change of the manifest, or a new release.
#[test]
fn available_is_of_the_generation_whose_pods_were_made_last() {
    let live = |template: &str| {
        let template = Some(template.to_owned());
        Some(DeploymentView { template, refused: None, ..deployment_refused("") })
    };
    let manifest = Some(desired());
    for (why, deployment, desired, first, then) in [
        ("none is there", None, manifest.clone(), 4, 4),
        ("it has the pods", live("new"), manifest.clone(), 4, 4),
        ("those of the change are not made", live("old"), manifest, 4, 3),
        ("nothing can be made of the manifest", live("new"), None, 4, 3),
    ] {
        for (previous, expected) in [(None, first), (Some(was_ready()), then)] {
            let (deployment, desired) = (deployment.clone(), desired.clone());
            let scene = Scene { previous, deployment, desired, ..Scene::of(vec![]) };
            let status = scene.status();
            assert_eq!(of(&status, ConditionType::Available).observed_generation, Some(expected), "{why}");
        }
    }
}

/// Whose turn it is to be upgraded keeps it until then.
#[test]
fn a_version_is_in_force_when_none_of_before_is_left_whatever_was_heard() {
    let crash = ContainerView { ended: ended(1, "Error", "x"), ..waiting("CrashLoopBackOff", "back-off") };
    let old = || ready(pod("old"));
    let new = || ready(pod("new"));
    // Of the same manifest: a new release changes none.
    let before = Scene::of(vec![said(new(), summary())]).status();
    for (name, pods, expected) in [
        ("it serves", vec![said(new(), summary())], true),
        ("it serves, and was not asked yet", vec![silent(new())], true),
        ("it serves, and cannot be asked", vec![unreachable(new())], true),
        ("the one before was not asked yet", vec![silent(old())], false),
        ("the one before cannot be asked", vec![unreachable(old())], false),
        ("both serve", vec![silent(old()), silent(new())], false),
        ("the one before serves, the new one starts", vec![silent(old()), silent(pod("new"))], false),
        (
            "the one before serves, the new one fails",
            vec![silent(old()), silent(PodView { server: crash, ..pod("new") })],
            false,
        ),
        ("none serves", vec![silent(pod("new"))], false),
    ] {
        let status = Scene::of(pods).after(&before).status();
        assert_eq!(is_in_force(&status), expected, "{name}: {:?}", status.conditions);
    }
}

/// A line of the Secret that is no key takes nothing from those who have one.
#[test]
fn what_costs_only_what_it_names_keeps_no_server_from_being_ready() {
    let bad_line = "Secret tools/keys: line 2 of data \"ada\" is not a key";
    let ready_of = |pods: Vec<PodFacts>, before: Option<&McpServerStatus>| {
        let mut scene = Scene::of(pods);
        scene.problems = vec![Problem::new(Reason::InvalidKeys, bad_line)];
        scene.flawed = true;
        let scene = match before {
            Some(before) => scene.after(before),
            None => scene,
        };
        let status = scene.status();
        let accepted = of(&status, ConditionType::Accepted);
        assert_eq!((accepted.status.as_str(), accepted.reason.as_str()), ("False", "InvalidKeys"));
        let available = of(&status, ConditionType::Available).message.clone();
        let ready = of(&status, ConditionType::Ready).clone();
        let generation = ready.observed_generation.unwrap();
        (format!("{}/{} {generation}", ready.status, ready.reason), ready.message, available)
    };
    let serves = || vec![said(ready(pod("new")), summary())];
    let but = format!("clients can use the server, but {bad_line}");
    for before in [None, Some(&was_ready())] {
        let (ready, message, _) = ready_of(serves(), before);
        assert_eq!((ready.as_str(), &message), ("True/Ready 4", &but), "before: {}", before.is_some());
    }
    let (ready, _, available) =
        ready_of(vec![said(self::ready(pod("old")), summary()), silent(pod("new"))], Some(&was_ready()));
    assert_eq!(ready, "True/ServingPrevious 3");
    assert_eq!(available, "the previous version serves; the new one (generation 4) starts");
    assert_eq!(ready_of(vec![], None).2, "the pod is being made");
    // What keeps the server from serving is something else.
    let crash =
        ContainerView { ended: ended(1, "Error", "no token"), ..waiting("CrashLoopBackOff", "back-off") };
    let crashes = PodView { server: crash, ..pod("new") };
    for (pods, reason) in [
        (vec![said(crashes, failed(ConnectionReason::ConnectionRefused, "x"))], "ServerExited"),
        (vec![silent(pod("new"))], "Starting"),
        (vec![], "Starting"),
    ] {
        assert_eq!(ready_of(pods, None).0, format!("False/{reason} 4"));
    }
}

#[test]
fn a_manifest_that_cannot_be_used_takes_no_address_away_and_whoever_has_its_name_does() {
    let (inside, outside) = (Some("http://github.tools.svc/mcp"), Some("https://github.example/mcp"));
    let mut scene = Scene::of(vec![said(ready(pod("new")), summary())]);
    scene.address = address(outside);
    let before = scene.status();
    for (address, expected) in [
        (address(None), [inside, None]),
        (Address::Unknown, [inside, outside]),
        (Address::Taken, [None, None]),
        (Address::Unmade, [None, None]),
    ] {
        let mut scene = Scene::of(vec![said(ready(pod("new")), summary())]).after(&before);
        scene.address = address.clone();
        let status = scene.status();
        assert_eq!([status.url.as_deref(), status.public_url.as_deref()], expected, "{address:?}");
    }
}
