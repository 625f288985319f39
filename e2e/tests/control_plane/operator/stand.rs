//! Operators as processes, with the rights that the chart gives them.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use http::Method;
use k8s_openapi::api::core::v1::{Event, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use longshore_crds::McpServer;
use longshore_e2e::cluster::{Cluster, direct, run};
use longshore_e2e::longshore::{NAMESPACE, chart, helm};
use longshore_e2e::mcp_client::{Answer, Endpoint};
use longshore_e2e::testing::{Namespace, PATIENCE, eventually};
use serde_json::{Value, json};

use super::node::Node;
use super::{LEAST, server};

/// Everything of the chart but the operator and the catalog themselves: those are run here.
const TEMPLATES: [&str; 4] = [
    "templates/serviceaccount.yaml",
    "templates/rbac.yaml",
    "templates/catalog/serviceaccount.yaml",
    "templates/catalog/rbac.yaml",
];

/// Brings the CRD, the account and its rights into a cluster.
pub(crate) fn install(cluster: &Cluster) -> Result<(), String> {
    let mut print = Command::new(program());
    print.arg("crds");
    let crds = run(print).map_err(|error| error.to_string())?;
    let mut template = helm(cluster).map_err(|error| error.to_string())?;
    template.arg("template").arg("longshore").arg(chart()).args(["--namespace", NAMESPACE]);
    template.args(["--set", "catalog.auth.none=true,images.prefix=a/"]);
    for name in TEMPLATES {
        template.args(["--show-only", name]);
    }
    let rights = run(template).map_err(|error| error.to_string())?;
    // An operator of a test has a Lease of its own name. That the chart's is enough is shown where its own operators run.
    let named = "    resourceNames: [\"longshore\"]\n";
    assert!(rights.contains(named), "the right to the Lease is not one to it alone: {rights}");
    let rights = rights.replace(named, "");
    kubectl(cluster, &["create", "namespace", NAMESPACE], None)?;
    kubectl(cluster, &["apply", "--server-side", "-f"], Some(&crds))?;
    kubectl(cluster, &["wait", "--for=condition=Established", "crd/mcpservers.longshore.dev"], None)?;
    kubectl(cluster, &["apply", "-f"], Some(&rights))?;
    Ok(())
}

pub(crate) fn kubectl(
    cluster: &Cluster,
    arguments: &[&str],
    manifest: Option<&str>,
) -> Result<String, String> {
    let mut kubectl = cluster.command("kubectl").map_err(|error| error.to_string())?;
    kubectl.args(arguments);
    let file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    if let Some(manifest) = manifest {
        std::fs::write(file.path(), manifest).map_err(|error| error.to_string())?;
        kubectl.arg(file.path());
    }
    run(kubectl).map_err(|error| error.to_string())
}

/// The program `longshore` of this checkout, built by whoever wants it first: as the tests of its own package have it,
/// which `make test` has built by then. By itself it would have all that it is made of compiled anew, with other features.
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let mut build = Command::new(env!("CARGO"));
        build.args(["test", "--no-run", "--quiet", "--locked", "--workspace", "--test", "contracts"]);
        build.args(["--message-format", "json"]);
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        let messages = run(build).unwrap();
        let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut programs = messages.filter(|message| message["target"]["name"] == "longshore");
        let program = programs.find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)));
        program.expect("cargo names the program that it built")
    })
}

/// The sidecar of the next release.
pub(super) const NEXT_SIDECAR: &str = "registry.invalid/longshore-sidecar:2";

/// A key of Ada's, for [`apply_keys`].
pub(super) const ADA: &str = "{ada: a-key-that-is-long-enough}";

/// Brings a Secret `keys` with these keys, each under its principal.
pub(super) async fn apply_keys(namespace: &Namespace<'_>, keys: &str) {
    let secret = format!("{{apiVersion: v1, kind: Secret, metadata: {{name: keys}}, stringData: {keys}}}");
    namespace.apply(&secret).await;
}

/// Whether the Secret that sidecars read has a key of this principal.
pub(super) fn has_key(secret: &Secret, principal: &str) -> bool {
    let file = secret.data.as_ref().and_then(|data| data.get("keys.json"));
    let words = format!("\"principal\":\"{principal}\"");
    file.is_some_and(|file| String::from_utf8_lossy(&file.0).contains(&words))
}

/// A server whose pod is ready, and the pod's name.
pub(super) async fn ready(namespace: &Namespace<'_>) -> (Operator, Node, String) {
    let operator = Operator::start(namespace);
    let node = Node::start().await;
    namespace.apply(&LEAST).await;
    let pod = node.run_pod(namespace, "").await;
    node.load_configuration(namespace).await;
    wait_for(namespace, "Ready", "True", "Ready").await;
    (operator, node, pod)
}

/// A server of two pods that are ready, with Ada's key; and the names of the pods, in order.
pub(super) async fn two_pods(namespace: &Namespace<'_>) -> (Operator, Node, Vec<String>) {
    let operator = Operator::start(namespace);
    let node = Node::start().await;
    apply_keys(namespace, ADA).await;
    namespace.apply(&server("{replicas: 2, auth: {none: null, apiKeys: {secretRef: {name: keys}}}}")).await;
    let mut names = node.find_pods(namespace, 2).await;
    names.sort();
    for pod in &names {
        node.run(namespace, pod).await;
    }
    node.load_configuration(namespace).await;
    wait_for(namespace, "Ready", "True", "Ready").await;
    (operator, node, names)
}

/// An operator for one namespace. It is killed when this goes.
pub(crate) struct Operator {
    process: Child,
    folder: tempfile::TempDir,
    namespace: String,
}

impl Operator {
    /// Starts one.
    pub(crate) fn start(namespace: &Namespace<'_>) -> Self {
        Self::start_in(namespace.cluster(), namespace.name())
    }

    /// Starts one, for a namespace that need not belong to a test.
    pub(super) fn start_in(cluster: &Cluster, namespace: &str) -> Self {
        Self::spawn(&kubeconfig_of(cluster, "longshore"), namespace)
    }

    /// Starts one that looks after every namespace, of a cluster that is nobody else's.
    pub(super) fn everywhere(cluster: &Cluster) -> Self {
        Self::start_in(cluster, "")
    }

    /// Starts one that has this kubeconfig.
    pub(super) fn by_way_of(kubeconfig: &str, namespace: &Namespace<'_>) -> Self {
        Self::spawn(kubeconfig, namespace.name())
    }

    /// Starts one that may look after this namespace alone, whatever else it is to look after.
    pub(super) fn confined(namespace: &Namespace<'_>, others: &[&str]) -> Self {
        Self::with_role(namespace, "clusterrole=longshore", others)
    }

    /// Starts one that lacks one of its rights. [`give_back`] gives it back.
    pub(super) fn without(namespace: &Namespace<'_>, verb: &str, resource: &str) -> Self {
        let role = role_without(namespace, verb, resource);
        Self::with_role(namespace, &role, &[])
    }

    /// The same of one that has all of its rights in the operator's own namespace, which it looks after too.
    pub(super) fn without_here(namespace: &Namespace<'_>, verb: &str, resource: &str) -> Self {
        let role = role_without(namespace, verb, resource);
        let kubeconfig = account_with(namespace, &role);
        let account = format!("--serviceaccount={NAMESPACE}:{}", namespace.name());
        let name = format!("{}-all", namespace.name());
        let binding = ["create", "rolebinding", &name, "--clusterrole=longshore", &account];
        let binding = [&binding[..], &["--namespace", NAMESPACE]].concat();
        kubectl(namespace.cluster(), &binding, None).unwrap();
        Self::spawn_watching(&kubeconfig, namespace.name(), &[NAMESPACE])
    }

    fn with_role(namespace: &Namespace<'_>, role: &str, others: &[&str]) -> Self {
        let kubeconfig = account_with(namespace, role);
        Self::spawn_watching(&kubeconfig, namespace.name(), others)
    }

    fn spawn_watching(kubeconfig: &str, namespace: &str, others: &[&str]) -> Self {
        let mut more = vec!["--sidecar-image", "registry.invalid/longshore-sidecar:1"];
        others.iter().for_each(|other| more.extend(["--watch-namespace", other]));
        Self::spawn_with(kubeconfig, namespace, &more)
    }

    /// Starts another like this one, which needs no API server to be there.
    pub(super) fn another(&self) -> Self {
        Self::spawn(&std::fs::read_to_string(self.folder.path().join("kubeconfig")).unwrap(), &self.namespace)
    }

    /// Starts one of the next release, which has another sidecar.
    pub(super) fn of_the_next_release(namespace: &Namespace<'_>, upgrades_at_once: &str) -> Self {
        let more = ["--sidecar-image", NEXT_SIDECAR, "--upgrades-at-once", upgrades_at_once];
        Self::spawn_with(&kubeconfig_of(namespace.cluster(), "longshore"), namespace.name(), &more)
    }

    fn spawn(kubeconfig: &str, namespace: &str) -> Self {
        Self::spawn_with(kubeconfig, namespace, &["--sidecar-image", "registry.invalid/longshore-sidecar:1"])
    }

    fn spawn_with(kubeconfig: &str, namespace: &str, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "a token for sidecars").unwrap();
        std::fs::write(folder.path().join("kubeconfig"), kubeconfig).unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let (scope, lease) = match namespace {
            "" => (vec![], "longshore"),
            namespace => (vec!["--watch-namespace", namespace], namespace),
        };
        let process = direct(program())
            .arg("operator")
            .args(more)
            .args(["--inventory-subject", "system:serviceaccount:longshore-system:longshore", "--catalog"])
            .arg("--inventory-token-file")
            .arg(folder.path().join("token"))
            .args(scope)
            .args(["--lease-name", lease])
            .args(["--health-addr", "127.0.0.1:0", "--log-level", "debug"])
            .env("KUBECONFIG", folder.path().join("kubeconfig"))
            .env("POD_NAMESPACE", NAMESPACE)
            .env("POD_NAME", folder.path().file_name().unwrap())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { process, folder, namespace: namespace.to_owned() }
    }

    /// What it has logged.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Whether it has become the one that acts.
    pub(super) fn leads(&self) -> bool {
        self.log().contains("caches filled; reconciling")
    }

    /// How often it has looked at a server from beginning to end.
    pub(super) fn looks(&self, server: &str) -> usize {
        let of = format!("\"server\":\"{server}\"");
        self.log().lines().filter(|line| line.contains("\"reconciled\"") && line.contains(&of)).count()
    }

    /// Waits until it has looked at a server more often than that.
    pub(super) async fn looks_again(&self, server: &str, before: usize) {
        until("the operator looks again", || self.looks(server) > before).await;
    }

    /// What it has counted, in the words of Prometheus.
    pub(super) async fn metrics(&self) -> String {
        let answer = self.ask("/metrics").await;
        assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4"));
        answer.body
    }

    /// Whether it says that it can do its part.
    pub(super) async fn is_ready(&self) -> bool {
        self.ask("/readyz").await.status.is_success()
    }

    async fn ask(&self, path: &str) -> Answer {
        let log = self.log();
        let mut events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let address = events.find_map(|event| event["probes"].as_str()?.parse().ok());
        let address = address.expect("it says where it is to be asked");
        let port = Endpoint { address, host: "localhost".to_owned(), path: path.to_owned() };
        port.send(Method::GET, &[], "", PATIENCE).await.unwrap()
    }

    /// The most memory that it has had.
    pub(super) fn most_resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux says so");
        peak.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Whether the process has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    /// Asks it to end, and waits until it has. Returns whether it ended well.
    pub(super) fn stop(&mut self) -> bool {
        stop(&mut self.process)
    }

    /// Kills it.
    pub(super) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        show_end_of_log("an operator", &self.log());
    }
}

/// Asks a process to end, and waits until it has. Returns whether it ended well.
pub(crate) fn stop(process: &mut Child) -> bool {
    let pid = nix::unistd::Pid::from_raw(process.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = process.try_wait().unwrap() {
            return status.success();
        }
        assert!(Instant::now() < deadline, "it was asked to end, and goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Makes an account for an operator that has this role in the namespace. Gives its kubeconfig.
pub(super) fn account_with(namespace: &Namespace<'_>, role: &str) -> String {
    let (cluster, name) = (namespace.cluster(), namespace.name());
    kubectl(cluster, &["create", "serviceaccount", name, "--namespace", NAMESPACE], None).unwrap();
    for (place, role) in [(name, role), (NAMESPACE, "role=longshore-leader")] {
        let (role, account) = (format!("--{role}"), format!("--serviceaccount={NAMESPACE}:{name}"));
        let binding = ["create", "rolebinding", name, &role, &account, "--namespace", place];
        kubectl(cluster, &binding, None).unwrap();
    }
    kubeconfig_of(cluster, name)
}

/// Takes one of its rights from an operator with an account of [`account_with`].
pub(super) fn take_away(namespace: &Namespace<'_>, verb: &str, resource: &str) {
    let (cluster, name) = (namespace.cluster(), namespace.name());
    let role = format!("--{}", role_without(namespace, verb, resource));
    let account = format!("--serviceaccount={NAMESPACE}:{name}");
    for arguments in
        [&["delete", "rolebinding", name][..], &["create", "rolebinding", "fewer", &role, &account]]
    {
        kubectl(cluster, &[arguments, &["--namespace", name]].concat(), None).unwrap();
    }
}

/// Makes a role that lacks one of an operator's rights. Gives what to bind.
fn role_without(namespace: &Namespace<'_>, verb: &str, resource: &str) -> String {
    let role = kubectl(namespace.cluster(), &["get", "clusterrole", "longshore", "-o", "json"], None);
    let mut role: Value = serde_json::from_str(&role.unwrap()).unwrap();
    role["kind"] = json!("Role");
    role["metadata"] = json!({"name": namespace.name(), "namespace": namespace.name()});
    let rules = role["rules"].as_array_mut().unwrap().iter_mut();
    let mut rules = rules.filter(|rule| rule["resources"] == json!([resource]));
    let verbs = rules.next().expect("it has the right").get_mut("verbs").unwrap().as_array_mut().unwrap();
    verbs.retain(|it| it != verb);
    // A rule without verbs is none that Kubernetes takes.
    verbs.push(json!("deletecollection"));
    kubectl(namespace.cluster(), &["apply", "-f"], Some(&role.to_string())).unwrap();
    format!("role={}", namespace.name())
}

/// Gives an operator back the right that it started without.
pub(super) fn give_back(namespace: &Namespace<'_>) {
    let account = format!("--serviceaccount={NAMESPACE}:{}", namespace.name());
    let binding = ["create", "rolebinding", "all", "--clusterrole=longshore", &account];
    kubectl(namespace.cluster(), &[&binding[..], &["--namespace", namespace.name()]].concat(), None).unwrap();
}

/// Forbids changes of objects in a namespace, as somebody's policy would, but for those of which this is true. The answer
/// takes it back: `kubectl delete` and this.
pub(super) async fn permit_only(namespace: &Namespace<'_>, resource: &str, expression: &str) -> [String; 2] {
    let (group, resource) = resource.rsplit_once('/').unwrap_or(("", resource));
    let policy = format!("{resource}-{}", namespace.name());
    let policy_and_binding = json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": policy},
            "spec": {
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [group], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": [resource],
                }]},
                "validations": [{"expression": expression}],
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": policy},
            "spec": {"policyName": policy, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": {
                "matchLabels": {"kubernetes.io/metadata.name": namespace.name()},
            }}},
        },
    ]});
    namespace.apply(&policy_and_binding.to_string()).await;
    ["validatingadmissionpolicy,validatingadmissionpolicybinding".to_owned(), policy]
}

/// Waits until kubectl is refused this.
pub(super) async fn wait_until_refused(namespace: &Namespace<'_>, arguments: &[&str]) {
    eventually("it is refused", async || {
        namespace.kubectl(arguments).await.is_err().then_some(()).ok_or("it is not")
    })
    .await;
}

/// Shows the end of a program's log, if the test fails.
pub(crate) fn show_end_of_log(whose: &str, log: &str) {
    if std::thread::panicking() {
        let tail: Vec<_> = log.lines().rev().take(40).collect();
        eprintln!("---- the end of {whose}'s log");
        tail.iter().rev().for_each(|line| eprintln!("{line}"));
    }
}

/// The cluster's kubeconfig as a service account of the release has it.
pub(crate) fn kubeconfig_of(cluster: &Cluster, account: &str) -> String {
    let token = kubectl(cluster, &["create", "token", account, "--namespace", NAMESPACE], None).unwrap();
    let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let mut config: Value = serde_saphyr::from_str(&text).unwrap();
    config["users"][0]["user"] = json!({ "token": token.trim() });
    config.to_string()
}

/// One of a server's conditions.
pub(super) fn condition(server: &McpServer, type_: &str) -> Option<Condition> {
    server.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == type_).cloned()
}

/// Whether a condition has this status and reason.
pub(crate) fn is(server: &McpServer, type_: &str, status: &str, reason: &str) -> bool {
    condition(server, type_).is_some_and(|condition| condition.status == status && condition.reason == reason)
}

/// Waits until a server's condition has this status and reason, and returns the condition's message.
pub(super) async fn wait_for(namespace: &Namespace<'_>, type_: &str, status: &str, reason: &str) -> String {
    let servers = namespace.api::<McpServer>();
    let what = format!("to have {type_}={status}, {reason}");
    let server = namespace.wait(&servers, "demo", &what, |server| is(server, type_, status, reason)).await;
    condition(&server, type_).unwrap().message
}

/// The messages of all events of this reason.
pub(super) async fn events(namespace: &Namespace<'_>, reason: &str) -> Vec<String> {
    let events: Api<Event> = namespace.api();
    let all = events.list(&Default::default()).await.unwrap().items;
    let these = all.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
    these.filter_map(|event| event.message).collect()
}

/// The same, once there are so many. They are written after what they tell of has been done.
pub(super) async fn wait_for_events(namespace: &Namespace<'_>, reason: &str, count: usize) -> Vec<String> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let told = events(namespace, reason).await;
        if told.len() >= count || tokio::time::Instant::now() > deadline {
            return told;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits for something that no watch tells.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(tokio::time::Instant::now() < deadline, "was waiting until {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A request of an operator, from the API server's audit log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Request {
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) code: i64,
}

/// What operators asked of the API server about a namespace since the audit log had `from` lines.
pub(crate) fn requests(cluster: &Cluster, namespace: &str, from: usize) -> Vec<Request> {
    let text = std::fs::read_to_string(cluster.spec().unwrap().audit_log()).unwrap_or_default();
    let events = text.lines().skip(from).filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let requests = events.filter_map(|event| {
        let object = &event["objectRef"];
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let subresource = object["subresource"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
        Some(Request {
            verb: word(&event["verb"]),
            group: word(&object["apiGroup"]),
            resource: word(&object["resource"]) + &subresource,
            namespace: word(&object["namespace"]),
            name: word(&object["name"]),
            code: event["responseStatus"]["code"].as_i64()?,
        })
    });
    requests.filter(|request| request.namespace == namespace || request.name == namespace).collect()
}

/// How many lines the audit log has.
pub(crate) fn audit_lines(cluster: &Cluster) -> usize {
    std::fs::read_to_string(cluster.spec().unwrap().audit_log()).map_or(0, |text| text.lines().count())
}

/// The verbs and resources of some requests.
pub(crate) fn kinds(requests: &[Request]) -> BTreeSet<(String, String, String)> {
    let kind = |request: &Request| (request.group.clone(), request.resource.clone(), request.verb.clone());
    requests.iter().map(kind).collect()
}
