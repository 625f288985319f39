//! What happens to processes and networks of pods without their being asked: an end as the kernel makes it when memory
//! runs out, and packets that get lost. It works on nodes of our own, whose processes this machine shows.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cluster::run;

/// How long processes may take to be gone that were killed.
const GONE: Duration = Duration::from_secs(10);

/// Kills every process of a pod's container with SIGKILL, waits until they are gone with all that they had open, and
/// returns how many there were.
#[must_use]
pub fn kill_container(pod: &Pod, container: &str) -> usize {
    kill_all(&container_processes(pod, container))
}

/// Tells every process of a pod's container to end, as the kubelet does that restarts it, and returns how many there were.
#[must_use]
pub fn end_container(pod: &Pod, container: &str) -> usize {
    signal_all(&container_processes(pod, container), Signal::SIGTERM).len()
}

/// The same as [`kill_container`] for all containers of a pod, all at once.
#[must_use]
pub fn kill_pod(pod: &Pod) -> usize {
    kill_all(&processes(&container_ids(pod, |_| true)))
}

/// Has the memory run out in a pod's container, until the kernel kills what runs in it. What fills it are the pages of a
/// file that belong to nobody, so that its largest process is the container's own.
///
/// # Panics
/// If the container is not there any more, or has room for all of it.
pub fn exhaust_memory(pod: &Pod, container: &str) {
    let processes = container_processes(pod, container);
    let Some(group) = processes.first().and_then(|pid| memory_group(*pid)) else {
        panic!("the container {container} of the pod {:?} is in no memory cgroup", pod.metadata.name)
    };
    let file = format!("/dev/shm/longshore-e2e-{}", pod.metadata.uid.as_deref().unwrap_or_default());
    let fill = "echo $$ >\"$1\" && exec dd if=/dev/zero of=\"$2\" bs=64K count=16K status=none";
    let status = Command::new("sh").args(["-c", fill, "sh", &group, &file]).status();
    let _ = fs::remove_file(file);
    // Whoever fills it is the last to be killed.
    assert!(
        status.is_ok_and(|status| status.signal() == Some(Signal::SIGKILL as i32)),
        "1 GiB has room in {group}"
    );
}

/// The processes of a pod's container, as this machine numbers them.
#[must_use]
pub fn container_processes(pod: &Pod, container: &str) -> Vec<i32> {
    processes(&container_ids(pod, |name| name == container))
}

/// The memory that a container's processes have written to, in bytes: without the pages of the program itself, which
/// come and go as it is used.
#[must_use]
pub fn container_memory(pod: &Pod, container: &str) -> u64 {
    let resident = |pid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    container_processes(pod, container).iter().filter_map(resident).sum::<u64>() * 1024
}

/// Two pods that do not hear each other, while all others hear both. It is over when this value is gone.
#[derive(Debug)]
pub struct Partition(Vec<Vec<String>>);

// === impl Partition ===

impl Partition {
    /// Loses every packet between two pods from now on: without an answer, as a broken network does.
    ///
    /// # Panics
    /// If the pods' network cannot be entered.
    #[must_use]
    pub fn between(one: &Pod, other: &Pod) -> Self {
        let mut partition = Self(Vec::new());
        for (here, there) in [(one, other), (other, one)] {
            let (namespace, address) = (network(here), address(there));
            for (chain, side) in [("INPUT", "--source"), ("OUTPUT", "--destination")] {
                let rule =
                    [&namespace, "iptables", "--wait", "--append", chain, side, &address, "--jump", "DROP"];
                let rule: Vec<_> = rule.map(str::to_owned).to_vec();
                if let Err(error) = enter(&rule) {
                    panic!("cannot part the pods: {error}");
                }
                partition.0.push(rule);
            }
        }
        partition
    }

    /// Ends it.
    pub fn heal(self) {}
}

impl Drop for Partition {
    fn drop(&mut self) {
        for mut rule in std::mem::take(&mut self.0) {
            rule.iter_mut().filter(|word| *word == "--append").for_each(|word| *word = "--delete".into());
            // A pod that is gone took its rules along.
            let _ = enter(&rule);
        }
    }
}

fn enter(words: &[String]) -> Result<String, crate::cluster::ClusterError> {
    let mut command = Command::new("nsenter");
    command.args(words);
    run(command)
}

/// Where `nsenter` finds the pod's network.
fn network(pod: &Pod) -> String {
    match processes(&container_ids(pod, |_| true)).first() {
        Some(pid) => format!("--net=/proc/{pid}/ns/net"),
        None => panic!("the pod {:?} has no processes", pod.metadata.name),
    }
}

fn address(pod: &Pod) -> String {
    match pod.status.as_ref().and_then(|status| status.pod_ip.clone()) {
        Some(address) => address,
        None => panic!("the pod {:?} has no address", pod.metadata.name),
    }
}

fn container_ids(pod: &Pod, which: impl Fn(&str) -> bool) -> Vec<&str> {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let chosen = statuses.filter(|status| which(&status.name));
    // `containerd://ID`, and the cgroup of each of its processes has the id in its path.
    chosen.filter_map(|status| status.container_id.as_deref()?.split("://").nth(1)).collect()
}

fn processes(containers: &[&str]) -> Vec<i32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_theirs = |text: String| containers.iter().any(|id| text.contains(id));
    pids.filter(|pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(is_theirs)).collect()
}

/// The file that takes a process into the memory cgroup of this one, of either version of cgroups.
fn memory_group(pid: i32) -> Option<String> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let of = |mark: &str| groups.lines().find_map(|line| Some(line.split_once(mark)?.1));
    let folder = of(":memory:").map(|path| format!("/sys/fs/cgroup/memory{path}"));
    let folder = folder.or_else(|| Some(format!("/sys/fs/cgroup{}", of("0::")?)))?;
    Some(format!("{folder}/cgroup.procs"))
}

fn kill_all(pids: &[i32]) -> usize {
    let killed = signal_all(pids, Signal::SIGKILL);
    let deadline = Instant::now() + GONE;
    while killed.iter().any(|pid| is_there(*pid)) && Instant::now() < deadline {
        sleep(Duration::from_millis(1));
    }
    killed.len()
}

/// Those that were there to hear it.
fn signal_all(pids: &[i32], signal: Signal) -> Vec<i32> {
    pids.iter().copied().filter(|pid| kill(Pid::from_raw(*pid), signal).is_ok()).collect()
}

/// Whether a process has anything open still. One that nobody has buried yet has not, once its threads are gone.
fn is_there(pid: i32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let is_dead = field("State:").is_some_and(|state| state.starts_with(['Z', 'X']));
    !is_dead || field("Threads:") != Some("1")
}
