//! The node itself: pods run, Services lead to them, names are looked up, and nothing is left of it.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use longshore_e2e::cluster::{Cluster, Shape, Spec, run};
use longshore_e2e::images;
use longshore_e2e::peers::Peers;
use longshore_e2e::testing::{Kind, Namespace, PATIENCE, Room, eventually};
use tokio::net::{TcpSocket, TcpStream};

use crate::{STAGE, left_out, may_start_a_node};

/// What `make cluster` runs.
const PROGRAM: &str = env!("CARGO_BIN_EXE_longshore-cluster");

/// Where the machine has its cgroups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// This is how a test on the node is written: manifests in, a real client against what they made.
#[test]
fn a_server_in_a_pod_is_reached_by_the_name_of_its_service() {
    let peers = Peers::install().unwrap();
    STAGE.with_namespace(async |namespace| {
        serve(namespace, "").await;
        let url = format!("http://server.{}.svc.cluster.local/mcp", namespace.name());
        // kube-proxy follows the endpoints with a lag of a second.
        let answer = eventually("the Service leads to the server", async || {
            let mut inspector = namespace.command(peers.program("mcp-inspector").to_str().unwrap());
            inspector.args(["--cli", &url, "--transport", "http", "--method", "tools/list"]);
            tokio::task::spawn_blocking(|| run(inspector)).await.unwrap()
        })
        .await;
        assert!(answer.contains("\"slow\""), "{answer}");
    });
}

/// Else conntrack would remember for two minutes that nobody is there.
#[test]
fn whoever_comes_before_a_service_is_refused_and_later_led_to_it() {
    if STAGE.cluster().spec().is_none() {
        left_out("what goes to no Service is refused on a node of these tests' own");
        return;
    }
    STAGE.with_namespace(async |namespace| {
        // No other Service is given it: they have those above the first 256, and a few have the first of all.
        let number = 16 + getrandom::u32().unwrap() % 240;
        let address = Ipv4Addr::new(10, 96, 0, number.try_into().unwrap());
        let early = connect(address, PORT).await;
        assert_eq!(early.unwrap_err().kind(), ErrorKind::ConnectionRefused, "there is no such Service");
        serve(namespace, &format!("clusterIP: {address}, ")).await;
        eventually("who came too early is led there too", || connect(address, PORT)).await;
    });
}

/// One that no other connection comes from.
const PORT: u16 = 20_077;

/// Connects to a Service from a port.
async fn connect(to: Ipv4Addr, from: u16) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::UNSPECIFIED, from).into())?;
    socket.connect((to, 80).into()).await
}

/// Has a server in a pod behind a Service of which more may be said.
async fn serve(namespace: &Namespace<'_>, service: &str) {
    let image = images::peers().unwrap().go.reference;
    namespace
        .apply(&format!(
            r#"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: server}}
spec:
  selector: {{matchLabels: {{app: server}}}}
  template:
    metadata: {{labels: {{app: server}}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: server
          image: {image}
          imagePullPolicy: Never
          args: [-listen, "0.0.0.0:3000"]
          readinessProbe: {{tcpSocket: {{port: 3000}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: server}}
spec: {{{service}selector: {{app: server}}, ports: [{{port: 80, targetPort: 3000}}]}}
"#
        ))
        .await;
    namespace.wait(&namespace.api::<Deployment>(), "server", "to be available", is_available).await;
}

/// Whoever dies, and however: the node's processes end, and its folder and cgroups go.
#[test]
fn a_node_starts_beside_another_and_leaves_no_trace() {
    if !may_start_a_node() {
        return;
    }
    let _room = Room::take(Kind::Pods);
    STAGE.cluster();

    // The worst that can happen to the node: its keeper clears away.
    let cluster = Cluster::start(Shape::Node).unwrap();
    let spec = cluster.spec().unwrap().clone();
    assert!(traces(&spec).len() > 5, "{:?}", traces(&spec));
    let mut command = cluster.command("sleep").unwrap().arg("600").spawn().unwrap();
    kill(&spec.folder.join("first-process"));
    until_no_trace(&spec, || {});
    until_none("outlives the node", || match command.try_wait().unwrap() {
        Some(_) => Vec::new(),
        None => vec!["a command on the node".to_owned()],
    });
    drop(cluster);

    // The worst that can happen to the keeper: the kernel ends the node, and the next sweep clears away.
    let cluster = Cluster::start(Shape::Node).unwrap();
    let spec = cluster.spec().unwrap().clone();
    kill(&spec.folder.join("keeper"));
    until_no_trace(&spec, || {
        let mut sweep = Command::new(PROGRAM);
        sweep.args(["down", "no-such-cluster"]);
        // It may still be written to.
        let _ = run(sweep);
    });
    drop(cluster);
}

/// What `make cluster` and `make cluster-down` do.
#[test]
fn a_cluster_to_work_with_stays_until_it_is_ended() {
    if !may_start_a_node() {
        return;
    }
    let _room = Room::take(Kind::Cluster);
    let made = Made(format!("test-up-{}", std::process::id()));
    assert_eq!(made.longshore_cluster(&["up"], &[]).trim(), format!("{PROGRAM} enter {}", made.0));
    let spec = Cluster::running(&made.0).unwrap().unwrap().spec().unwrap().clone();
    let ready = ["kubectl", "wait", "lmcp", "--all", "--for=condition=Ready", "--timeout=5m"];
    let served = made.longshore_cluster(&["exec"], &ready);
    for example in ["everything", "everything-sse", "git", "go-server", "go-three"] {
        assert!(served.contains(&format!("mcpserver.longshore.dev/{example} condition met")), "{served}");
    }
    let tested = made.longshore_cluster(&["exec"], &["sh", "-ec", FOREIGN, &this_program()]);
    assert!(tested.contains("2 passed"), "{tested}");
    // Once more, where the last one was killed: nothing is to be done, and nothing breaks.
    made.longshore_cluster(&["exec"], &["sh", "-ec", KILLED]);
    made.longshore_cluster(&["up"], &[]);
    made.longshore_cluster(&["exec"], &ready);
    made.longshore_cluster(&["down"], &[]);
    assert_eq!(traces(&spec), [""; 0]);
    made.longshore_cluster(&["down"], &[]);
}

/// Leaves Helm's record as a `helm upgrade` does that is killed.
const KILLED: &str = r#"
cd "$(mktemp -d)"
kubectl() { command kubectl --namespace longshore-system "$@"; }
secret=$(kubectl get secrets --selector owner=helm,name=longshore,status=deployed --output name)
kubectl get "$secret" --output 'jsonpath={.data.release}' | base64 -d | base64 -d | gunzip >record
sed -i 's/"status":"deployed"/"status":"pending-upgrade"/' record
grep -q '"status":"pending-upgrade"' record
printf '{"metadata": {"labels": {"status": "pending-upgrade"}}, "data": {"release": "%s"}}' \
  "$(gzip <record | base64 --wrap 0 | base64 --wrap 0)" >patch
kubectl patch "$secret" --type merge --patch-file patch
rm -r "$PWD"
"#;

/// Has a test of this program, the shell's `$0`, use the cluster that it runs in, as if it were somebody else's; and one be
/// left out there.
const FOREIGN: &str = r#"
export LONGSHORE_E2E_KUBECONFIG=$KUBECONFIG LONGSHORE_E2E_LOAD='ctr --namespace k8s.io images import'
exec "$0" --exact --nocapture refused::what_is_refused_has_its_status_through_a_service_and_a_line_in_the_log \
  harness::whoever_comes_before_a_service_is_refused_and_later_led_to_it
"#;

fn this_program() -> String {
    let program = std::env::current_exe().unwrap();
    program.into_os_string().into_string().unwrap()
}

/// A cluster that outlives who made it, by its name; it goes at the latest when this does.
struct Made(String);

impl Made {
    fn longshore_cluster(&self, before: &[&str], after: &[&str]) -> String {
        let mut command = Command::new(PROGRAM);
        command.args(before).arg(&self.0).args(after);
        run(command).unwrap()
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = Command::new(PROGRAM).args(["down", &self.0]).status();
        }
    }
}

fn until_no_trace(spec: &Spec, sweep: impl Fn()) {
    until_none("left behind", || {
        sweep();
        traces(spec)
    });
}

fn until_none(what: &str, left: impl FnMut() -> Vec<String>) {
    let deadline = Instant::now() + PATIENCE;
    for left in std::iter::repeat_with(left).take_while(|left| !left.is_empty()) {
        assert!(Instant::now() < deadline, "{what}: {left:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What there is of a cluster on this machine: its folder, cgroups, processes.
fn traces(spec: &Spec) -> Vec<String> {
    let folder = spec.folder.to_str().unwrap();
    let mut traces: Vec<String> = spec.folder.exists().then(|| folder.to_owned()).into_iter().collect();
    // Of version 2 the hierarchy is the folder itself, of version 1 there are several in it.
    let hierarchies = std::fs::read_dir(CGROUPS).unwrap().flatten().map(|entry| entry.path());
    for hierarchy in hierarchies.chain([PathBuf::from(CGROUPS)]) {
        let group = hierarchy.join(format!("longshore-{}", spec.name));
        traces.extend(group.exists().then(|| group.display().to_string()));
    }
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        // A process that has just ended has no command line any more, and neither has a zombie.
        let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        traces.extend(command.contains(folder).then_some(command));
    }
    traces
}

/// Kills the process whose id is in a file.
fn kill(file: &Path) {
    let mut kill = Command::new("kill");
    kill.arg("-9").arg(std::fs::read_to_string(file).unwrap().trim());
    run(kill).unwrap();
}

fn is_available(deployment: &Deployment) -> bool {
    deployment.status.as_ref().is_some_and(|status| status.available_replicas == Some(1))
}
