//! kube-proxy.

use std::process::Command;

use super::spec::{NODE_NAME, POD_RANGE, Spec};

pub(crate) fn command(spec: &Spec) -> Command {
    let mut command = Command::new(spec.programs.path("kube-proxy"));
    command.arg(format!("--kubeconfig={}", spec.config("kube-proxy.kubeconfig").display())).args([
        format!("--hostname-override={NODE_NAME}"),
        format!("--cluster-cidr={POD_RANGE}"),
        "--proxy-mode=iptables".into(),
        // The machine's own limit stays: a network namespace may not change it.
        "--conntrack-max-per-core=0".into(),
    ]);
    command
}
