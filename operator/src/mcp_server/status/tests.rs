//! From pods and their sidecars' words to conditions: tables of what people would see.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use longshore_sidecar_config::inventory::{ConfigState, Connection, ConnectionReason, ExposedSocket};

use super::*;
use crate::inventory::{ServerInfo as SaidInfo, ServerSummary, ToolsSummary};
use crate::view::{ContainerState, ContainerView, Ended};

const UPSTREAM: &str = "{upstream}";
const WANTED: &str = "sha256:wanted";

fn desired() -> Desired {
    Desired {
        template: "new".to_owned(),
        configs: BTreeMap::from([(UPSTREAM.to_owned(), WANTED.to_owned())]),
        replicas: 1,
    }
}

fn pod(template: &str) -> PodView {
    PodView {
        name: format!("github-{template}"),
        uid: format!("uid-{template}"),
        template: Some(template.to_owned()),
        upstream: Some(UPSTREAM.to_owned()),
        sidecar: running(),
        server: running(),
        ..PodView::default()
    }
}

fn running() -> ContainerView {
    ContainerView { state: ContainerState::Running, ended: None, image: "example/github:1".to_owned() }
}

fn waiting(reason: &str, message: &str) -> ContainerView {
    let state = ContainerState::Waiting { reason: reason.to_owned(), message: message.to_owned() };
    ContainerView { state, ..running() }
}

fn ended(code: i32, reason: &str, message: &str) -> Option<Ended> {
    Some(Ended { code, reason: reason.to_owned(), message: message.to_owned() })
}

fn summary() -> Summary {
    Summary {
        config: ConfigState { digest: WANTED.to_owned(), generation: 4, error: None },
        phase: Phase::Serving,
        connection: Connection {
            state: ConnectionState::Connected,
            since: "2026-11-21T10:00:00Z".to_owned(),
            reason: None,
            message: String::new(),
        },
        server: Some(ServerSummary {
            info: SaidInfo { name: "octo".to_owned(), version: "1.2".to_owned() },
            protocol_version: "2025-11-25".to_owned(),
            protocol_versions: vec!["2026-07-28".to_owned(), "2025-11-25".to_owned()],
            capabilities: vec!["tools".to_owned()],
        }),
        tools: ToolsSummary { count: 2, names: vec!["get".to_owned(), "list".to_owned()] },
        tools_digest: "sha256:tools".to_owned(),
        noise: None,
        exposed: vec![],
    }
}

fn failed(reason: ConnectionReason, message: &str) -> Summary {
    let connection = Connection {
        state: ConnectionState::Failed,
        reason: Some(reason),
        message: message.to_owned(),
        ..summary().connection
    };
    Summary { connection, phase: Phase::Starting, ..summary() }
}

fn said(pod: PodView, summary: Summary) -> PodFacts {
    PodFacts { pod: Arc::new(pod), report: Report::Answered(Arc::new(summary)) }
}

fn silent(pod: PodView) -> PodFacts {
    PodFacts { pod: Arc::new(pod), report: Report::Pending }
}

fn ready(pod: PodView) -> PodView {
    PodView { ready: true, ..pod }
}

/// The scene that each case changes: generation 4, nothing wrong, no pod, seen at second 1000.
struct Scene {
    previous: Option<McpServerStatus>,
    problems: Vec<Problem>,
    desired: Option<Desired>,
    pods: Vec<PodFacts>,
    deployment: Option<DeploymentView>,
    publication: Publication,
    second: i64,
}

impl Scene {
    fn of(pods: Vec<PodFacts>) -> Self {
        Self {
            previous: None,
            problems: vec![],
            desired: Some(desired()),
            pods,
            deployment: None,
            publication: Publication::Published,
            second: 1000,
        }
    }

    fn after(self, previous: &McpServerStatus) -> Self {
        Self { previous: Some(previous.clone()), second: self.second + 10, ..self }
    }

    fn status(&self) -> McpServerStatus {
        status(&Observation {
            generation: 4,
            previous: self.previous.as_ref(),
            problems: &self.problems,
            desired: self.desired.as_ref(),
            pods: &self.pods,
            deployment: self.deployment.as_ref(),
            url: Some("http://github.tools.svc/mcp".to_owned()),
            public_url: None,
            selector: "longshore.dev/server=github".to_owned(),
            publication: self.publication,
            now: Time(Timestamp::from_second(self.second).unwrap()),
        })
    }

    /// Each condition as `Type=Status/Reason`.
    fn conditions(&self) -> Vec<String> {
        let status = self.status();
        status.conditions.iter().map(|it| format!("{}={}/{}", it.type_, it.status, it.reason)).collect()
    }
}

fn of(status: &McpServerStatus, type_: ConditionType) -> &Condition {
    find(&status.conditions, type_).unwrap()
}

/// A server of generation 3 that has been ready since second 10.
fn was_ready() -> McpServerStatus {
    let mut scene = Scene::of(vec![said(ready(pod("new")), summary())]);
    scene.second = 10;
    let mut status = scene.status();
    for condition in &mut status.conditions {
        condition.observed_generation = Some(3);
    }
    status
}

#[test]
fn what_a_stdio_server_prints_beside_its_messages_is_shown_and_harms_nothing() {
    let noisy = Summary { noise: Some("Starting...".to_owned()), ..summary() };
    let status = Scene::of(vec![said(ready(pod("new")), noisy)]).status();
    let connected = find(&status.conditions, ConditionType::Connected).unwrap();
    assert_eq!(
        (connected.status.as_str(), connected.message.as_str()),
        (
            "True",
            "the server answers, speaks 2026-07-28, 2025-11-25 and has 2 tools; its stdout also has lines that are no messages and \
             are dropped, let it log to stderr instead: Starting..."
        )
    );
    assert_eq!(find(&status.conditions, ConditionType::Ready).unwrap().status, "True");
}

#[test]
fn a_server_that_works_is_described_in_full() {
    let status = Scene::of(vec![said(ready(pod("new")), summary())]).status();
    let value = serde_json::to_value(&status).unwrap();
    let condition = |type_: &str, reason: &str, message: &str| {
        serde_json::json!({
            "type": type_, "status": "True", "reason": reason, "message": message, "observedGeneration": 4,
            "lastTransitionTime": "1970-01-01T00:16:40Z",
        })
    };
    assert_eq!(
        value,
        serde_json::json!({
            "observedGeneration": 4, "replicas": 1, "readyReplicas": 1,
            "selector": "longshore.dev/server=github", "url": "http://github.tools.svc/mcp",
            "serverInfo": {"name": "octo", "version": "1.2"}, "protocolVersions": ["2026-07-28", "2025-11-25"], "capabilities": ["tools"],
            "tools": {"count": 2, "digest": "sha256:tools", "names": ["get", "list"]},
            "conditions": [
                condition("Accepted", "Accepted", "the manifest is in order and everything that it names exists"),
                condition("Available", "Serving", "the pod serves"),
                condition("Connected", "Connected", "the server answers, speaks 2026-07-28, 2025-11-25 and has 2 tools"),
                condition("Isolated", "LoopbackOnly", "nothing but the sidecar listens on the pod's address"),
                condition("Published", "Published", "the catalog lists the server"),
                condition("Ready", "Ready", "clients can use the server"),
            ],
        })
    );
}

#[test]
fn each_way_to_fail_has_a_reason_of_its_own() {
    let back_off = "back-off 10s restarting failed container";
    let pull = "failed to pull and unpack image \"example/github:1\": not found";
    let runtime = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create \
                   failed: unable to start container process: error during container init: exec: \"/srv\": stat /srv: no \
                   such file or directory: unknown";
    let denied = "failed to create containerd task: OCI runtime create failed: exec: \"/srv\": permission denied: unknown";
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
            "exited with code 0, which",
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
            "spec.pod.resources",
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
            "1999",
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
            "gone",
        ),
        (
            "unreachable",
            PodFacts { pod: Arc::new(pod("new")), report: Report::Unreachable("timeout".to_owned()) },
            "SidecarUnreachable",
            "timeout",
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
        assert_ne!(of(&status, ConditionType::Connected).status, "True", "{name}");
    }
}

fn with_server_end(pod: PodView, end: Option<Ended>) -> PodView {
    PodView { server: ContainerView { ended: end, ..pod.server }, ..pod }
}

#[test]
fn a_container_that_fails_again_and_again_has_one_status() {
    let pull = "failed to resolve reference \"example/github:1\": not found";
    let crash = ended(1, "Error", "no token given");
    for circle in [
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
    ] {
        // The sidecar's words go round too while the server does.
        let words = [ConnectionReason::ConnectionRefused, ConnectionReason::ConnectionLost];
        let mut before: Option<McpServerStatus> = None;
        for (turn, container) in circle.into_iter().enumerate() {
            let facts = said(PodView { server: container, ..pod("new") }, failed(words[turn % 2], "words"));
            let mut scene = Scene::of(vec![facts]);
            scene.second += i64::try_from(turn).unwrap();
            scene.previous.clone_from(&before);
            let status = scene.status();
            if let Some(before) = &before {
                assert_eq!(&status, before, "turn {turn}");
            }
            before = Some(status);
        }
    }
}

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

#[test]
fn times_of_transition_stay_while_nothing_changes() {
    let first = Scene::of(vec![said(ready(pod("new")), summary())]).status();
    let later = Scene::of(vec![said(ready(pod("new")), summary())]).after(&first);
    assert_eq!(later.status(), first);
    let lost = Scene::of(vec![said(ready(pod("new")), failed(ConnectionReason::ConnectionLost, "gone"))])
        .after(&first);
    let status = lost.status();
    assert_eq!(of(&status, ConditionType::Connected).last_transition_time.0.as_second(), 1010);
    assert_eq!(of(&status, ConditionType::Available).last_transition_time.0.as_second(), 1000);
    assert_eq!(of(&status, ConditionType::Ready).reason, "ConnectionLost");
    assert_eq!(status.tools, first.tools, "what the server has is still known while it is away");
}

#[test]
fn a_server_that_listens_for_everybody_is_ready_and_said_to_be_exposed() {
    let exposed = vec![ExposedSocket { address: "0.0.0.0".to_owned(), port: 3000 }];
    let scene = Scene::of(vec![said(ready(pod("new")), Summary { exposed, ..summary() })]);
    assert_eq!(
        scene.conditions()[3..],
        ["Isolated=False/ListensBeyondLoopback", "Published=True/Published", "Ready=True/Ready"]
    );
    assert!(of(&scene.status(), ConditionType::Isolated).message.contains("0.0.0.0 port 3000"));
}

#[test]
fn what_the_api_server_says_of_pods_it_refuses_is_shown() {
    let mut scene = Scene::of(vec![]);
    assert_eq!(of(&scene.status(), ConditionType::Available).reason, "Starting");
    let live = crate::view::Live { uid: "d".to_owned(), version: 1, fingerprint: 1, controller: None };
    scene.deployment =
        Some(DeploymentView { live, template: None, refused: Some("exceeded quota: pods".to_owned()) });
    let status = scene.status();
    let available = of(&status, ConditionType::Available);
    assert_eq!(available.reason, "PodRejected");
    assert!(available.message.contains("exceeded quota"));
}

#[test]
fn messages_are_cut() {
    let mut scene = Scene::of(vec![]);
    scene.problems = vec![Problem::new(Reason::Invalid, "ä".repeat(2000))];
    let status = scene.status();
    let message = &of(&status, ConditionType::Accepted).message;
    assert!(message.len() <= LONGEST_MESSAGE && message.ends_with('…'));
}

/// Where a server is listed is nobody's trouble.
#[test]
fn being_in_no_catalog_takes_nothing_away() {
    for (publication, condition) in [
        (Publication::Published, "Published=True/Published"),
        (Publication::Withheld, "Published=False/NotPublished"),
        (Publication::NoCatalog, "Published=False/NoCatalog"),
    ] {
        let mut scene = Scene::of(vec![said(ready(pod("new")), summary())]);
        scene.publication = publication;
        assert_eq!(scene.conditions()[4..], [condition, "Ready=True/Ready"]);
    }
}

/// What people read of a server of three pods.
#[test]
fn several_pods_are_said_as_numbers() {
    let new = |n: u32| PodView { uid: format!("new-{n}"), ..ready(pod("new")) };
    let old = |n: u32| PodView { uid: format!("old-{n}"), ..ready(pod("old")) };
    let starting = |pod: PodView| silent(PodView { ready: false, sidecar: ContainerView::default(), ..pod });
    let crash = |pod: PodView| {
        let server =
            ContainerView { ended: ended(1, "Error", "no token"), ..waiting("CrashLoopBackOff", "x") };
        silent(PodView { ready: false, server, ..pod })
    };
    let well = |pod: PodView| said(pod, summary());
    let lost = |pod: PodView| said(pod, failed(ConnectionReason::ConnectionLost, "gone"));
    let behind = |pod: PodView| {
        let config = ConfigState { digest: "sha256:old".to_owned(), generation: 3, error: None };
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
            "False/ConnectionLost 4: gone",
        ),
        (
            "all fail",
            vec![crash(new(1)), crash(new(2)), crash(new(3))],
            "False/ServerExited: none of the 3 pods serves: the server exited",
            "False/ServerExited: the server exited",
            "False/ServerExited 4: none of the 3 pods serves",
        ),
        (
            "a rollout is half way",
            vec![well(new(1)), well(old(1)), well(old(2)), starting(new(2))],
            "True/RollingOut: 1 of 3 pods are of the new version (generation 4)",
            "True/Connected: the server answers",
            "True/ServingPrevious 3: clients use the server as it was before the last change",
        ),
        (
            "a rollout fails half way",
            vec![well(new(1)), well(old(1)), well(old(2)), crash(new(2))],
            "True/RolloutFailing: the version before goes on serving beside the new one (generation 4), of which a pod \
             fails: ServerExited",
            "True/Connected: the server answers",
            "True/ServingPrevious 3: clients use the server as it was before the last change",
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

#[test]
fn a_server_without_pods_is_said_to_be_so() {
    let mut scene = Scene::of(vec![]);
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
        ]
    );
    assert_eq!((scene.status().replicas, scene.status().ready_replicas), (Some(0), Some(0)));
}

#[test]
fn a_port_that_one_of_several_pods_shows_is_seen() {
    let exposed = vec![ExposedSocket { address: "0.0.0.0".to_owned(), port: 3000 }];
    let pod_of = |uid: &str| PodView { uid: uid.to_owned(), ..ready(pod("new")) };
    let scene =
        Scene::of(vec![said(pod_of("a"), Summary { exposed, ..summary() }), said(pod_of("b"), summary())]);
    assert_eq!(of(&scene.status(), ConditionType::Isolated).reason, "ListensBeyondLoopback");
}
