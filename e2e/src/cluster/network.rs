//! The network of a node: one that nothing leads out of, so that nothing a test sends can leave the machine.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use nix::mount::{MsFlags, mount};

use super::containerd::BRIDGE;
use super::spec::{NODE_ADDRESS, SERVICE_RANGE, Spec};

/// The file that names CoreDNS to the node, and to what a test runs on it.
pub(crate) fn resolv_conf(spec: &Spec) -> PathBuf {
    spec.config("resolv.conf")
}

/// Gives the namespace that this process is in the node's address and routes.
pub(crate) fn set_up(spec: &Spec) -> io::Result<()> {
    // A veth pair, since not every kernel has dummy devices; its other end leads nowhere. Without a route to the
    // Services' range, connecting there fails before kube-proxy's rules are asked. There is no default route: what is
    // not of the cluster is unreachable at once, instead of after a time-out.
    //
    // So is what pods send to an address of that range, unless kube-proxy has led it to a pod before it is routed: for the
    // reason below, and here, since kube-router lets pass what it permits before rules of others are asked.
    ip(&format!(
        "link set lo up
link add node0 type veth peer name node0-end
link set node0-end up
address add {NODE_ADDRESS}/16 dev node0
link set node0 up
route add {SERVICE_RANGE} dev node0
rule add iif {BRIDGE} to {SERVICE_RANGE} unreachable
"
    ))?;
    refuse_what_is_no_service()?;
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    // A kernel may have it as a module, which nothing else loads here; one without it has no use for the switch below.
    let _ = Command::new("modprobe").arg("br_netfilter").output();
    // Where the kernel has the switch, Services would not work between pods of one bridge without it.
    match std::fs::write("/proc/sys/net/bridge/bridge-nf-call-iptables", "1") {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let resolv_conf = resolv_conf(spec);
    std::fs::write(&resolv_conf, format!("nameserver {NODE_ADDRESS}\nsearch cluster.local\n"))?;
    mount(Some(&resolv_conf), "/etc/resolv.conf", None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
    Ok(())
}

/// Refuses what the node sends to an address of the Services' range that kube-proxy has not led to a pod, as it does for
/// a moment while a Service begins. Otherwise it would go to where nobody is, and conntrack would remember for two
/// minutes that whatever comes from that port goes there, though the Service is there by then.
fn refuse_what_is_no_service() -> io::Result<()> {
    let mut command = Command::new("iptables");
    command.args(["--wait", "--append", "OUTPUT", "--destination", SERVICE_RANGE, "--jump", "REJECT"]);
    succeeds("iptables", &command.output()?)
}

fn ip(batch: &str) -> io::Result<()> {
    let mut child =
        Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(batch.as_bytes())?;
    }
    succeeds("ip", &child.wait_with_output()?)
}

fn succeeds(program: &str, output: &Output) -> io::Result<()> {
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())))
}
