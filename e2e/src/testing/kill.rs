//! Ending a container as the kernel does when memory runs out: at once, and unasked.

use std::fs;

use k8s_openapi::api::core::v1::Pod;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Kills every process of a pod's container with SIGKILL, and returns how many there were. It works on nodes of our
/// own, whose processes this machine shows.
#[must_use]
pub fn kill_container(pod: &Pod, container: &str) -> usize {
    let pids = container_processes(pod, container);
    pids.iter().filter(|pid| kill(Pid::from_raw(**pid), Signal::SIGKILL).is_ok()).count()
}

/// The processes of a pod's container, as this machine numbers them.
#[must_use]
pub fn container_processes(pod: &Pod, container: &str) -> Vec<i32> {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let mut statuses = statuses.filter(|status| status.name == container);
    // `containerd://ID`, and the cgroup of each of its processes has the id in its path.
    let Some(id) = statuses.find_map(|status| status.container_id.as_deref()?.split("://").nth(1)) else {
        return Vec::new();
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|text| text.contains(id)))
        .collect()
}
