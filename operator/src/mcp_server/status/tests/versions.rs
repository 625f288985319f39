//! A new version over one that works.

use super::*;

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
        "the version before goes on serving; the new one (generation 4) fails: ServerExited: the server exited with code 1; \
         its last lines: no token"
    );
    let ready = of(&status, ConditionType::Ready);
    assert_eq!((ready.observed_generation, ready.last_transition_time.0.as_second()), (Some(3), 10));
    assert_eq!((status.replicas, status.ready_replicas), (Some(2), Some(1)));
}

#[test]
fn ready_is_the_generation_that_clients_use() {
    let stale = Summary {
        config: ConfigState { digest: "sha256:old".to_owned(), generation: 3, error: None },
        ..summary()
    };
    let refused = Summary {
        config: ConfigState { error: Some("no such field".to_owned()), ..stale.config.clone() },
        ..summary()
    };
    let missing = vec![Problem::new(Reason::SecretNotFound, "Secret tools/token does not exist")];
    let pods = |summary: Summary| vec![said(ready(pod("new")), summary)];
    let old_and_new = || vec![said(ready(pod("old")), summary()), silent(pod("new"))];
    for (name, pods, problems, before, after) in [
        ("in force", pods(summary()), vec![], "True/Ready 4", "True/Ready 4"),
        ("rolling out", old_and_new(), vec![], "True/ServingPrevious 3", "True/ServingPrevious 3"),
        (
            "configuration on its way",
            pods(stale),
            vec![],
            "False/ConfigurationPending 4",
            "True/ServingPrevious 3",
        ),
        (
            "configuration refused",
            pods(refused),
            vec![],
            "False/ConfigurationRefused 4",
            "True/ServingPrevious 3",
        ),
        (
            "not accepted",
            pods(summary()),
            missing.clone(),
            "False/SecretNotFound 4",
            "True/ServingPrevious 3",
        ),
        ("not accepted, no pod", vec![], missing, "False/SecretNotFound 4", "False/SecretNotFound 4"),
        (
            "operator has just started",
            vec![silent(ready(pod("new")))],
            vec![],
            "False/Connecting 4",
            "True/Ready 3",
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
