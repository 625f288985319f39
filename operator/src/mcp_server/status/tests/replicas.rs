//! Servers of several pods, and of none.

use super::*;

fn starting(pod: PodView) -> PodFacts {
    silent(PodView { ready: false, sidecar: ContainerView::default(), ..pod })
}

fn crash(pod: PodView) -> PodFacts {
    let server = ContainerView { ended: ended(1, "Error", "no token"), ..waiting("CrashLoopBackOff", "x") };
    silent(PodView { ready: false, server, ..pod })
}

/// What people read of a server of three pods.
#[test]
fn several_pods_are_said_as_numbers() {
    let new = |n: u32| PodView { uid: format!("new-{n}"), ..ready(pod("new")) };
    let old = |n: u32| PodView { uid: format!("old-{n}"), ..ready(pod("old")) };
    let ended_once = |pod: PodView| {
        let server = ContainerView { ended: ended(137, "OOMKilled", ""), ..running() };
        PodView { server, ..pod }
    };
    let well = |pod: PodView| said(pod, summary());
    let lost = |pod: PodView| said(pod, failed(ConnectionReason::ConnectionLost, "gone"));
    let behind = |pod: PodView| {
        let config =
            ConfigState { digest: "sha256:old".to_owned(), generation: 3, error: None, callers: None };
        said(pod, Summary { config, ..summary() })
    };
    for (name, pods, available, connected, ready) in [
        (
            "all serve",
            vec![well(new(1)), well(new(2)), well(new(3))],
            "True/Serving: all 3 pods serve",
            "True/Connected: the server answers",
            "True/Ready 4: clients can use the server",
        ),
        (
            "one starts",
            vec![well(new(1)), well(new(2)), starting(new(3))],
            "True/Serving: 2 of 3 pods serve, the others start",
            "True/Connected: the server answers",
            "True/Ready 4: clients can use the server",
        ),
        (
            "one fails",
            vec![crash(new(1)), well(new(2)), well(new(3))],
            "True/Degraded: 2 of 3 pods serve, another fails: ServerExited: the server exited with code 1",
            "True/Connected: the server answers",
            "True/Ready 4: clients can use the server, but 2 of 3 pods serve",
        ),
        (
            "one starts, and those that serve ended once",
            vec![well(ended_once(new(1))), well(ended_once(new(2)))],
            "True/Serving: 2 of 3 pods serve, the others start",
            "True/Connected: the server answers",
            "True/Ready 4: clients can use the server",
        ),
        (
            "a rollout is half way, and a new pod ended once",
            vec![well(ended_once(new(1))), well(old(1)), well(old(2))],
            "True/RollingOut: 1 of 3 pods are of the new version (generation 4)",
            "True/Connected: the server answers",
            "True/ServingPrevious 3: clients still use pods from before the last change, with the new auth, access and limits: ",
        ),
        (
            "one has lost its server",
            vec![well(new(1)), well(new(2)), lost(new(3))],
            "True/Serving: all 3 pods serve",
            "True/Degraded: the server answers, speaks 2026-07-28, 2025-11-25 and has 2 tools; but 1 of the 3 pods that serve cannot \
             reach theirs: ConnectionLost: gone",
            "True/Ready 4: clients can use the server, but the server answers",
        ),
        (
            "all have",
            vec![lost(new(1)), lost(new(2)), lost(new(3))],
            "True/Serving: all 3 pods serve",
            "False/ConnectionLost: gone",
            "False/ConnectionLost 3: gone",
        ),
        (
            "all fail",
            vec![crash(new(1)), crash(new(2)), crash(new(3))],
            "False/ServerExited: none of the 3 pods serves: the server exited",
            "False/ServerExited: the server exited",
            "False/ServerExited 3: none of the 3 pods serves",
        ),
        (
            "a rollout is half way",
            vec![well(new(1)), well(old(1)), well(old(2)), starting(new(2))],
            "True/RollingOut: 1 of 3 pods are of the new version (generation 4)",
            "True/Connected: the server answers",
            "True/ServingPrevious 3: clients still use pods from before the last change, with the new auth, access and limits: ",
        ),
        (
            "a rollout fails half way",
            vec![well(new(1)), well(old(1)), well(old(2)), crash(new(2))],
            "True/RolloutFailing: the previous version goes on serving beside the new one (generation 4), of which a pod \
             fails: ServerExited",
            "True/Connected: the server answers",
            "True/ServingPrevious 3: clients still use pods from before the last change, with the new auth, access and limits: ",
        ),
        (
            "a rollout is half way, and the new pod has lost its server",
            vec![lost(new(1)), well(old(1)), well(old(2))],
            "True/RollingOut: 1 of 3 pods are of the new version (generation 4)",
            "True/Degraded: the server answers, speaks 2026-07-28, 2025-11-25 and has 2 tools; but 1 of the 3 pods that serve cannot \
             reach theirs: ConnectionLost: gone",
            "True/ServingPrevious 3: clients still use pods from before the last change, with the new auth, access and limits: ",
        ),
        (
            "one has yet to load its configuration",
            vec![well(new(1)), behind(new(2)), well(new(3))],
            "True/Serving: all 3 pods serve",
            "True/Connected: the server answers",
            "True/ServingPrevious 3: clients use the server as it was before the last change: the new configuration is on \
             its way to 1 of 3 sidecars",
        ),
    ] {
        let mut scene = Scene::of(pods).after(&was_ready());
        scene.desired = Some(Desired { replicas: 3, ..desired() });
        let status = scene.status();
        let ready_condition = of(&status, ConditionType::Ready);
        for (type_, expected) in
            [(ConditionType::Available, available), (ConditionType::Connected, connected)]
        {
            let found = of(&status, type_);
            let found = format!("{}/{}: {}", found.status, found.reason, found.message);
            assert!(found.starts_with(expected), "{name}: {found}");
        }
        let found = format!(
            "{}/{} {}: {}",
            ready_condition.status,
            ready_condition.reason,
            ready_condition.observed_generation.unwrap(),
            ready_condition.message
        );
        assert!(found.starts_with(ready), "{name}: {found}");
    }
}

/// All of the pods that it makes are of one version.
#[test]
fn a_restart_of_the_deployment_that_fails_is_said() {
    let pod_of = |uid: &str| PodView {
        uid: uid.to_owned(),
        created: 10,
        controller: Some("restarted".to_owned()),
        ..ready(pod("new"))
    };
    let other = || pod_of("z");
    let before = || PodView { created: 0, controller: Some("of before".to_owned()), ..pod_of("z") };
    let of_restart = "another of the same version, as a restart of the Deployment makes it, fails: ";
    let exited = "ServerExited: the server exited with code 1; its last lines: no token";
    let quota = "PodRejected: the API server refuses the pod: exceeded quota: pods";
    for (name, replicas, other, refused, expected) in [
        ("it fails", 1, Some(crash(other())), None, Err(format!("the pod serves, {of_restart}{exited}"))),
        (
            "one of three",
            3,
            Some(crash(other())),
            None,
            Err(format!("all 3 pods serve, {of_restart}{exited}")),
        ),
        (
            "it is refused",
            1,
            None,
            Some("exceeded quota: pods"),
            Err(format!("the pod serves, {of_restart}{quota}")),
        ),
        ("it starts", 1, Some(starting(other())), None, Ok("the pod serves")),
        ("it serves", 1, Some(said(other(), summary())), None, Ok("the pod serves")),
        (
            "one of before ends",
            1,
            Some(crash(PodView { ending: true, ..other() })),
            None,
            Ok("the pod serves"),
        ),
        ("one of three starts", 3, Some(starting(other())), None, Ok("all 3 pods serve")),
        (
            "what it makes serves, and the one of before fails",
            1,
            Some(crash(before())),
            None,
            Ok("the pod serves"),
        ),
        ("what it makes of three serves", 3, Some(crash(before())), None, Ok("all 3 pods serve")),
        (
            "it is refused later",
            1,
            Some(crash(before())),
            Some("exceeded quota: pods"),
            Err(format!("the pod serves, {of_restart}{quota}")),
        ),
        (
            "one that it made first fails",
            3,
            Some(crash(PodView { controller: Some("restarted".to_owned()), ..before() })),
            None,
            Err(format!("all 3 pods serve, {of_restart}{exited}")),
        ),
    ] {
        let serving = (0..replicas).map(|n| said(pod_of(&format!("a{n}")), summary()));
        let mut scene = Scene::of(serving.chain(other).collect()).after(&was_ready());
        scene.desired = Some(Desired { replicas, ..desired() });
        scene.deployment = refused.map(deployment_refused);
        let status = scene.status();
        let [available, ready] = [ConditionType::Available, ConditionType::Ready].map(|it| of(&status, it));
        assert_eq!((&*available.status, &*ready.status, &*ready.reason), ("True", "True", "Ready"), "{name}");
        let (reason, message, ready_message) = match expected {
            Ok(message) => ("Serving", message.to_owned(), "clients can use the server".to_owned()),
            Err(message) => {
                ("Degraded", message.clone(), format!("clients can use the server, but {message}"))
            }
        };
        assert_eq!((&*available.reason, &*available.message), (reason, &*message), "{name}");
        assert_eq!(ready.message, ready_message, "{name}");
    }
}

#[test]
fn a_server_without_pods_is_said_to_be_so() {
    let ending = PodView { ending: true, ..pod("new") };
    let ended = PodView { failed: Some("it ended".to_owned()), ..ending.clone() };
    for (name, pods) in [
        ("none is there", vec![]),
        ("the last one drains", vec![said(ending, summary())]),
        ("the last one has ended", vec![silent(ended)]),
    ] {
        let mut scene = Scene::of(pods);
        scene.desired = Some(Desired { replicas: 0, ..desired() });
        assert_eq!(
            scene.conditions(),
            [
                "Accepted=True/Accepted",
                "Available=False/ScaledToZero",
                "Connected=Unknown/NoPod",
                "Isolated=Unknown/NoPod",
                "Published=True/Published",
                "Ready=False/ScaledToZero",
            ],
            "{name}"
        );
        assert_eq!((scene.status().replicas, scene.status().ready_replicas), (Some(0), Some(0)), "{name}");
    }
}

/// Also while the manifest names what is not there: nobody needs that to stop a server.
#[test]
fn a_server_that_is_stopped_is_said_to_be_so() {
    for problems in [vec![], vec![Problem::new(Reason::SecretNotFound, "Secret tools/token does not exist")]]
    {
        for template in ["new", "old"] {
            let mut scene = Scene::of(vec![said(ready(pod(template)), summary())]).after(&was_ready());
            scene.desired = Some(Desired { replicas: 0, ..desired() });
            scene.problems.clone_from(&problems);
            let status = scene.status();
            let available = of(&status, ConditionType::Available);
            assert_eq!((available.status.as_str(), available.reason.as_str()), ("True", "Serving"));
            assert_eq!(available.message, "spec.replicas is 0: what still serves is about to end");
            scene.pods.clear();
            let status = scene.after(&status).status();
            let available = of(&status, ConditionType::Available);
            assert_eq!((available.status.as_str(), available.reason.as_str()), ("False", "ScaledToZero"));
        }
    }
}

#[test]
fn a_port_that_one_of_several_pods_shows_is_seen() {
    let exposed = vec![ExposedSocket { address: "0.0.0.0".to_owned(), port: 3000, uid: None }];
    let pod_of = |uid: &str| PodView { uid: uid.to_owned(), ..ready(pod("new")) };
    let scene =
        Scene::of(vec![said(pod_of("a"), Summary { exposed, ..summary() }), said(pod_of("b"), summary())]);
    assert_eq!(of(&scene.status(), ConditionType::Isolated).reason, "ListensBeyondLoopback");
}

#[test]
fn a_pod_that_serves_hides_no_other_that_is_refused() {
    let serving = PodView { uid: "a".to_owned(), ..ready(pod("new")) };
    let mut scene = Scene::of(vec![said(serving, summary())]);
    scene.desired = Some(Desired { replicas: 3, ..desired() });
    scene.deployment = Some(deployment_refused("exceeded quota: pods"));
    let status = scene.status();
    let available = of(&status, ConditionType::Available);
    assert_eq!((available.status.as_str(), available.reason.as_str()), ("True", "Degraded"));
    assert_eq!(
        available.message,
        "1 of 3 pods serve, another fails: PodRejected: the API server refuses the pod: exceeded quota: pods"
    );
}
