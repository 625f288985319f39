//! The echo server, served by several pods.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use longshore_crds::McpServer;
use longshore_e2e::images::{self, Image};
use longshore_e2e::load::{Load, Plan, Separation};
use longshore_e2e::mcp_client::{Endpoint, McpClient};
use longshore_e2e::testing::{Namespace, eventually};
use serde_json::{Value, json};

use crate::faults::{metrics, restarts};
use crate::server::{becomes, url, url_that_leads_there};

/// How clients call the MCP port of a pod.
const MCP_PORT: u16 = 15380;
/// The figure of how many sessions clients have opened at a sidecar.
pub(super) const OPENED: &str = "longshore_sessions_opened_total";
/// How many processes a pod has for sessions that share them.
pub(super) const SHARED: usize = 4;
/// The tool's answer's part that is read.
const CONTENT: &str = "structuredContent";

/// A manifest to be.
#[derive(Clone, Debug)]
pub(super) struct Echo {
    pub(super) name: &'static str,
    pub(super) replicas: u32,
    pub(super) transport: Transport,
    /// `NotFound` or `Reinitialize`.
    pub(super) on_owner_loss: &'static str,
    /// How many principals have a key; 0: everybody may call.
    pub(super) principals: usize,
    /// The value of an environment variable: another one is another version.
    pub(super) version: usize,
    /// More of the specification, merged over the rest.
    pub(super) more: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// With sessions of its own, or without.
    Http { sessions: bool },
    /// `Session`, `Principal` or `Shared`.
    Stdio { isolation: &'static str },
}

/// A server that is there.
pub(super) struct Served<'a> {
    pub(super) namespace: &'a Namespace<'a>,
    pub(super) echo: Echo,
    pub(super) url: String,
    /// Of the Service.
    pub(super) endpoint: Endpoint,
}

impl Echo {
    /// Three replicas of a server over HTTP, whose sessions move.
    pub(super) fn http(name: &'static str) -> Self {
        Self {
            name,
            replicas: 3,
            transport: Transport::Http { sessions: true },
            on_owner_loss: "Reinitialize",
            principals: 0,
            version: 0,
            more: json!({}),
        }
    }

    /// The same over stdio.
    pub(super) fn stdio(name: &'static str, isolation: &'static str) -> Self {
        Self { transport: Transport::Stdio { isolation }, ..Self::http(name) }
    }

    fn key(principal: usize) -> String {
        format!("the-key-of-principal-number-{principal}")
    }

    fn keys(&self) -> Vec<String> {
        (0..self.principals).map(Self::key).collect()
    }

    fn manifest(&self) -> String {
        let image = &image().reference;
        let (source, transport) = match self.transport {
            Transport::Http { sessions } => {
                let arguments = if sessions { json!(["http"]) } else { json!(["http", "--no-sessions"]) };
                (json!({"image": image, "args": arguments}), json!({"streamableHttp": {"port": 3000}}))
            }
            Transport::Stdio { isolation } => (
                json!({"image": image, "command": ["/echo-server", "stdio"]}),
                match isolation {
                    // Far fewer than sessions, so that they do share.
                    "Shared" => json!({"stdio": {"isolation": isolation, "maxProcesses": SHARED}}),
                    _ => json!({"stdio": {
                        "isolation": isolation, "maxProcesses": 200, "maxProcessesPerPrincipal": 200,
                    }}),
                },
            ),
        };
        let auth = match self.principals {
            0 => json!({"none": {}}),
            _ => json!({"apiKeys": {"secretRef": {"name": format!("{}-keys", self.name)}}}),
        };
        let mut spec = json!({
            "replicas": self.replicas,
            "source": source,
            "transport": transport,
            "auth": auth,
            "access": {"rules": [{"name": "all", "tools": ["*"]}]},
            "sessions": {"onOwnerLoss": self.on_owner_loss, "perPrincipal": 5_000},
        });
        spec["source"]["env"] = json!([{"name": "VERSION", "value": self.version.to_string()}]);
        merge(&mut spec, &self.more);
        let server = json!({
            "apiVersion": "longshore.dev/v1alpha1",
            "kind": "McpServer",
            "metadata": {"name": self.name},
            "spec": spec,
        });
        let keys: serde_json::Map<_, _> = (0..self.principals)
            .map(|principal| (format!("principal-{principal}"), Self::key(principal).into()))
            .collect();
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": format!("{}-keys", self.name)},
            "stringData": keys,
        });
        json!({"apiVersion": "v1", "kind": "List", "items": [secret, server]}).to_string()
    }
}

impl<'a> Served<'a> {
    /// Applies the manifest, and waits until all replicas serve.
    pub(super) async fn up(namespace: &'a Namespace<'a>, echo: Echo) -> Self {
        namespace.cluster().load([image()]).expect("the image can be brought in");
        namespace.apply(&echo.manifest()).await;
        let server = becomes(namespace, echo.name, ("Ready", "True", "Ready")).await;
        let url_there = url_that_leads_there(namespace, &server).await;
        let endpoint =
            Endpoint::find(&namespace.client(), &url(&server)).await.expect("the Service is there");
        let served = Self { namespace, echo, url: url_there, endpoint };
        served.settles().await;
        served
    }

    /// Applies the manifest with another version.
    pub(super) async fn next_version(&mut self) {
        self.echo.version += 1;
        self.namespace.apply(&self.echo.manifest()).await;
    }

    /// Changes the number of replicas, as people do.
    pub(super) async fn scale(&mut self, replicas: u32) {
        self.echo.replicas = replicas;
        let (object, count) = (format!("lmcp/{}", self.echo.name), format!("--replicas={replicas}"));
        self.namespace.kubectl(&["scale", &object, &count]).await.expect("it can be scaled");
    }

    /// Waits until exactly as many pods as wanted are there, all of the version that is wanted, all serving.
    pub(super) async fn settles(&self) -> Vec<Pod> {
        let name = self.echo.name;
        let server = becomes(self.namespace, name, ("Ready", "True", "")).await;
        let wanted = i32::try_from(self.echo.replicas).expect("a small number");
        assert_eq!(server.spec.replicas, self.echo.replicas);
        eventually("all replicas serve", async || {
            let deployments = self.namespace.api::<Deployment>();
            let deployment = deployments.get(name).await.map_err(|error| error.to_string())?;
            let status = deployment.status.clone().unwrap_or_default();
            let pods = self.pods().await;
            let counts = [
                deployment.spec.and_then(|spec| spec.replicas),
                status.replicas,
                status.updated_replicas,
                status.available_replicas,
                Some(i32::try_from(pods.len()).unwrap_or(-1)),
            ];
            let version = self.echo.version.to_string();
            let current = pods.iter().filter(|pod| has_version(pod, &version)).count();
            let is_new = status.observed_generation == deployment.metadata.generation;
            if is_new && counts == [Some(wanted); 5] && current == pods.len() && pods.iter().all(is_ready) {
                Ok(pods)
            } else {
                Err(format!("{counts:?} instead of {wanted}, {current} of version {version}"))
            }
        })
        .await
    }

    /// Waits until the Service leads to every pod: it follows them with a lag, which is long on a busy machine.
    pub(super) async fn is_balanced(&self) {
        let key = self.echo.keys().into_iter().next();
        let pods = self.settles().await;
        let count = async || {
            let mut counts = Vec::new();
            for pod in &pods {
                counts.push(figure(pod, OPENED).await?);
            }
            Ok::<_, String>(counts)
        };
        let before = eventually("every sidecar counts its sessions", count).await;
        eventually("the Service leads to every pod", async || {
            let opening = McpClient::open(self.endpoint.clone(), key.as_deref()).await;
            opening.map_err(|error| error.to_string())?;
            let now = count().await?;
            let more = before.iter().zip(&now).all(|(before, now)| now > before);
            if more {
                Ok(())
            } else {
                Err(format!("sessions were opened at {before:?}, and then at {now:?}"))
            }
        })
        .await;
    }

    /// Deletes it, and waits until nothing of it runs, so that the next has the machine to itself.
    pub(super) async fn down(self) {
        self.delete().await;
        self.is_gone().await;
    }

    /// The same where calls are under way that would take longer than anybody wants to wait: they are cut off.
    pub(super) async fn cut_down(self) {
        self.delete().await;
        for pod in names(&self.pods().await) {
            // One that has gone meanwhile is not found.
            let _ = self.namespace.api::<Pod>().delete(&pod, &DeleteParams::default().grace_period(1)).await;
        }
        self.is_gone().await;
    }

    async fn delete(&self) {
        let servers = self.namespace.api::<McpServer>();
        servers.delete(self.echo.name, &DeleteParams::default()).await.expect("a server can be deleted");
    }

    async fn is_gone(&self) {
        eventually("its pods are gone", async || match self.pods().await {
            pods if pods.is_empty() => Ok(()),
            pods => Err(names(&pods).join(", ")),
        })
        .await;
    }

    /// All of its pods, those included that are about to go.
    pub(super) async fn pods(&self) -> Vec<Pod> {
        let mine = ListParams::default().labels(&format!("longshore.dev/server={}", self.echo.name));
        self.namespace.api::<Pod>().list(&mine).await.expect("pods can be listed").items
    }

    /// Where a pod itself is, past the Service.
    pub(super) fn pod(&self, pod: &Pod) -> Endpoint {
        let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).expect("an address");
        let address = format!("{address}:{MCP_PORT}").parse().expect("an address");
        Endpoint { address, ..self.endpoint.clone() }
    }

    /// Opens a session at a pod, and tells which process of the server serves it.
    pub(super) async fn session_at(&self, pod: &Pod) -> (McpClient, String) {
        let key = self.echo.keys().into_iter().next();
        let client =
            eventually("a session is opened", async || McpClient::open(self.pod(pod), key.as_deref()).await)
                .await;
        let answer = client.call("echo", json!({})).await.expect("an answer");
        let instance = answer[CONTENT]["instance"].as_str().expect("an instance").to_owned();
        (client, instance)
    }

    /// Load on the Service.
    pub(super) fn plan(&self, sessions: usize, lanes: usize) -> Plan {
        let mut plan = Plan::new(self.endpoint.clone(), sessions, lanes);
        plan.keys = self.echo.keys();
        plan.separation = match self.echo.transport {
            // Without a session the server has nobody's name.
            Transport::Http { .. } | Transport::Stdio { isolation: "Session" } => Separation::Session,
            Transport::Stdio { isolation: "Principal" } => Separation::Principal,
            Transport::Stdio { .. } => Separation::Shared,
        };
        plan
    }

    /// Waits until these containers of a pod have been started once more than in `before`, and all replicas serve.
    pub(super) async fn recovers(&self, before: &Pod, containers: &[&str]) {
        let pods = self.namespace.api::<Pod>();
        eventually("what was killed is started again", async || {
            let now = pods.get(&before.name_any()).await.map_err(|error| error.to_string())?;
            let counts = |pod: &Pod| containers.iter().map(|name| restarts(pod, name)).collect::<Vec<_>>();
            let (then, now) = (counts(before), counts(&now));
            if then.iter().zip(&now).all(|(then, now)| now > then) { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
        self.settles().await;
    }
}

/// A figure of a pod's sidecar, by its name and labels as they are exported.
pub(super) async fn figure(pod: &Pod, name: &str) -> Result<u64, String> {
    let metrics = metrics(pod).await.map_err(|error| error.to_string())?;
    let mut values = metrics.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    values.next().and_then(|value| value.parse().ok()).ok_or(metrics)
}

/// The numbers of the sessions that this process answered last.
pub(super) fn sessions_of(load: &Load, instance: &str) -> BTreeSet<usize> {
    answered_last(load, |last| last == instance)
}

/// The numbers of the sessions that a process in this pod answered last: over stdio many have one of their own.
pub(super) fn sessions_in(load: &Load, pod: &Pod) -> BTreeSet<usize> {
    let host = format!("{}/", pod.name_any());
    let theirs = answered_last(load, |last| last.starts_with(&host));
    assert!(!theirs.is_empty(), "{} has no session", pod.name_any());
    theirs
}

fn answered_last(load: &Load, by: impl Fn(&str) -> bool) -> BTreeSet<usize> {
    let seen = load.sessions().into_iter().filter(|seen| seen.last.as_deref().is_some_and(&by));
    seen.map(|seen| seen.number).collect()
}

pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True")
}

/// The pods' names, for people to read.
pub(super) fn names(pods: &[Pod]) -> Vec<String> {
    pods.iter().map(|pod| pod.name_any()).collect()
}

fn has_version(pod: &Pod, version: &str) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut variables = containers.flat_map(|container| container.env.iter().flatten());
    variables.any(|variable| variable.name == "VERSION" && variable.value.as_deref() == Some(version))
}

/// The image, made once.
fn image() -> &'static Image {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    IMAGE.get_or_init(|| images::echo_server().expect("the image is made"))
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}
