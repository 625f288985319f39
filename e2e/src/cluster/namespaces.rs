//! The network, mount and process namespaces that a node lives in. Its first process is the supervisor: when that
//! ends, however it ends, the kernel ends everything else in there, and mounts and interfaces go with it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::Command;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;

use super::direct::direct;

/// Puts the processes that this one starts from now on into a process namespace of their own. The first of them is
/// that namespace's first process.
pub(crate) fn unshare_processes() -> nix::Result<()> {
    unshare(CloneFlags::CLONE_NEWPID)
}

/// Turns this process, the first of its process namespace, into the root of a machine of its own.
pub(crate) fn isolate() -> io::Result<()> {
    // Whoever keeps this cluster has to clean up after it: without a keeper there is no cluster.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)?;
    // Nothing that is mounted from here on is seen outside.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), None::<&str>)?;
    // Where container tools write without asking. They must neither meet their like of another cluster there, nor
    // leave anything behind.
    // The kubelet's sockets for devices are there, wherever its own folder is.
    for folder in ["/run", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers"] {
        fs::create_dir_all(folder)?;
        mount(Some("tmpfs"), folder, Some("tmpfs"), MsFlags::empty(), None::<&str>)?;
    }
    for folder in ["/run/lock", "/run/netns"] {
        fs::create_dir_all(folder)?;
    }
    // The network namespaces of pods are mounts in here, and have to reach the containers' side of it.
    mount(None::<&str>, "/run", None::<&str>, MsFlags::MS_REC | MsFlags::MS_SHARED, None::<&str>)?;
    Ok(())
}

/// Moves the calling thread, and every thread that it starts, into the network of process `pid`.
pub(crate) fn enter_network(pid: u32) -> io::Result<()> {
    let network = File::open(format!("/proc/{pid}/ns/net"))?;
    setns(network, CloneFlags::CLONE_NEWNET)?;
    Ok(())
}

/// A command that runs `program` in the namespaces of process `pid`, in the folder where this one is. It ends with that
/// process, since it is in the same process namespace; and with `nsenter`, which is whom the caller sees and may kill.
pub(crate) fn command(pid: u32, program: &Path) -> io::Result<Command> {
    // Another mount namespace has another working folder, so it is said again inside.
    let mut folder = OsString::from("--wdns=");
    folder.push(std::env::current_dir()?);
    let mut command = direct("nsenter");
    command
        .arg(format!("--target={pid}"))
        .args(["--net", "--mount", "--pid"])
        .arg(folder)
        .args(["--", "setpriv", "--pdeathsig", "KILL", "--"])
        .arg(program);
    Ok(command)
}
