//! What a cluster has done so far: processor time by program, by the kernel's own accounts, requests by what they were
//! about, by the API server's, and how long the cluster's own programs held requests back, by theirs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use kube::Client;
use longshore_e2e::cluster::{Cluster, NODE_ADDRESS, run};

/// The kernel counts processor time in so many parts of a second, on every machine there is.
const TICKS: u32 = 100;
/// How many kinds of requests are shown.
const SHOWN: usize = 25;
/// The sum that clients of Go programs keep of how long they waited for the rate that they allow themselves.
const HELD_BACK: &str = "rest_client_rate_limiter_duration_seconds_sum{";

/// What was done up to a moment.
pub(crate) struct Cost {
    /// Of programs that run or whose parents still do.
    seconds: BTreeMap<String, Duration>,
    requests: BTreeMap<String, u64>,
    /// Of all requests of a program together, however many of them waited at once.
    held_back: BTreeMap<&'static str, Duration>,
}

impl Cost {
    /// What was done up to now.
    pub(crate) async fn now(cluster: &Cluster, client: &Client) -> Self {
        Self { seconds: seconds(cluster), requests: requests(client).await, held_back: held_back(cluster) }
    }

    /// What was done between `self` and now, as rows of two columns.
    pub(crate) async fn since(&self, cluster: &Cluster, client: &Client) -> String {
        let now = Self::now(cluster, client).await;
        let mut lines = String::new();
        let mut all = Duration::ZERO;
        for (program, spent) in now.seconds {
            let spent = spent.saturating_sub(self.seconds.get(&program).copied().unwrap_or_default());
            all += spent;
            if spent >= Duration::from_millis(50) {
                lines += &format!("| {program} | {:.1} s |\n", spent.as_secs_f64());
            }
        }
        lines += &format!("| all programs | {:.1} s |\n", all.as_secs_f64());
        let done = now.requests.into_iter().map(|(what, count)| {
            let before = self.requests.get(&what).copied().unwrap_or_default();
            (count - before.min(count), what)
        });
        let mut done: Vec<_> = done.filter(|(count, _)| *count > 0).collect();
        done.sort_unstable_by(|one, other| other.cmp(one));
        let requests: u64 = done.iter().map(|(count, _)| count).sum();
        for (count, what) in done.into_iter().take(SHOWN) {
            lines += &format!("| {what} | {count} |\n");
        }
        lines += &format!("| all requests | {requests} |\n");
        for (program, held_back) in now.held_back {
            let held_back = held_back.saturating_sub(self.held_back[program]);
            lines += &format!("| requests of {program} waited in all | {:.1} s |\n", held_back.as_secs_f64());
        }
        lines
    }
}

/// The processor time of a cluster's processes, by program. Children count for their parents once they have ended.
fn seconds(cluster: &Cluster) -> BTreeMap<String, Duration> {
    let spec = cluster.spec().expect("it is a cluster of our own");
    let folder = spec.folder.to_string_lossy().into_owned();
    let processes = || fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.path());
    let text = |process: &Path, file: &str| fs::read(process.join(file)).unwrap_or_default();
    let text = |process: &Path, file: &str| String::from_utf8_lossy(&text(process, file)).into_owned();
    let space = |process: &Path| fs::read_link(process.join("ns/pid")).ok();
    // Its components are in one namespace, with the runtime's helpers; each pod has another one.
    let component = processes().find(|it| {
        let command = text(it, "cmdline");
        command.contains("kube-apiserver") && command.contains(&folder)
    });
    let home = component.and_then(|component| space(&component));
    let mut spent = BTreeMap::<String, Duration>::new();
    for process in processes() {
        if space(&process) != home && !text(&process, "cgroup").contains(&format!("longshore-{}", spec.name))
        {
            continue;
        }
        let stat = text(&process, "stat");
        let Some((name, rest)) = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')')) else {
            continue;
        };
        // The operator and the catalog are one program.
        let command = text(&process, "cmdline");
        let name = match command.split('\0').nth(1) {
            Some(part) if name == "longshore" => format!("{name} {part}"),
            _ => name.to_owned(),
        };
        // utime, stime, and both of the children that have been waited for.
        let ticks =
            rest.split_ascii_whitespace().skip(11).take(4).filter_map(|word| word.parse::<u32>().ok());
        *spent.entry(name).or_default() += Duration::from_secs(1) * ticks.sum::<u32>() / TICKS;
    }
    spent
}

/// How long requests waited for the rate that their program allows itself.
fn held_back(cluster: &Cluster) -> BTreeMap<&'static str, Duration> {
    let spec = cluster.spec().expect("it is a cluster of our own");
    let programs = [("kube-controller-manager", spec.address, 10257), ("kubelet", NODE_ADDRESS, 10250)];
    let waited = programs.map(|(program, address, port)| {
        let mut kubectl = cluster.command("kubectl").expect("a command of the cluster");
        let server = format!("--server=https://{address}:{port}");
        kubectl.args([&server, "--insecure-skip-tls-verify", "get", "--raw", "/metrics"]);
        let text = run(kubectl).expect("the program has metrics");
        let sums = text.lines().filter(|line| line.starts_with(HELD_BACK));
        let seconds = sums.filter_map(|line| line.rsplit_once("} ")?.1.parse::<f64>().ok());
        (program, Duration::from_secs_f64(seconds.sum()))
    });
    waited.into()
}

/// How many requests the API server has answered, by verb and resource.
async fn requests(client: &Client) -> BTreeMap<String, u64> {
    let request = http::Request::get("/metrics").body(Vec::new()).expect("a request");
    let text = client.request_text(request).await.expect("the API server has metrics");
    let mut requests = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{")) {
        let Some((labels, count)) = line.rsplit_once("} ") else { continue };
        let label = |name: &str| {
            let mut labels = labels.split(',');
            labels
                .find_map(|label| label.strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"'))
                .unwrap_or_default()
        };
        let what = [label("verb"), label("resource"), label("subresource")].join(" ");
        let count = count.parse::<f64>().unwrap_or_default();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let count = count as u64;
        *requests.entry(what.trim_end().to_owned()).or_default() += count;
    }
    requests
}
