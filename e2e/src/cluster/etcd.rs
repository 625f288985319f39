//! etcd.

use std::process::Command;

use super::spec::Spec;

pub(crate) const CLIENT_PORT: u16 = 2379;

pub(crate) fn command(spec: &Spec) -> Command {
    let client = format!("http://{}:{CLIENT_PORT}", spec.address);
    let peer = format!("http://{}:2380", spec.address);
    let mut command = Command::new(spec.programs.path("etcd"));
    command
        .arg("--data-dir")
        .arg(spec.state("etcd"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        // Nobody keeps this data across a power cut, and waiting for the disk is most of what etcd does.
        .arg("--unsafe-no-fsync");
    command
}
