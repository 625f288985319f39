//! From pods and their sidecars' words to conditions: tables of what people would see.

mod failing;
mod failing_again;
mod kept_out;
mod keyless;
mod replicas;
mod used;
mod versions;
mod words;
mod working;

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use longshore_sidecar_config::inventory::{
    ConfigState, Connection, ConnectionReason, ConnectionState, ExposedSocket, Phase, Short,
};

use serde_json::{Value, json};

use super::*;
use crate::inventory::{ServerInfo as SaidInfo, ServerSummary, ToolsSummary};
use crate::view::{ContainerState, ContainerView, Ended, KeptOut, Live, OtherContainer};

const CONFIG_MAP: &str = "github-longshore-v1-x";
const WANTED: &str = "sha256:wanted";

fn desired() -> Desired {
    Desired {
        template: "new".to_owned(),
        configs: BTreeMap::from([(CONFIG_MAP.to_owned(), WANTED.to_owned())]),
        replicas: 1,
        recreates: false,
    }
}

fn pod(template: &str) -> PodView {
    PodView {
        name: format!("github-{template}"),
        uid: format!("uid-{template}"),
        template: Some(template.to_owned()),
        config_maps: vec![CONFIG_MAP.to_owned()],
        sidecar: running(),
        server: running(),
        ..PodView::default()
    }
}

fn running() -> ContainerView {
    let image = "example/github:1".to_owned();
    ContainerView { state: ContainerState::Running, image, ..ContainerView::default() }
}

/// A pod with another container. While one runs that the others wait for, they are not there.
fn beside(init: bool, container: ContainerView) -> PodView {
    let others = vec![OtherContainer { name: "other".to_owned(), init, container }];
    let late = || if init { waiting("PodInitializing", "") } else { running() };
    PodView { others, sidecar: late(), server: late(), ..pod("new") }
}

fn waiting(reason: &str, message: &str) -> ContainerView {
    let state = ContainerState::Waiting { reason: reason.to_owned(), message: message.to_owned() };
    ContainerView { state, ..running() }
}

fn ended(code: i32, reason: &str, message: &str) -> Option<Ended> {
    Some(Ended { code, reason: reason.to_owned(), message: message.to_owned(), at: None })
}

fn summary() -> Summary {
    Summary {
        config: ConfigState { digest: WANTED.to_owned(), generation: 4, error: None, callers: None },
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
        hidden_tools: 0,
        tools_digest: "sha256:tools".to_owned(),
        noise: None,
        short: Short::default(),
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

/// Of a server that was lost soon after its handshake and is back.
fn on_trial(message: &str) -> Summary {
    let Connection { reason, message, .. } = failed(ConnectionReason::ConnectionLost, message).connection;
    Summary { connection: Connection { reason, message, ..summary().connection }, ..summary() }
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

/// A Deployment of which the API server refuses a pod, with these words.
fn deployment_refused(words: &str) -> DeploymentView {
    let live = Live { uid: "d".to_owned(), version: 1, fingerprint: 1, controller: None, applied: None };
    let (template, refused) = (Some("new".to_owned()), Some(words.to_owned()));
    DeploymentView { live, template, replicas: None, refused, unmade: None, is_seen: true }
}

fn rules(rules: &Value) -> Access {
    serde_json::from_value(json!({ "rules": rules })).unwrap()
}

/// The scene that each case changes: generation 4, nothing wrong, no pod, seen at second 1000.
struct Scene {
    generation: i64,
    previous: Option<McpServerStatus>,
    problems: Vec<Problem>,
    /// Whether the problems cost nothing but what they name.
    flawed: bool,
    /// What the API server did not take, whether or not that is a problem.
    unapplied: Option<Unapplied>,
    address: Address,
    desired: Option<Desired>,
    pods: Vec<PodFacts>,
    deployment: Option<DeploymentView>,
    publication: Publication,
    access: Access,
    principals: Option<Vec<String>>,
    second: i64,
}

impl Scene {
    fn of(pods: Vec<PodFacts>) -> Self {
        Self {
            generation: 4,
            previous: None,
            problems: vec![],
            flawed: false,
            unapplied: None,
            address: address(None),
            desired: Some(desired()),
            pods,
            deployment: None,
            publication: Publication::Published,
            access: rules(&json!([{"name": "all", "tools": ["*"]}])),
            principals: None,
            second: 1000,
        }
    }

    fn after(self, previous: &McpServerStatus) -> Self {
        Self { previous: Some(previous.clone()), second: self.second + 10, ..self }
    }

    fn status(&self) -> McpServerStatus {
        status(&Observation {
            generation: self.generation,
            previous: self.previous.as_ref(),
            problems: &self.problems,
            held_back: !self.problems.is_empty() && !self.flawed,
            unapplied: self.unapplied.as_ref(),
            desired: self.desired.as_ref(),
            pods: &self.pods,
            deployment: self.deployment.as_ref(),
            address: self.address.clone(),
            selector: "longshore.dev/server=github".to_owned(),
            publication: self.publication,
            access: Some(&self.access),
            principals: self.principals.as_deref(),
            now: Time(Timestamp::from_second(self.second).unwrap()),
        })
    }

    /// Each condition as `Type=Status/Reason`, but for those that are not always there.
    fn conditions(&self) -> Vec<String> {
        let mut status = self.status();
        status.conditions.truncate(6);
        status.conditions.iter().map(|it| format!("{}={}/{}", it.type_, it.status, it.reason)).collect()
    }
}

/// Where clients find it, and where from outside of the cluster.
fn address(public_url: Option<&str>) -> Address {
    Address::Known {
        url: "http://github.tools.svc/mcp".to_owned(),
        public_url: public_url.map(str::to_owned),
    }
}

fn of(status: &McpServerStatus, type_: ConditionType) -> &Condition {
    find(&status.conditions, type_).unwrap()
}

/// An object that the API server does not take.
fn unapplied(kind: &str) -> Option<Unapplied> {
    let part = match kind {
        "ConfigMap" => Part::Configuration,
        "Deployment" => Part::Deployment,
        _ => Part::Other,
    };
    Some(Unapplied { what: Some(format!("{kind} tools/github")), part })
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
