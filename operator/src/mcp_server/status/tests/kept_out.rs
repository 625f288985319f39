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
fn how_a_server_ended_before_is_not_what_keeps_it_out() {
    let gate = KeptOut::Gate("no such condition".to_owned());
    let server =
        ContainerView { ended: ended(1, "Error", "no database"), restarted: true, ready: true, ..running() };
    let pod = PodView { kept_out: Some(gate), server, ..pod("new") };
    let scene = Scene::of(vec![said(pod, summary())]);
    let conditions = scene.conditions();
    for condition in ["Available=False/ReadinessGate", "Connected=True/Connected"] {
        assert!(conditions.iter().any(|found| found == condition), "{conditions:?}");
    }
}

#[test]
fn a_gate_is_named_beside_pods_that_serve() {
    let gated =
        |template: &str| PodView { kept_out: Some(KeptOut::Gate("no lb".to_owned())), ..pod(template) };
    for (name, replicas, serving, reason) in
        [("another replica", 2, "new", "Serving"), ("the previous version", 1, "old", "RollingOut")]
    {
        let mut scene = Scene::of(vec![
            said(PodView { uid: "other".to_owned(), ..gated("new") }, summary()),
            said(ready(pod(serving)), summary()),
        ]);
        scene.desired = Some(Desired { replicas, ..desired() });
        let status = scene.status();
        let condition = of(&status, ConditionType::Available);
        assert_eq!((&*condition.status, &*condition.reason), ("True", reason), "{name}");
        assert!(
            condition.message.contains("waits: ") && condition.message.contains("no lb"),
            "{}",
            condition.message
        );
    }
}

#[test]
fn pods_that_make_way_for_others_are_said_to() {
    let before = || PodView { ending: true, ..pod("old") };
    let same = || PodView { ending: true, ..pod("new") };
    let lost = || PodView { kept_out: Some(KeptOut::Node), ..before() };
    let evicted = |template| PodView { failed: Some("Evicted".to_owned()), ..pod(template) };
    let refused = || Some(deployment_refused("exceeded quota"));
    for (name, recreates, pods, deployment, reason, words) in [
        (
            "the one before ends",
            true,
            vec![before()],
            None,
            "Starting",
            "the pods of the previous version end first",
        ),
        (
            "its node is gone",
            true,
            vec![lost()],
            None,
            "NodeNotReady",
            "as spec.strategy says, the new version waits",
        ),
        ("it has gone", true, vec![], None, "Starting", "the pod is being made"),
        ("the new one is there", true, vec![before(), pod("new")], None, "Starting", "the pod starts"),
        ("both were to be there", false, vec![before()], None, "Starting", "the pod is being made"),
        ("one of the same version ends", true, vec![same()], None, "Starting", "the pod is being made"),
        ("and another is there", true, vec![same(), pod("new")], None, "Starting", "the pod starts"),
        (
            "one that failed keeps nobody",
            true,
            vec![evicted("old")],
            refused(),
            "PodRejected",
            "the API server refuses",
        ),
        (
            "nor one of the same version",
            true,
            vec![evicted("new")],
            refused(),
            "PodRejected",
            "the API server refuses",
        ),
    ] {
        let mut scene = Scene::of(pods.into_iter().map(silent).collect());
        scene.desired = Some(Desired { recreates, ..desired() });
        scene.deployment = deployment;
        let status = scene.status();
        let condition = of(&status, ConditionType::Available);
        assert_eq!((&*condition.status, &*condition.reason), ("False", reason), "{name}");
        assert!(condition.message.starts_with(words), "{name}: {}", condition.message);
    }
}
