//! kube-apiserver.

use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use super::spec::{NODE_ADDRESS, SERVICE_RANGE, Shape, Spec};
use super::{etcd, poll};

/// What Longshore's own programs ask of the API server is written down, for tests that count it. Nobody else's
/// requests are: they are many.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - {level: Metadata, userGroups: ['system:serviceaccounts:longshore-system']}
  - {level: None}
";

pub(crate) fn command(spec: &Spec) -> std::io::Result<Command> {
    let audit_policy = spec.config("audit-policy.yaml");
    std::fs::write(&audit_policy, AUDIT_POLICY)?;
    let bind = match spec.shape {
        // Pods come from the node's address, the node itself from loopback.
        Shape::Node => Ipv4Addr::UNSPECIFIED,
        Shape::Api | Shape::ControlPlane => spec.address,
    };
    let mut command = Command::new(spec.programs.path("kube-apiserver"));
    let mut file = |flag: &str, name: &str| {
        command.arg(format!("{flag}={}", spec.pki(name).display()));
    };
    file("--tls-cert-file", "apiserver.crt");
    file("--tls-private-key-file", "apiserver.key");
    file("--client-ca-file", "ca.crt");
    file("--service-account-key-file", "service-account.key");
    file("--service-account-signing-key-file", "service-account.key");
    file("--kubelet-client-certificate", "admin.crt");
    file("--kubelet-client-key", "admin.key");
    file("--kubelet-certificate-authority", "ca.crt");
    file("--requestheader-client-ca-file", "ca.crt");
    file("--proxy-client-cert-file", "front-proxy-client.crt");
    file("--proxy-client-key-file", "front-proxy-client.key");
    command
        .arg(format!("--etcd-servers=http://{}:{}", spec.address, etcd::CLIENT_PORT))
        .arg(format!("--bind-address={bind}"))
        .args([
            "--secure-port=6443",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            // Without this, logs, exec and port-forward look the node's name up in DNS.
            "--kubelet-preferred-address-types=InternalIP",
            "--authorization-mode=Node,RBAC",
            // With the latter it checks who may block the deletion of others, as some clusters do: what works here works
            // there too.
            "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
            "--allow-privileged",
        ])
        .arg(format!("--service-cluster-ip-range={SERVICE_RANGE}"));
    command
        .arg(format!("--advertise-address={NODE_ADDRESS}"))
        .arg(format!("--audit-policy-file={}", audit_policy.display()))
        .arg(format!("--audit-log-path={}", spec.audit_log().display()));
    match spec.shape {
        Shape::Node => {}
        // The Service `kubernetes` may not lead to loopback, and without a node nobody is there to follow it.
        Shape::Api | Shape::ControlPlane => {
            command.arg("--endpoint-reconciler-type=none");
        }
    }
    Ok(command)
}

pub(crate) async fn ready(client: &kube::Client) {
    poll::until(Duration::from_millis(50), async || match http::Request::get("/readyz").body(Vec::new()) {
        Ok(request) => client.request_text(request).await.is_ok(),
        Err(_) => false,
    })
    .await;
}
