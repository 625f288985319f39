//! What Longshore costs on a cluster: how long a manifest takes to be served, against a plain Deployment of the same
//! image in the same run, one and fifty at a time; the memory that a hundred servers take, and what they ask of the API
//! server when nothing changes.
//!
//! `cargo bench -p longshore-e2e --bench cluster`, as root. It starts a node of its own and prints a table for
//! docs/benchmarks.md. Words after `--` choose what is measured: `one`, `many`, `crowd`; `cost` tells what many cost, and
//! is left out where nothing is chosen.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a measurement speaks by printing, and by failing"
)]

mod cost;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, future};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use longshore_crds::McpServer;
use longshore_e2e::cluster::{Cluster, Shape};
use longshore_e2e::{images, longshore};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use cost::Cost;

/// Where everything is made.
const NAMESPACE: &str = "bench";
/// How often one object is made alone. Odd, so that there is one in the middle.
const ROUNDS: usize = 9;
/// How often many are made at once.
const MANY_ROUNDS: usize = 3;
/// How many are made at once.
const MANY: usize = 50;
/// How many there are when memory is read.
const CROWD: usize = 100;
/// How long they are left alone before that.
const IDLE: Duration = Duration::from_secs(20);
/// When to give up.
const PATIENCE: Duration = Duration::from_secs(300);

fn main() {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wants = |what: &str| chosen.is_empty() || chosen.iter().any(|word| word == what);
    hurry_processes();
    let cluster = Cluster::start(Shape::Node).expect("a node starts");
    hurry_pods(&cluster);
    longshore::install(&cluster).expect("the chart installs");
    let image = images::peers().expect("the images are made").go.reference;
    let measured = cluster.block_on(async || {
        let bench = Bench::new(&cluster, &image).await;
        println!("| what | measured |\n|---|---|");
        if wants("one") {
            bench.one().await;
        }
        if wants("many") {
            bench.many().await;
        }
        if chosen.iter().any(|word| word == "cost") {
            bench.cost(&cluster).await;
        }
        if wants("crowd") {
            bench.crowd(&cluster).await;
        }
    });
    measured.expect("the cluster's network can be entered");
}

/// Lets the cluster's own programs go before whatever else the machine does: it is measured, not its neighbours.
/// What is started from here inherits it.
fn hurry_processes() {
    let me = std::process::id().to_string();
    // It takes a right that not every root has; what is measured in turns is still worth something without.
    let _ = std::process::Command::new("renice").args(["-n", "-15", "-p", &me]).output();
}

/// The same for its pods, which are in a cgroup of their own.
fn hurry_pods(cluster: &Cluster) {
    let name = cluster.spec().map(|spec| spec.name.as_str()).unwrap_or_default();
    for (hierarchy, file, most) in [("/cpu", "cpu.shares", "262144"), ("", "cpu.weight", "10000")] {
        let file = format!("/sys/fs/cgroup{hierarchy}/longshore-{name}/{file}");
        // One of the two is there.
        let _ = std::fs::write(file, most);
    }
}

struct Bench<'a> {
    client: Client,
    image: &'a str,
}

impl<'a> Bench<'a> {
    async fn new(cluster: &Cluster, image: &'a str) -> Self {
        let client = cluster.client().await.expect("there is a client");
        let namespace =
            serde_json::from_value(json!({ "metadata": { "name": NAMESPACE } })).expect("a namespace");
        let namespaces = Api::<Namespace>::all(client.clone());
        namespaces.create(&PostParams::default(), &namespace).await.expect("the namespace is made");
        Self { client, image }
    }

    /// From a manifest to a server, one at a time, in turns with what it is compared to.
    async fn one(&self) {
        // The first of a kind is slower: images are unpacked, and tables are empty.
        self.plain(1).await;
        self.served(1).await;
        let (mut plain, mut served) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            plain.push(self.plain(1).await);
            served.push(self.served(1).await);
        }
        let (mean_plain, mean_served) = (mean(&plain), mean(&served));
        let (plain, served) = (median(plain), median(served));
        println!("| a plain Deployment, applied to Available (median of {ROUNDS}) | {} |", seconds(plain));
        println!("| an McpServer, applied to Ready (median of {ROUNDS}) | {} |", seconds(served));
        println!("| the difference of the medians | {} |", difference(served, plain));
        println!("| the difference of the means | {} |", difference(mean_served, mean_plain));
    }

    /// The same for many at once.
    async fn many(&self) {
        let (mut plain, mut served) = (Vec::new(), Vec::new());
        for _ in 0..MANY_ROUNDS {
            plain.push(self.plain(MANY).await);
            served.push(self.served(MANY).await);
        }
        let (plain, served) = (median(plain), median(served));
        println!(
            "| {MANY} plain Deployments, applied to all Available (median of {MANY_ROUNDS}) | {} |",
            seconds(plain)
        );
        println!(
            "| {MANY} McpServers, applied to all Ready (median of {MANY_ROUNDS}) | {} |",
            seconds(served)
        );
        println!("| the ratio | {:.2} |", served.as_secs_f64() / plain.as_secs_f64());
    }

    /// What many at once cost, by program and by request. Looking is not free, so times are measured without.
    async fn cost(&self, cluster: &Cluster) {
        // The first of a kind costs more.
        self.plain(1).await;
        self.served(1).await;
        for what in ["plain Deployments", "McpServers"] {
            // What was deleted before is to be gone, and events to be written.
            tokio::time::sleep(IDLE).await;
            let before = Cost::now(cluster, &self.client).await;
            let deployments: Api<Deployment> = self.api();
            let servers: Api<McpServer> = self.api();
            let time = match what {
                "McpServers" => self.all_ready(&servers, MANY, |name| self.mcp_server(name), is_served).await,
                _ => self.all_ready(&deployments, MANY, |name| self.deployment(name), is_available).await,
            };
            let cost = before.since(cluster, &self.client).await;
            println!("| **{MANY} {what}** | {} |\n{}", seconds(time), cost.trim_end());
            match what {
                "McpServers" => self.clear(&servers).await,
                _ => self.clear(&deployments).await,
            }
        }
    }

    /// What a crowd of servers takes when nothing happens.
    async fn crowd(&self, cluster: &Cluster) {
        let crowd: Api<McpServer> = self.api();
        self.all_ready(&crowd, CROWD, |name| self.mcp_server(name), is_served).await;
        tokio::time::sleep(IDLE).await;
        let before = requests(cluster);
        tokio::time::sleep(IDLE).await;
        let asked = requests(cluster) - before;
        let name = cluster.spec().map(|spec| spec.name.clone()).unwrap_or_default();
        let operator = resident(&name, "/longshore\0operator\0").into_iter().max().unwrap_or_default();
        let mut sidecars = resident(&name, "/longshore-sidecar\0");
        sidecars.sort_unstable();
        println!("| memory of the leading operator with {CROWD} servers | {:.1} MB |", megabytes(operator));
        println!("| requests of the operators in {} s, but for the lease | {asked} |", IDLE.as_secs());
        let middle = sidecars.get(sidecars.len() / 2).copied().unwrap_or_default();
        println!(
            "| memory of an idle sidecar (median of {}) | {:.1} MB |",
            sidecars.len(),
            megabytes(middle)
        );
    }

    /// Makes plain Deployments and returns the time until all are Available.
    async fn plain(&self, count: usize) -> Duration {
        let deployments: Api<Deployment> = self.api();
        let time = self.all_ready(&deployments, count, |name| self.deployment(name), is_available).await;
        self.clear(&deployments).await;
        time
    }

    /// Makes McpServers and returns the time until all are Ready.
    async fn served(&self, count: usize) -> Duration {
        let servers: Api<McpServer> = self.api();
        let time = self.all_ready(&servers, count, |name| self.mcp_server(name), is_served).await;
        self.clear(&servers).await;
        time
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// What somebody would write who serves the same without Longshore.
    fn deployment(&self, name: &str) -> Value {
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": name },
            "spec": {
                "selector": { "matchLabels": { "app": name } },
                "template": {
                    "metadata": { "labels": { "app": name } },
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "containers": [{
                            "name": "server",
                            "image": self.image,
                            "imagePullPolicy": "IfNotPresent",
                            "args": ["-listen", "0.0.0.0:3000"],
                            "readinessProbe": { "tcpSocket": { "port": 3000 }, "periodSeconds": 1 },
                        }],
                    },
                },
            },
        })
    }

    fn mcp_server(&self, name: &str) -> Value {
        json!({
            "apiVersion": "longshore.dev/v1alpha1",
            "kind": "McpServer",
            "metadata": { "name": name },
            "spec": {
                "source": { "image": self.image, "imagePullPolicy": "IfNotPresent" },
                "transport": { "streamableHttp": { "port": 3000 } },
                "auth": { "none": {} },
                "access": { "rules": [{ "name": "all", "tools": ["*"] }] },
            },
        })
    }

    /// Makes objects at once and returns the time until all are ready. The watch is there before the first is made.
    async fn all_ready<K>(
        &self,
        api: &Api<K>,
        count: usize,
        manifest: impl Fn(&str) -> Value,
        is_ready: fn(&K) -> bool,
    ) -> Duration
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + 'static,
    {
        let objects: Vec<K> = (0..count)
            .map(|index| serde_json::from_value(manifest(&format!("server-{index}"))).expect("a manifest"))
            .collect();
        // The kubelet looks after its containers once a second, and the rounds before would be in step with it: every
        // measurement would then be rounded to the same side.
        tokio::time::sleep(random_part(Duration::from_secs(1))).await;
        let mut events = watcher(api.clone(), watcher::Config::default()).boxed();
        while !matches!(events.next().await, Some(Ok(Event::InitDone))) {}

        let started = Instant::now();
        let creation = PostParams::default();
        let made = future::try_join_all(objects.iter().map(|object| api.create(&creation, object)));
        let ready = async {
            let mut ready = BTreeSet::new();
            while ready.len() < count {
                match events.try_next().await.expect("the watch goes on") {
                    Some(Event::Apply(object) | Event::InitApply(object)) if is_ready(&object) => {
                        ready.insert(object.name_any());
                    }
                    Some(_) => {}
                    None => panic!("the watch ended"),
                }
            }
            started.elapsed()
        };
        let (made, time) = tokio::join!(made, tokio::time::timeout(PATIENCE, ready));
        made.expect("the objects are made");
        time.unwrap_or_else(|_| panic!("not all {count} became ready in {PATIENCE:?}"))
    }

    /// Deletes everything of this kind, and waits until the pods are gone too.
    async fn clear<K>(&self, api: &Api<K>)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let immediately = DeleteParams::foreground().grace_period(0);
        api.delete_collection(&immediately, &ListParams::default()).await.expect("they can be deleted");
        let pods: Api<Pod> = self.api();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = pods.list_metadata(&ListParams::default()).await.expect("pods can be listed");
            let objects = api.list_metadata(&ListParams::default()).await.expect("they can be listed");
            if left.items.is_empty() && objects.items.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "pods are left behind");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

fn is_available(deployment: &Deployment) -> bool {
    let conditions = deployment.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Available" && condition.status == "True")
}

fn is_served(server: &McpServer) -> bool {
    let conditions = server.status.as_ref().map(|status| &status.conditions);
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The resident memory, in bytes, of the cluster's processes whose command line begins with `command`.
fn resident(cluster: &str, command: &str) -> Vec<u64> {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let folders = processes.map(|entry| entry.path());
    folders
        .filter_map(|folder| {
            let read = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
            if !read("cmdline")?.starts_with(command) || !read("cgroup")?.contains(cluster) {
                return None;
            }
            let status = read("status")?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
        })
        .collect()
}

/// How many requests the API server had from operators so far, but for those that renew the lease. (Watches are
/// written down when they end.)
fn requests(cluster: &Cluster) -> usize {
    let log = cluster.spec().map(|spec| spec.audit_log()).expect("it is a cluster of our own");
    let log = std::fs::read_to_string(log).expect("the audit log can be read");
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.filter(|event| event["objectRef"]["resource"] != "leases" && event["verb"] != "watch").count()
}

fn random_part(of: Duration) -> Duration {
    use std::hash::{BuildHasher as _, RandomState};
    // Randomly keyed, which is random enough for a pause.
    of * u32::from(RandomState::new().hash_one(0_u8).to_le_bytes()[0]) / 256
}

fn mean(times: &[Duration]) -> Duration {
    times.iter().sum::<Duration>() / u32::try_from(times.len()).unwrap_or(1)
}

fn difference(one: Duration, other: Duration) -> String {
    format!("{:+.0} ms", (one.as_secs_f64() - other.as_secs_f64()) * 1e3)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
