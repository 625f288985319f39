//! kube-controller-manager.

use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;

use super::poll;
use super::spec::Spec;

pub(crate) fn command(spec: &Spec) -> Command {
    let mut command = Command::new(spec.programs.path("kube-controller-manager"));
    let kubeconfig = spec.config("kube-controller-manager.kubeconfig");
    for flag in ["--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig"] {
        command.arg(format!("{flag}={}", kubeconfig.display()));
    }
    for (flag, name) in [
        ("--service-account-private-key-file", "service-account.key"),
        ("--root-ca-file", "ca.crt"),
        ("--cluster-signing-cert-file", "ca.crt"),
        ("--cluster-signing-key-file", "ca.key"),
    ] {
        command.arg(format!("{flag}={}", spec.pki(name).display()));
    }
    command.arg(format!("--bind-address={}", spec.address)).args([
        "--use-service-account-credentials",
        "--leader-elect=false",
        // There is one node, and its pods' addresses are given out on it.
        "--controllers=*,-node-ipam-controller,-node-route-controller",
    ]);
    command
}

/// Ready is when a pod could be made: when the default namespace has its account.
pub(crate) async fn ready(client: &kube::Client) {
    let accounts: kube::Api<ServiceAccount> = kube::Api::namespaced(client.clone(), "default");
    poll::until(Duration::from_millis(100), async || accounts.get("default").await.is_ok()).await;
}
