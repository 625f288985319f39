//! kube-router, which enforces NetworkPolicies.

use std::process::Command;

use super::spec::{NODE_NAME, SERVICE_RANGE, Spec};

/// Whether a node's network enforces them: where `LONGSHORE_E2E_POLICIES` is set.
#[must_use]
pub fn enforces_policies() -> bool {
    std::env::var_os("LONGSHORE_E2E_POLICIES").is_some()
}

pub(crate) fn command(spec: &Spec) -> Command {
    let mut command = Command::new(spec.programs.path("kube-router"));
    command.args([
        format!("--kubeconfig={}", spec.kubeconfig().display()),
        format!("--hostname-override={NODE_NAME}"),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        // It says when it has brought the rules up to date.
        "--v=1".to_owned(),
    ]);
    command
}
