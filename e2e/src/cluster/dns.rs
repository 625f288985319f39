//! CoreDNS, on the node itself: it answers before the first pod runs.

use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;

use super::poll;
use super::spec::{DNS_SERVICE_ADDRESS, NODE_ADDRESS, Spec};

const NAMESPACE: &str = "kube-system";

pub(crate) fn command(spec: &Spec) -> std::io::Result<Command> {
    let file = spec.config("Corefile");
    std::fs::write(&file, corefile(spec))?;
    let mut command = Command::new(spec.programs.path("coredns"));
    command.arg("-conf").arg(file);
    Ok(command)
}

/// Names of the cluster, and no others: nothing that a test looks up leaves the machine. Answers are kept for as long as
/// in clusters where they are kept for long, so that they are behind.
fn corefile(spec: &Spec) -> String {
    format!(
        ".:53 {{
    bind {NODE_ADDRESS}
    ready {NODE_ADDRESS}:8181
    errors
    cache 30
    kubernetes cluster.local in-addr.arpa {{
        endpoint {server}
        kubeconfig \"{kubeconfig}\"
        ttl 30
    }}
}}
",
        server = spec.server(),
        kubeconfig = spec.kubeconfig().display(),
    )
}

/// Ready is when it knows the cluster's names, and pods find it at the address that they are told.
pub(crate) async fn ready(client: &kube::Client) {
    poll::until(Duration::from_millis(100), async || publish(client).await.is_ok()).await;
    poll::until(Duration::from_millis(50), async || answers_ready().await.unwrap_or(false)).await;
}

async fn answers_ready() -> std::io::Result<bool> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut connection = tokio::net::TcpStream::connect((NODE_ADDRESS, 8181)).await?;
    connection.write_all(b"GET /ready HTTP/1.0\r\n\r\n").await?;
    let mut answer = [0; 12];
    connection.read_exact(&mut answer).await?;
    Ok(answer.ends_with(b" 200"))
}

/// A Service without a selector, and the slice that says where it leads.
async fn publish(client: &kube::Client) -> Result<(), kube::Error> {
    let service = json!({
        "metadata": {"name": "kube-dns"},
        "spec": {
            "clusterIP": DNS_SERVICE_ADDRESS,
            "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP"},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
            ],
        },
    });
    let slice = json!({
        "metadata": {"name": "kube-dns", "labels": {"kubernetes.io/service-name": "kube-dns"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [NODE_ADDRESS]}],
        "ports": [
            {"name": "dns", "port": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
        ],
    });
    create::<Service>(client, service).await?;
    create::<EndpointSlice>(client, slice).await
}

async fn create<K>(client: &kube::Client, object: serde_json::Value) -> Result<(), kube::Error>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + serde::Serialize
        + serde::de::DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
    match kube::Api::namespaced(client.clone(), NAMESPACE).create(&Default::default(), &object).await {
        // It stands since CoreDNS was started the first time.
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        created => created.map(drop),
    }
}
