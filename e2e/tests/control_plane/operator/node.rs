//! A stand-in for the node: it says of pods what a kubelet would, and answers for their sidecars.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use longshore_e2e::testing::{Namespace, eventually};
use longshore_sidecar_config::inventory::{
    ConfigState, Connection, ConnectionState, Inventory, Phase, ServerDescription, Short,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The sidecars of all pods of one test, at one address.
pub(crate) struct Node {
    address: Ipv4Addr,
    inventory: watch::Sender<Value>,
    asked: Arc<Mutex<usize>>,
}

impl Node {
    /// Listens at an address of its own.
    pub(crate) async fn start() -> Self {
        let (listener, address) = loop {
            let mut bytes = [0_u8; 2];
            getrandom::fill(&mut bytes).unwrap();
            let address = Ipv4Addr::new(127, 77, bytes[0], bytes[1].clamp(1, 254));
            if let Ok(listener) = TcpListener::bind((address, 15381)).await {
                break (listener, address);
            }
        };
        let inventory = watch::Sender::new(Value::Null);
        let asked = Arc::new(Mutex::new(0));
        let (news, count) = (inventory.subscribe(), asked.clone());
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                *count.lock().unwrap() += 1;
                tokio::spawn(answer(connection, news.clone()));
            }
        });
        Self { address, inventory, asked }
    }

    /// How often a sidecar was asked.
    pub(crate) fn asked(&self) -> usize {
        *self.asked.lock().unwrap()
    }

    /// From now on sidecars run the configuration that is in the cluster, and their server works.
    pub(crate) async fn load_configuration(&self, namespace: &Namespace<'_>) {
        let file = configuration(namespace).await;
        let digest =
            Sha256::digest(file.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let inventory = Inventory {
            config: ConfigState {
                digest: format!("sha256:{digest}"),
                generation: 1,
                error: None,
                callers: None,
            },
            phase: Phase::Serving,
            connection: Connection {
                state: ConnectionState::Connected,
                since: "2026-01-01T00:00:00Z".to_owned(),
                reason: None,
                message: String::new(),
            },
            server: Some(ServerDescription {
                info: json!({"name": "demo", "version": "1"}),
                protocol_version: "2025-11-25".to_owned(),
                protocol_versions: vec!["2025-11-25".to_owned()],
                capabilities: json!({"tools": {}}),
                instructions: None,
            }),
            tools: vec![json!({"name": "echo", "inputSchema": {"type": "object"}})],
            hidden_tools: 0,
            tools_digest: "sha256:0".to_owned(),
            noise: None,
            short: Short::default(),
            prompts: vec![],
            resources: vec![],
            resource_templates: vec![],
            exposed: vec![],
        };
        self.inventory.send_replace(serde_json::to_value(inventory).unwrap());
    }

    /// From now on the sidecars say something else. A number is the status of a refusal.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Value)) {
        self.inventory.send_modify(change);
    }

    /// Where the sidecars are.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Waits for a pod other than `not`, and returns its name.
    pub(super) async fn find_pod(&self, namespace: &Namespace<'_>, not: &str) -> String {
        let pods: Api<Pod> = namespace.api();
        let list = ListParams::default().labels("longshore.dev/server=demo");
        eventually("there is a pod", async || {
            let mut names = pods.list(&list).await.unwrap().items.into_iter().map(|pod| pod.name_any());
            names.find(|name| name != not).ok_or("there is none")
        })
        .await
    }

    /// Waits until there are so many pods, and returns their names.
    pub(super) async fn find_pods(&self, namespace: &Namespace<'_>, count: usize) -> Vec<String> {
        let pods: Api<Pod> = namespace.api();
        let list = ListParams::default().labels("longshore.dev/server=demo");
        eventually(&format!("there are {count} pods"), async || {
            let found = pods.list(&list).await.unwrap().items;
            let living = found.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
            let names: Vec<_> = living.map(|pod| pod.name_any()).collect();
            if names.len() == count { Ok(names) } else { Err(names.join(", ")) }
        })
        .await
    }

    /// Waits for a pod other than `not`, and says of it what a kubelet says of one that runs. Returns its name.
    pub(crate) async fn run_pod(&self, namespace: &Namespace<'_>, not: &str) -> String {
        let name = self.find_pod(namespace, not).await;
        self.run(namespace, &name).await;
        name
    }

    /// Says of a pod what a kubelet says of one that runs.
    pub(super) async fn run(&self, namespace: &Namespace<'_>, name: &str) {
        let container = |name: &str| {
            json!({
                "name": name, "ready": true, "started": true, "restartCount": 0, "image": "x", "imageID": "x",
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            })
        };
        let address = self.address.to_string();
        self.say(
            namespace,
            name,
            json!({
                "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
                "conditions": [
                    // For long enough that nobody waits for it to go on.
                    {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                    {"type": "ContainersReady", "status": "True"},
                    {"type": "PodScheduled", "status": "True"},
                ],
                "containerStatuses": [container("longshore-sidecar"), container("server")],
            }),
        )
        .await;
    }

    /// Says something of a pod.
    pub(crate) async fn say(&self, namespace: &Namespace<'_>, pod: &str, status: Value) {
        let pods: Api<Pod> = namespace.api();
        let patch = Patch::Merge(json!({ "status": status }));
        pods.patch_status(pod, &PatchParams::default(), &patch).await.unwrap();
    }
}

/// The configuration that is in the cluster.
pub(super) async fn configuration(namespace: &Namespace<'_>) -> String {
    let config_maps: Api<ConfigMap> = namespace.api();
    let list = ListParams::default().labels("longshore.dev/server=demo");
    let config_map = config_maps.list(&list).await.unwrap().items.pop().expect("a configuration");
    config_map.data.unwrap().remove("config.json").unwrap()
}

/// Answers one request as a sidecar does: at once if it has something new, else when it has.
async fn answer(mut connection: TcpStream, mut news: watch::Receiver<Value>) -> Option<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if connection.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
    }
    let request = String::from_utf8_lossy(&request).to_ascii_lowercase();
    assert!(
        request.starts_with("get /v1/inventory ")
            && request.contains("authorization: bearer a token for sidecars")
    );
    let known = request.lines().find_map(|line| line.strip_prefix("if-none-match: ")).map(str::to_owned);
    let held = Duration::from_secs(if request.contains("prefer: wait=") { 25 } else { 0 });
    let current = tokio::time::timeout(
        held,
        news.wait_for(|inventory| !inventory.is_null() && known.as_deref() != Some(&tag(inventory))),
    )
    .await
    .map(|inventory| inventory.ok().map(|inventory| inventory.clone()));
    let answer = match current {
        Ok(Some(Value::Number(refusal))) => {
            format!("HTTP/1.1 {refusal} Refused\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        }
        Ok(inventory) => {
            let inventory = inventory?;
            let body = inventory.to_string();
            format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\netag: {}\r\ncontent-length: {}\r\n\
                 connection: close\r\n\r\n{body}",
                tag(&inventory),
                body.len()
            )
        }
        Err(_) => "HTTP/1.1 304 Not Modified\r\nconnection: close\r\n\r\n".to_owned(),
    };
    connection.write_all(answer.as_bytes()).await.ok()
}

fn tag(inventory: &Value) -> String {
    let digest = Sha256::digest(inventory.to_string().as_bytes());
    format!("\"{:02x}{:02x}{:02x}{:02x}\"", digest[0], digest[1], digest[2], digest[3])
}
