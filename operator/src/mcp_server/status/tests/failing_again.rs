//! What fails again and again has one status, whoever looks and whenever.

use super::*;

#[test]
fn a_container_that_fails_again_and_again_has_one_status() {
    let pull = "failed to resolve reference \"example/github:1\": not found";
    let crash = ended(1, "Error", "no token given");
    let circles = [
        vec![
            waiting("ErrImagePull", pull),
            waiting(
                "ImagePullBackOff",
                &format!("Back-off pulling image \"example/github:1\": ErrImagePull: {pull}"),
            ),
            waiting("ErrImagePull", pull),
        ],
        vec![
            ContainerView { state: ContainerState::Terminated, ended: crash.clone(), ..running() },
            ContainerView { ended: crash.clone(), ..waiting("CrashLoopBackOff", "back-off 10s") },
            ContainerView { ended: crash.clone(), ..running() },
            ContainerView { state: ContainerState::Terminated, ended: crash.clone(), ..running() },
            ContainerView { ended: crash.clone(), ..waiting("CrashLoopBackOff", "back-off 20s") },
        ],
    ];
    // The sidecar's words go round too while the server does, and it is silent by turns while it does itself.
    let words = [ConnectionReason::ConnectionRefused, ConnectionReason::ConnectionLost];
    let words = |turn: usize| Report::Answered(Arc::new(failed(words[turn % 2], "words")));
    let silence = |turn: usize| match turn % 2 {
        0 => Report::Pending,
        _ => Report::Unreachable("connection refused".to_owned()),
    };
    type Whose<'a> = (&'a str, fn(ContainerView) -> PodView, &'a dyn Fn(usize) -> Report);
    let whose: [Whose<'_>; 4] = [
        ("the server", |server| PodView { server, ..pod("new") }, &words),
        ("the sidecar", |sidecar| PodView { sidecar, ..pod("new") }, &silence),
        ("a helper", |container| beside(false, container), &|_| Report::Answered(Arc::new(summary()))),
        ("an init container", |container| beside(true, container), &silence),
    ];
    for ((who, around, report), circle) in
        whose.iter().flat_map(|it| circles.iter().map(move |circle| (it, circle)))
    {
        let mut before: Option<McpServerStatus> = None;
        for (turn, container) in circle.iter().enumerate() {
            let facts = PodFacts { pod: Arc::new(around(container.clone())), report: report(turn) };
            let mut scene = Scene::of(vec![facts]);
            scene.second += i64::try_from(turn).unwrap();
            scene.previous.clone_from(&before);
            let status = scene.status();
            if let Some(before) = &before {
                assert_eq!(&status, before, "{who}, turn {turn}");
            }
            before = Some(status);
        }
    }
}

/// A status in the words that an earlier release had around how a server ended.
fn in_earlier_words(status: &McpServerStatus) -> McpServerStatus {
    let mut status = status.clone();
    for condition in &mut status.conditions {
        condition.message = condition.message.replace("the previous version", "the version before");
    }
    status
}

/// Whoever comes after the operator that saw it knows no more than the status, once the kubelet has cleared it away. It may be
/// of a later release.
#[test]
fn how_a_server_ended_outlives_the_operator_that_saw_it() {
    let crash = ContainerView { ended: ended(1, "Error", "no token"), restarted: true, ..running() };
    let forgotten = || ContainerView { ended: None, ..crash.clone() };
    let back_off = || ContainerView { state: waiting("CrashLoopBackOff", "back-off").state, ..forgotten() };
    let pods = |server: ContainerView, old: usize| {
        let new = PodView { server, ..pod("new") };
        let others = (0..old).map(|n| PodView { uid: format!("old-{n}"), ..ready(pod("old")) });
        let others = others.map(|other| said(other, summary()));
        std::iter::once(said(new, failed(ConnectionReason::ConnectionRefused, "x"))).chain(others).collect()
    };
    for (replicas, old) in [(1, 0), (3, 0), (1, 1), (3, 2)] {
        let scene = |server: ContainerView| {
            let mut scene = Scene::of(pods(server, old)).after(&was_ready());
            scene.desired = Some(Desired { replicas, ..desired() });
            scene
        };
        let before = scene(crash.clone()).status();
        for server in [forgotten(), back_off()] {
            for previous in [before.clone(), in_earlier_words(&before)] {
                let after = Scene { previous: Some(previous), ..scene(server.clone()) }.status();
                assert_eq!(after, before, "{replicas} pods, {old} from before, {server:?}");
            }
        }
        // What is said of another manifest is not said of this one, nor of a pod that never ended.
        let mut other = before.clone();
        other.conditions.iter_mut().for_each(|condition| condition.observed_generation = Some(3));
        for (server, previous) in [(forgotten(), &other), (running(), &before)] {
            let status = Scene { previous: Some(previous.clone()), ..scene(server) }.status();
            let available = of(&status, ConditionType::Available);
            assert!(!available.message.contains("no token"), "{available:?}");
        }
    }
}

/// The server's own end is days ago then, and an event of it would have people look in the wrong place.
#[test]
fn how_a_server_ended_once_is_not_said_when_its_sidecar_begins_anew() {
    let connecting = Connection { state: ConnectionState::Connecting, ..summary().connection };
    let starts = Summary { connection: connecting, phase: Phase::Starting, ..summary() };
    let refused = failed(ConnectionReason::ConnectionRefused, "nothing listens");
    let crash = ended(137, "OOMKilled", "").map(|ended| Ended { at: Some(500), ..ended });
    let server = |state: ContainerView| ContainerView { ended: crash.clone(), restarted: true, ..state };
    let ends = || waiting("CrashLoopBackOff", "back-off 10s");
    for (what, report, began, state, reason) in [
        ("it has yet to be greeted", &starts, 990, running(), "Connecting"),
        ("it is greeted, and the kubelet has not heard of it", &summary(), 990, running(), "Starting"),
        ("it does not listen", &refused, 990, running(), "OutOfMemory"),
        ("it does not run", &starts, 990, ends(), "OutOfMemory"),
        ("the sidecar has begun anew before that", &starts, 400, running(), "OutOfMemory"),
        ("it may have, in the same second", &summary(), 500, running(), "OutOfMemory"),
    ] {
        let sidecar = ContainerView { restarted: true, began: Some(began), ..running() };
        let pod = PodView { sidecar, server: server(state), ready_changed: Some(998), ..pod("new") };
        let status = Scene::of(vec![said(pod.clone(), report.clone())]).status();
        assert_eq!(of(&status, ConditionType::Available).reason, reason, "{what}");
        // Nor does it have to stay for long, beside others, until it is believed.
        let waits = trials_end(&[said(ready(pod), report.clone())], 1000).is_some();
        assert_eq!(waits, reason == "OutOfMemory", "{what}");
    }
}
