//! Pods that could serve, or are gone, and what keeps them from the Service lies outside of their containers.

use super::*;

#[test]
fn what_keeps_a_pod_out_is_told_from_a_server_that_fails() {
    let gate =
        KeptOut::Gate("corresponding condition of pod readiness gate \"lb\" does not exist.".to_owned());
    for (name, kept_out, summary, [available, connected], words) in [
        (
            "a gate that is not met",
            gate.clone(),
            summary(),
            ["Available=False/ReadinessGate", "Connected=True/Connected"],
            "readiness gate \"lb\"",
        ),
        (
            "a server that fails has more to say than a gate",
            gate,
            failed(ConnectionReason::ConnectionRefused, "nothing listens on port 3000"),
            ["Available=False/ConnectionRefused", "Connected=False/ConnectionRefused"],
            "nothing listens",
        ),
        (
            "a node that is gone, whatever its sidecar said last",
            KeptOut::Node,
            summary(),
            ["Available=False/NodeNotReady", "Connected=False/NodeNotReady"],
            "`kubectl get nodes`",
        ),
    ] {
        let scene = Scene::of(vec![said(PodView { kept_out: Some(kept_out), ..pod("new") }, summary)]);
        let conditions = scene.conditions();
        for condition in [available, connected] {
            assert!(conditions.iter().any(|found| found == condition), "{name}: {conditions:?}");
        }
        let status = scene.status();
        let message = &of(&status, ConditionType::Available).message;
        assert!(message.contains(words), "{name}: {message}");
    }
}

#[test]
fn pods_that_make_way_for_others_are_said_to() {
    let before = |ending| silent(PodView { ending, ..pod("old") });
    for (name, recreates, pods, words) in [
        ("the one before ends", true, vec![before(true)], "the pods of the version before end first"),
        ("it has gone", true, vec![], "the pod is being made"),
        ("the new one is there", true, vec![before(true), silent(pod("new"))], "the pod starts"),
        ("both were to be there", false, vec![before(true)], "the pod starts"),
    ] {
        let mut scene = Scene::of(pods);
        scene.desired = Some(Desired { recreates, ..desired() });
        let status = scene.status();
        let condition = of(&status, ConditionType::Available);
        assert_eq!((&*condition.status, &*condition.reason), ("False", "Starting"), "{name}");
        assert!(condition.message.starts_with(words), "{name}: {}", condition.message);
    }
}
