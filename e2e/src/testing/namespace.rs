//! A namespace that belongs to one test.

use std::process::{Command, Stdio};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::{Api, Client, Resource};

use super::report;
use crate::cluster::Cluster;

/// The label of every namespace that a test made: `kubectl delete namespace -l longshore.dev/e2e` clears them away.
const LABEL: &str = "longshore.dev/e2e";

/// A namespace with a random name, that exists as long as its test.
pub struct Namespace<'a> {
    cluster: &'a Cluster,
    client: Client,
    name: String,
}

impl<'a> Namespace<'a> {
    pub(super) async fn create(cluster: &'a Cluster) -> Self {
        let client =
            cluster.client().await.unwrap_or_else(|error| panic!("no client for the cluster: {error}"));
        let object = v1::Namespace {
            metadata: ObjectMeta {
                generate_name: Some("e2e-".into()),
                labels: Some([(LABEL.to_owned(), std::process::id().to_string())].into()),
                ..ObjectMeta::default()
            },
            ..v1::Namespace::default()
        };
        let created = Api::all(client.clone()).create(&PostParams::default(), &object).await;
        let created: v1::Namespace = match (created, cluster.failure()) {
            (Ok(created), _) => created,
            (Err(_), Some(failure)) => panic!("the cluster failed: {failure}"),
            (Err(error), None) => panic!("cannot make a namespace: {error}"),
        };
        Self { cluster, client, name: created.metadata.name.unwrap_or_default() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The cluster that it is in.
    #[must_use]
    pub fn cluster(&self) -> &'a Cluster {
        self.cluster
    }

    /// An administrator's client.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The objects of a kind in this namespace.
    #[must_use]
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client(), &self.name)
    }

    /// Applies manifests, as a user would: `kubectl apply`. Returns what it said, warnings included.
    pub async fn apply(&self, manifests: &str) -> String {
        match self.try_apply(manifests).await {
            Ok(said) => said,
            Err(refusal) => panic!("kubectl apply: {refusal}"),
        }
    }

    /// The same, where a refusal is what is tested: `Err` holds the sentence that the user reads.
    pub async fn try_apply(&self, manifests: &str) -> Result<String, String> {
        self.kubectl_with(&["apply", "-f", "-"], manifests).await
    }

    /// Runs kubectl in this namespace. `Err` holds what it said on standard error.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        self.kubectl_with(arguments, "").await
    }

    /// A command on the node (see [`Cluster::command`]).
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        self.cluster
            .command(program)
            .unwrap_or_else(|error| panic!("cannot run {program} on the node: {error}"))
    }

    async fn kubectl_with(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut command = self.command("kubectl");
        command.args(["--namespace", &self.name]).args(arguments);
        output(command, input.to_owned()).await
    }

    /// Tells on standard error what the namespace held.
    pub(super) async fn report(&self) {
        let cluster = self.cluster;
        if let Some(failure) = cluster.failure() {
            report::say(&format!("the cluster failed: {failure}"));
            return;
        }
        for (title, arguments) in report::sections(&self.name) {
            let mut command = self.command("kubectl");
            command.args(arguments);
            let said = output(command, String::new()).await;
            report::say(&format!("---- {title}\n{}", report::told(&said.unwrap_or_else(|error| error))));
        }
        if cluster.spec().is_some()
            && let Ok(folder) = cluster.keep_logs().await
        {
            report::say(&format!("---- the cluster's own logs will be in {}", folder.display()));
        }
    }

    pub(super) async fn delete(self) {
        // Not waited for: the cluster may outlive it, and nobody else uses its name.
        let namespaces: Api<v1::Namespace> = Api::all(self.client);
        let _ = namespaces.delete(&self.name, &DeleteParams::background()).await;
    }
}

/// Runs a command to its end. What it prints on standard error is part of the answer: kubectl warns there.
async fn output(mut command: Command, input: String) -> Result<String, String> {
    let finished = tokio::task::spawn_blocking(move || {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(mut pipe) = child.stdin.take() {
            std::io::Write::write_all(&mut pipe, input.as_bytes())?;
        }
        child.wait_with_output()
    });
    let output = match finished.await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(error.to_string()),
        Err(error) => return Err(error.to_string()),
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned() + &said)
    } else {
        Err(said)
    }
}
