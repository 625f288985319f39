//! The kubelet.

use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use super::spec::{DNS_SERVICE_ADDRESS, NODE_ADDRESS, NODE_NAME, Spec};
use super::{containerd, network, poll};

pub(crate) fn command(spec: &Spec) -> std::io::Result<Command> {
    let file = spec.config("kubelet.json");
    std::fs::write(&file, config(spec).to_string())?;
    let mut command = Command::new(spec.programs.path("kubelet"));
    command
        .arg(format!("--config={}", file.display()))
        .arg(format!("--kubeconfig={}", spec.config("kubelet.kubeconfig").display()))
        .arg(format!("--root-dir={}", spec.state("kubelet").display()))
        .arg(format!("--cert-dir={}", spec.state("kubelet-pki").display()))
        .arg(format!("--hostname-override={NODE_NAME}"))
        .arg(format!("--node-ip={NODE_ADDRESS}"));
    Ok(command)
}

fn config(spec: &Spec) -> serde_json::Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{}", containerd::SOCKET),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": spec.pki("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": spec.pki("kubelet.crt"),
        "tlsPrivateKeyFile": spec.pki("kubelet.key"),
        "clusterDNS": [DNS_SERVICE_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": network::resolv_conf(spec),
        // What clusters share on one machine must not be shared: kubelets delete what they do not know.
        "cgroupRoot": format!("/{}", spec.cgroup()),
        "podLogsDir": spec.state("pod-logs"),
        "volumePluginDir": spec.state("volume-plugins"),
        // The machine as it is: its cgroups of either version, no systemd, swap or not.
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": false,
        "failSwapOn": false,
        "localStorageCapacityIsolation": false,
        "protectKernelDefaults": false,
        // A full disk of the machine is not this cluster's business, and imported images cannot be pulled again.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "maxPods": 250,
        // Volumes from ConfigMaps and Secrets follow in ten seconds at worst; the default is a minute.
        "syncFrequency": "10s",
    })
}

pub(crate) async fn ready(client: &kube::Client) {
    let nodes: kube::Api<Node> = kube::Api::all(client.clone());
    poll::until(Duration::from_millis(50), async || {
        nodes.get(NODE_NAME).await.is_ok_and(|node| is_ready(&node))
    })
    .await;
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|conditions| conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
}
