//! containerd, with the CNI plugins that give each pod its address.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::poll;
use super::spec::{POD_RANGE, Spec};

/// Where its socket is. `/run` is the cluster's own.
pub(crate) const SOCKET: &str = "/run/containerd/containerd.sock";
/// The interface that the pods are behind.
pub(crate) const BRIDGE: &str = "pods0";

pub(crate) fn command(spec: &Spec) -> std::io::Result<Command> {
    let networks = spec.config("cni");
    std::fs::create_dir_all(&networks)?;
    std::fs::write(networks.join("10-pods.conflist"), pod_network())?;
    let file = spec.config("containerd.toml");
    std::fs::write(&file, config(spec, &networks))?;
    let mut command = Command::new("containerd");
    command.arg("--config").arg(file);
    Ok(command)
}

fn config(spec: &Spec, networks: &Path) -> String {
    format!(
        r#"version = 2
root = "{root}"
state = "/run/containerd"
[grpc]
address = "{SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
path = "{opt}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true # root without CAP_SYS_RESOURCE may not lower it, and no sandbox would start
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{networks}"
"#,
        root = spec.state("containerd").display(),
        opt = spec.state("containerd-opt").display(),
        pause = spec.pause.as_ref().map_or("", |image| &image.reference),
        networks = networks.display(),
    )
}

/// One bridge, one range of addresses, and what `hostPort` needs.
fn pod_network() -> String {
    json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": BRIDGE,
                "isGateway": true,
                "ipMasq": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni",
                    "ranges": [[{"subnet": POD_RANGE}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
    .to_string()
}

pub(crate) async fn ready(_: &Spec) {
    poll::until(Duration::from_millis(20), async || tokio::net::UnixStream::connect(SOCKET).await.is_ok())
        .await;
}

/// The command that brings an image archive in. It has to run inside of the cluster.
pub(crate) fn import(archive: &Path) -> Command {
    let mut command = Command::new("ctr");
    command.args(["--address", SOCKET, "--namespace", "k8s.io", "images", "import"]).arg(archive);
    command
}

/// The command that gives an image another name. It has to run inside of the cluster.
pub(crate) fn tag(image: &str, name: &str) -> Command {
    let mut command = Command::new("ctr");
    command.args(["--address", SOCKET, "--namespace", "k8s.io", "images", "tag", "--force", image, name]);
    command
}
