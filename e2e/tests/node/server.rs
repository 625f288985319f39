//! An `McpServer` under test: made, waited for, and read as a user would.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use longshore_crds::McpServer;
use longshore_e2e::testing::{Namespace, PATIENCE, eventually};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

/// A manifest of the Go SDK server for everybody, with these arguments.
pub(crate) fn go_server(name: &str, args: &[&str]) -> String {
    format!(
        "apiVersion: longshore.dev/v1alpha1
kind: McpServer
metadata: {{name: {name}}}
spec:
  source: {{image: '{GO_IMAGE}', args: {args:?}}}
  transport: {{streamableHttp: {{port: 3000}}}}
  auth: {{none: {{}}}}
  access: {{rules: [{{name: all, tools: ['*'], prompts: ['*'], resources: ['*']}}]}}
"
    )
}

/// The same for callers whose keys are in this Secret.
pub(crate) fn keyed(manifest: &str, secret: &str) -> String {
    manifest.replace("auth: {none: {}}", &format!("auth: {{apiKeys: {{secretRef: {{name: {secret}}}}}}}"))
}

/// The image of the Go SDK server, as `examples/` has it.
pub(crate) const GO_IMAGE: &str = "localhost/go-server:1.8.0";

/// Has the namespace let no pod in that has more rights than the strictest of Kubernetes' standards gives.
pub(crate) async fn restrict(namespace: &Namespace<'_>) {
    let enforce = "pod-security.kubernetes.io/enforce=restricted";
    namespace.kubectl(&["label", "namespace", namespace.name(), enforce]).await.expect("it has a label");
    // Whoever admits pods hears of it with a lag.
    let ordinary = ["run", "ordinary", "--image=ordinary", "--dry-run=server"];
    eventually("an ordinary pod is refused", async || match namespace.kubectl(&ordinary).await {
        Err(said) if said.contains("violates PodSecurity \"restricted:") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

/// The condition of this type.
pub(crate) fn condition<'a>(server: &'a McpServer, type_: &str) -> Option<&'a Condition> {
    server.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition is so: `("Ready", "True", "")`; an empty reason is any.
pub(crate) fn is(server: &McpServer, (type_, status, reason): (&str, &str, &str)) -> bool {
    condition(server, type_).is_some_and(|condition| {
        condition.status == status
            && (reason.is_empty() || condition.reason == reason)
            && condition.observed_generation <= server.metadata.generation
    })
}

/// Waits until the server's condition is so.
pub(crate) async fn becomes(namespace: &Namespace<'_>, name: &str, wanted: (&str, &str, &str)) -> McpServer {
    let what = format!("to have the condition {wanted:?}");
    let servers = namespace.api::<McpServer>();
    namespace.wait(&servers, name, &what, |server| is(server, wanted) && is_current(server)).await
}

/// Whether the status speaks of the manifest as it is now.
pub(crate) fn is_current(server: &McpServer) -> bool {
    server.status.as_ref().and_then(|status| status.observed_generation) == server.metadata.generation
}

/// How long a kubelet takes to have restarted a container twice that dies at once, and a little more.
pub(crate) const RESTARTS: Duration = Duration::from_secs(16);

/// Looks at the server for a while and fails if one of its conditions ever is not so.
pub(crate) async fn stays(
    namespace: &Namespace<'_>,
    name: &str,
    wanted: &[(&str, &str, &str)],
    time: Duration,
) {
    let what = format!("with the conditions {wanted:?}");
    let servers = namespace.api::<McpServer>();
    let is_so = |server: &McpServer| wanted.iter().all(|wanted| is(server, *wanted));
    namespace.stays(&servers, name, &what, time, is_so).await;
}

/// What people read of a server whose new version fails, restarts or not.
pub(crate) const FAILS_OVER_ONE_THAT_WORKS: [(&str, &str, &str); 4] = [
    ("Accepted", "True", "Accepted"),
    ("Available", "True", "RolloutFailing"),
    ("Connected", "True", "Connected"),
    ("Ready", "True", "ServingPrevious"),
];

/// The URL that a ready server's status gives.
pub(crate) fn url(server: &McpServer) -> String {
    server.status.as_ref().and_then(|status| status.url.clone()).expect("a ready server has a URL")
}

/// The same, once the Service leads there: kube-proxy follows the endpoints with a lag of a second, or of up to a minute
/// where the API server was away before, since clients of Kubernetes then ask ever less often.
pub(crate) async fn url_that_leads_there(namespace: &Namespace<'_>, server: &McpServer) -> String {
    let service =
        namespace.api::<Service>().get(&server.name_any()).await.expect("a ready server has a Service");
    let address = service.spec.and_then(|spec| spec.cluster_ip).expect("the Service has an address");
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = TcpStream::connect((address.as_str(), 80)).await {
        assert!(Instant::now() < deadline, "the Service leads nowhere: {error}");
        sleep(Duration::from_millis(50)).await;
    }
    url(server)
}
