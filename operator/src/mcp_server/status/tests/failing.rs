//! Every way to fail.

use longshore_sidecar_client::ANSWERED;

use super::*;

#[test]
fn each_way_to_fail_has_a_reason_of_its_own() {
    let back_off = "back-off 10s restarting failed container";
    let pull = "failed to pull and unpack image \"example/github:1\": not found";
    let runtime = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create \
                   failed: unable to start container process: error during container init: exec: \"/srv\": stat /srv: no \
                   such file or directory: unknown";
    let denied = "failed to create containerd task: OCI runtime create failed: exec: \"/srv\": permission denied: unknown";
    let profile = "failed to create containerd container: cannot load seccomp profile \"/seccomp/x.json\": open \
                   /seccomp/x.json: no such file or directory";
    let confined = "failed to create containerd task: OCI runtime create failed: error during container init: unable to \
                    apply apparmor profile: write /proc/self/attr/apparmor/exec: no such file or directory: unknown";
    let server = |container: ContainerView| PodView { server: container, ..pod("new") };
    let with_end = |container: ContainerView, end: Option<Ended>| ContainerView { ended: end, ..container };
    for (name, facts, reason, words) in [
        (
            "nothing known yet",
            silent(PodView {
                server: ContainerView::default(),
                sidecar: ContainerView::default(),
                ..pod("new")
            }),
            "Starting",
            "the pod starts",
        ),
        (
            "containers are made",
            silent(server(waiting("ContainerCreating", ""))),
            "Starting",
            "the pod starts",
        ),
        (
            "the server's image is on its way",
            said(
                server(waiting("ContainerCreating", "")),
                failed(ConnectionReason::ConnectionRefused, "nothing listens on port 3000"),
            ),
            "Starting",
            "the pod starts",
        ),
        (
            "the sidecar's image is on its way",
            PodFacts {
                pod: Arc::new(PodView { sidecar: waiting("ContainerCreating", ""), ..pod("new") }),
                report: Report::Unreachable("connection refused".to_owned()),
            },
            "Starting",
            "the pod starts",
        ),
        (
            "no node",
            silent(PodView { unschedulable: Some("0/1 nodes are available".to_owned()), ..pod("new") }),
            "Unschedulable",
            "0/1 nodes",
        ),
        (
            "evicted",
            silent(PodView { failed: Some("Evicted: low on memory".to_owned()), ..pod("new") }),
            "PodFailed",
            "Evicted",
        ),
        ("image, first", silent(server(waiting("ErrImagePull", pull))), "ImagePullFailed", "not found"),
        (
            "image, later",
            silent(server(waiting(
                "ImagePullBackOff",
                &format!("Back-off pulling image \"example/github:1\": ErrImagePull: {pull}"),
            ))),
            "ImagePullFailed",
            "not found",
        ),
        (
            "image, no cause",
            silent(server(waiting("ImagePullBackOff", "Back-off pulling image \"example/github:1\""))),
            "ImagePullFailed",
            "example/github:1",
        ),
        (
            "image name",
            silent(server(waiting("InvalidImageName", "couldn't parse image name"))),
            "ImagePullFailed",
            "parse",
        ),
        (
            "image never",
            silent(server(waiting(
                "ErrImageNeverPull",
                "Container image is not present with pull policy of Never",
            ))),
            "ImagePullFailed",
            "Never",
        ),
        (
            "config",
            silent(server(waiting("CreateContainerConfigError", "secret \"x\" not found"))),
            "ContainerRefused",
            "secret \"x\"",
        ),
        (
            "no such command",
            silent(with_server_end(
                server(waiting("RunContainerError", runtime)),
                ended(128, "StartError", runtime),
            )),
            "CommandNotFound",
            "exec: \"/srv\": stat /srv: no such file or directory",
        ),
        (
            "no such command, later",
            silent(server(with_end(
                waiting("CrashLoopBackOff", back_off),
                ended(128, "StartError", runtime),
            ))),
            "CommandNotFound",
            "exec: \"/srv\": stat /srv: no such file or directory",
        ),
        (
            "not executable",
            silent(server(with_end(waiting("CrashLoopBackOff", back_off), ended(128, "StartError", denied)))),
            "CommandNotExecutable",
            "permission denied",
        ),
        (
            "no such profile",
            silent(server(waiting("CreateContainerError", profile))),
            "ContainerRefused",
            "the container cannot be started: failed to create containerd container: cannot load seccomp profile",
        ),
        (
            "a profile that is not loaded",
            silent(server(waiting("CreateContainerError", confined))),
            "ContainerRefused",
            "unable to apply apparmor profile: write /proc/self/attr/apparmor/exec: no such file or directory",
        ),
        (
            "exits",
            silent(server(with_end(
                ContainerView { state: ContainerState::Terminated, ..running() },
                ended(2, "Error", "no token"),
            ))),
            "ServerExited",
            "exited with code 2; its last lines: no token",
        ),
        (
            "exits and waits",
            silent(server(with_end(waiting("CrashLoopBackOff", back_off), ended(2, "Error", "no token")))),
            "ServerExited",
            "exited with code 2; its last lines: no token",
        ),
        (
            "exits and runs again",
            silent(server(with_end(running(), ended(2, "Error", "no token")))),
            "ServerExited",
            "exited with code 2; its last lines: no token",
        ),
        (
            "exits with 0",
            silent(server(with_end(running(), ended(0, "Completed", "")))),
            "ServerExited",
            "exited with code 0, which a server must not do while it is wanted, unless its liveness or startup probe \
             fails; `kubectl logs github-new -c server --previous` may say why",
        ),
        (
            "a hook of its own fails",
            silent(server(ContainerView {
                hook: Some("no such host".to_owned()),
                ..with_end(waiting("CrashLoopBackOff", "back-off"), ended(137, "Error", ""))
            })),
            "ServerExited",
            "its postStart hook of spec.pod.overrides fails: no such host",
        ),
        (
            "told to end",
            silent(server(with_end(running(), ended(143, "Error", "")))),
            "ServerExited",
            "was ended by signal 15, as where its liveness or startup probe fails, if it has one; `kubectl logs",
        ),
        (
            "killed by a signal",
            silent(server(with_end(running(), ended(139, "Error", "")))),
            "ServerExited",
            "signal 11",
        ),
        (
            "out of memory",
            silent(server(with_end(running(), ended(137, "OOMKilled", "")))),
            "OutOfMemory",
            "raise spec.pod.resources.limits.memory; if nothing limits it, the node had no more",
        ),
        (
            "sidecar image",
            silent(PodView { sidecar: waiting("ErrImagePull", pull), ..pod("new") }),
            "SidecarFailed",
            "not found",
        ),
        (
            "sidecar exits",
            silent(PodView {
                sidecar: with_end(waiting("CrashLoopBackOff", back_off), ended(1, "Error", "port taken")),
                ..pod("new")
            }),
            "SidecarFailed",
            "port taken",
        ),
        (
            "sidecar was told to end",
            silent(PodView { sidecar: with_end(running(), ended(0, "Completed", "")), ..pod("new") }),
            "SidecarFailed",
            "the sidecar exited with code 0, as it does on SIGTERM, which a failing liveness probe brings about: let the \
             kubelet reach port 15381 of the pod; `kubectl describe pod github-new` shows the probe's error",
        ),
        (
            "another container exits with 0",
            silent(beside(false, with_end(waiting("CrashLoopBackOff", back_off), ended(0, "Completed", "")))),
            "ContainerFailed",
            "the container other: it exited with code 0; `kubectl logs github-new -c other --previous` may say why",
        ),
        (
            "sidecar runs again",
            PodFacts {
                pod: Arc::new(PodView {
                    sidecar: with_end(running(), ended(1, "Error", "port taken")),
                    ..pod("new")
                }),
                report: Report::Unreachable("connection refused".to_owned()),
            },
            "SidecarFailed",
            "the sidecar exited with code 1; its last lines: port taken",
        ),
        (
            "sidecar ended long ago, and says something today",
            said(
                PodView { sidecar: with_end(running(), ended(1, "Error", "port taken")), ..pod("new") },
                failed(ConnectionReason::NotMcp, "HTML"),
            ),
            "NotMcp",
            "HTML",
        ),
        (
            "sidecar ended long ago, nobody hears it today, and its server ends",
            PodFacts {
                pod: Arc::new(PodView {
                    sidecar: ContainerView {
                        ready: true,
                        ..with_end(running(), ended(137, "OOMKilled", ""))
                    },
                    server: with_end(waiting("CrashLoopBackOff", back_off), ended(2, "Error", "no token")),
                    ..pod("new")
                }),
                report: Report::Unreachable("timeout".to_owned()),
            },
            "ServerExited",
            "no token",
        ),
        (
            "sidecar ended long ago, and nobody hears it today",
            PodFacts {
                pod: Arc::new(PodView {
                    sidecar: ContainerView {
                        ready: true,
                        ..with_end(running(), ended(137, "OOMKilled", ""))
                    },
                    ..pod("new")
                }),
                report: Report::Unreachable("timeout".to_owned()),
            },
            "SidecarUnreachable",
            "timeout",
        ),
        (
            "sidecar out of memory",
            silent(PodView {
                sidecar: with_end(waiting("CrashLoopBackOff", back_off), ended(137, "OOMKilled", "")),
                ..pod("new")
            }),
            "SidecarFailed",
            "the sidecar was killed because it used more memory than its limit allows; raise spec.sidecar",
        ),
        (
            "sidecar whose hook failed",
            silent(PodView {
                sidecar: ContainerView {
                    hook: Some("the sidecar is not ready after 60 seconds: no configuration".to_owned()),
                    ..with_end(waiting("CrashLoopBackOff", back_off), ended(0, "Completed", ""))
                },
                ..pod("new")
            }),
            "SidecarFailed",
            "the sidecar does not start: the sidecar is not ready after 60 seconds: no configuration",
        ),
        (
            "nothing listens",
            said(pod("new"), failed(ConnectionReason::ConnectionRefused, "nothing listens on port 3000")),
            "ConnectionRefused",
            "nothing listens",
        ),
        (
            "never answers",
            said(pod("new"), failed(ConnectionReason::InitializeTimeout, "no answer")),
            "InitializeTimeout",
            "no answer",
        ),
        (
            "refuses",
            said(pod("new"), failed(ConnectionReason::InitializeRefused, "HTTP 500")),
            "InitializeRefused",
            "HTTP 500",
        ),
        ("not MCP", said(pod("new"), failed(ConnectionReason::NotMcp, "HTML")), "NotMcp", "HTML"),
        (
            "revision",
            said(pod("new"), failed(ConnectionReason::UnsupportedRevision, "1999")),
            "UnsupportedRevision",
            "1999; if spec.transport.protocol says which one it is to speak, correct that or leave it out",
        ),
        (
            "lists",
            said(pod("new"), failed(ConnectionReason::ListFailed, "tools/list")),
            "ListFailed",
            "tools/list",
        ),
        (
            "lost",
            said(pod("new"), failed(ConnectionReason::ConnectionLost, "gone")),
            "ConnectionLost",
            "gone; `kubectl logs github-new -c server` may say why",
        ),
        (
            "back, and has not stayed",
            said(pod("new"), on_trial("gone")),
            "ConnectionLost",
            "gone; `kubectl logs github-new -c server` may",
        ),
        (
            "ended long ago, and answers something else today",
            said(
                with_server_end(pod("new"), ended(1, "Error", "cannot connect")),
                failed(ConnectionReason::NotMcp, "HTML"),
            ),
            "NotMcp",
            "HTML",
        ),
        (
            "ended, and nothing listens yet",
            said(
                with_server_end(pod("new"), ended(1, "Error", "cannot connect")),
                failed(ConnectionReason::ConnectionRefused, "nothing listens"),
            ),
            "ServerExited",
            "cannot connect",
        ),
        (
            "an init container exits",
            silent(beside(
                true,
                with_end(waiting("CrashLoopBackOff", back_off), ended(3, "Error", "no schema")),
            )),
            "ContainerFailed",
            "the init container other: it exited with code 3; its last lines: no schema",
        ),
        (
            "an init container exits and runs again",
            silent(beside(true, with_end(running(), ended(3, "Error", "no schema")))),
            "ContainerFailed",
            "the init container other: it exited with code 3",
        ),
        (
            "an init container is done",
            silent(beside(
                true,
                ContainerView {
                    state: ContainerState::Terminated,
                    ended: ended(0, "Completed", ""),
                    ..running()
                },
            )),
            "Starting",
            "the pod starts",
        ),
        (
            "another container is out of memory",
            silent(beside(
                true,
                with_end(waiting("CrashLoopBackOff", back_off), ended(137, "OOMKilled", "")),
            )),
            "ContainerFailed",
            "the init container other: it was killed because memory ran out: raise its limit; if it has none, the node",
        ),
        (
            "another container ended long ago, and nothing listens today",
            said(
                beside(
                    false,
                    ContainerView { ready: true, ..with_end(running(), ended(1, "Error", "lost")) },
                ),
                failed(ConnectionReason::ConnectionRefused, "nothing listens"),
            ),
            "ConnectionRefused",
            "nothing listens",
        ),
        (
            "the image of another container",
            said(beside(false, waiting("ImagePullBackOff", pull)), summary()),
            "ImagePullFailed",
            "the container other: the image example/github:1 cannot be pulled",
        ),
        (
            "unreachable",
            PodFacts { pod: Arc::new(pod("new")), report: Report::Unreachable("timeout".to_owned()) },
            "SidecarUnreachable",
            "timeout; let Longshore's namespace reach port 15381 of the pod",
        ),
        (
            "reached without a configuration",
            PodFacts {
                pod: Arc::new(pod("new")),
                report: Report::Unreachable(format!("{ANSWERED}503 Service Unavailable")),
            },
            "SidecarUnreachable",
            "503 Service Unavailable; it may have no configuration",
        ),
        (
            "reached with a token that it does not believe",
            PodFacts {
                pod: Arc::new(pod("new")),
                report: Report::Unreachable(format!("{ANSWERED}401 Unauthorized")),
            },
            "SidecarUnreachable",
            "401 Unauthorized; the clock of the pod's node may be wrong",
        ),
        (
            "reached with an account that it does not know",
            PodFacts {
                pod: Arc::new(pod("new")),
                report: Report::Unreachable(format!("{ANSWERED}403 Forbidden")),
            },
            "SidecarUnreachable",
            "403 Forbidden; a mesh may refuse it",
        ),
    ] {
        let status = Scene::of(vec![facts]).status();
        for type_ in [ConditionType::Available, ConditionType::Ready] {
            let condition = of(&status, type_);
            assert_eq!(
                (condition.status.as_str(), condition.reason.as_str()),
                ("False", reason),
                "{name}: {condition:?}"
            );
            assert!(condition.message.contains(words), "{name}: {}", condition.message);
        }
        assert_eq!(of(&status, ConditionType::Accepted).status, "True", "{name}");
        // A sidecar that cannot be asked is there all the same.
        let isolated = of(&status, ConditionType::Isolated);
        assert_eq!(
            isolated.reason == "SidecarUnreachable",
            reason == "SidecarUnreachable",
            "{name}: {isolated:?}"
        );
        assert!(
            isolated.reason != "SidecarUnreachable" || isolated.message.contains(words),
            "{name}: {isolated:?}"
        );
        // A server can answer while something beside it fails.
        let answers = reason == "ImagePullFailed" && words.starts_with("the container");
        assert_eq!(of(&status, ConditionType::Connected).status == "True", answers, "{name}");
    }
}

fn with_server_end(pod: PodView, end: Option<Ended>) -> PodView {
    PodView { server: ContainerView { ended: end, ..pod.server }, ..pod }
}

#[test]
fn what_the_api_server_says_of_pods_it_refuses_is_shown() {
    let mut scene = Scene::of(vec![]);
    assert_eq!(of(&scene.status(), ConditionType::Available).reason, "Starting");
    scene.deployment = Some(deployment_refused("exceeded quota: pods"));
    let status = scene.status();
    let available = of(&status, ConditionType::Available);
    assert_eq!(available.reason, "PodRejected");
    assert!(available.message.contains("exceeded quota"));
}

/// The watch may be behind what was just applied, which may be what helps; and the pods of a change that is held back are
/// not even tried.
#[test]
fn what_is_said_of_pods_of_before_is_not_said_of_those_of_a_change() {
    let refused = Some(DeploymentView {
        template: Some("old".to_owned()),
        ..deployment_refused("exceeded quota: pods")
    });
    let old = || vec![said(ready(pod("old")), summary())];
    let missing = || vec![Problem::new(Reason::SecretNotFound, "Secret tools/token does not exist")];
    for (why, pods, problems, expected) in [
        ("nothing serves", vec![], vec![], "False/Starting"),
        ("those of before serve", old(), vec![], "True/RollingOut"),
        ("those of before serve, and no others are made", old(), missing(), "True/Serving"),
        ("those of before are wanted back", vec![], missing(), "False/PodRejected"),
    ] {
        let scene = Scene { deployment: refused.clone(), problems, ..Scene::of(pods) };
        let status = scene.status();
        let available = of(&status, ConditionType::Available);
        assert_eq!(format!("{}/{}", available.status, available.reason), expected, "{why}");
    }
}
