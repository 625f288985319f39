//! kube-scheduler.

use std::process::Command;

use super::spec::Spec;

pub(crate) fn command(spec: &Spec) -> Command {
    let mut command = Command::new(spec.programs.path("kube-scheduler"));
    let kubeconfig = spec.config("kube-scheduler.kubeconfig");
    for flag in ["--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig"] {
        command.arg(format!("{flag}={}", kubeconfig.display()));
    }
    command.args(["--leader-elect=false", &format!("--bind-address={}", spec.address)]);
    command
}
