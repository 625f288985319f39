//! What the API server takes and what it refuses at `kubectl apply`, with the sentences that people read.
//!
//! The rules are in the schema and nothing of Longshore's runs here. Requests are those of `kubectl apply`: unknown
//! fields are errors. They are dry runs, so no case sees another.

mod cases;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use kube::Client;
use longshore_e2e::cluster::{Shape, run};
use longshore_e2e::testing::Stage;
use serde_json::{Value, json};

use cases::{ACCEPTED, REFUSED};

/// The least that is a server. Each case merges something into it; `null` takes a field out.
const LEAST: &str = "
apiVersion: longshore.dev/v1alpha1
kind: McpServer
metadata: {name: server, namespace: default}
spec:
  source: {image: 'registry.example/server:1'}
  transport: {streamableHttp: {port: 3000}}
  auth: {none: {}}
";

/// A cluster that knows Longshore's kinds, as `longshore crds | kubectl apply -f -` would leave it.
static STAGE: Stage = Stage::prepared(Shape::Api, |cluster| {
    let manifests = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/longshore-crds/templates");
    let mut kubectl = cluster.command("kubectl").map_err(|error| error.to_string())?;
    kubectl.args(["apply", "-f", manifests]);
    run(kubectl).map_err(|error| error.to_string())?;
    let mut kubectl = cluster.command("kubectl").map_err(|error| error.to_string())?;
    kubectl.args(["wait", "--for=condition=Established", "crd", "--all"]);
    run(kubectl).map(|_| ()).map_err(|error| error.to_string())
});

#[test]
fn manifests_are_taken_or_refused_with_a_sentence() {
    STAGE.with_namespace(async |namespace| check(&namespace.client()).await);
}

#[test]
fn what_the_documents_show_is_taken() {
    STAGE.with_namespace(async |namespace| check_documents(&namespace.client()).await);
}

/// Programs that know no McpServers (kstatus, and so Helm and Flux) would take a new one without a status for one that is
/// as it should be.
#[test]
fn a_server_that_no_operator_has_looked_at_says_so() {
    STAGE.with_namespace(async |namespace| {
        let mut manifest: Value = serde_saphyr::from_str(LEAST).unwrap();
        manifest["metadata"]["namespace"] = json!(namespace.name());
        // Who applies it says nothing of how it is.
        manifest["status"] = json!({"url": "http://other.example/mcp"});
        namespace.apply(&manifest.to_string()).await;
        let shown = async || {
            let server = namespace.kubectl(&["get", "lmcp", "server", "-o", "json"]).await.unwrap();
            serde_json::from_str::<Value>(&server).unwrap()["status"].take()
        };
        let unseen = shown().await;
        assert_eq!(unseen["observedGeneration"], -1);
        let listed = namespace.kubectl(&["get", "lmcp", "server", "--no-headers"]).await.unwrap();
        assert!(listed.contains(" Unknown ") && listed.contains(" Pending "), "{listed}");
        namespace.kubectl(&["scale", "lmcp", "server", "--replicas=2"]).await.unwrap();
        assert_eq!(shown().await, unseen);
        let status = r#"--patch={"status":{"observedGeneration":2}}"#;
        let patch = ["patch", "lmcp", "server", "--subresource=status", "--type=merge", status];
        namespace.kubectl(&patch).await.unwrap();
        assert_eq!(shown().await["observedGeneration"], 2);
    });
}

/// As docs/sessions.md says, for a HorizontalPodAutoscaler.
#[test]
fn the_number_of_pods_may_be_left_to_somebody_else() {
    STAGE.with_namespace(async |namespace| {
        let file = |name: &str, more: &str| {
            let mut manifest: Value = serde_saphyr::from_str(LEAST).unwrap();
            merge(&mut manifest, serde_saphyr::from_str(more).unwrap());
            manifest["metadata"] = json!({"name": name});
            let file = tempfile::NamedTempFile::with_suffix(".json").unwrap();
            std::fs::write(file.path(), manifest.to_string()).unwrap();
            file
        };
        let kubectl = async |arguments: &[&str], file: &tempfile::NamedTempFile| {
            let file = ["-f", file.path().to_str().unwrap()];
            namespace.kubectl(&[arguments, &file].concat()).await.unwrap();
        };
        let replicas = async |name: &str| {
            namespace.kubectl(&["get", "lmcp", name, "-o", "jsonpath={.spec.replicas}"]).await.unwrap()
        };
        let gitops = ["apply", "--server-side", "--field-manager=gitops"];
        let autoscaler = ["apply", "--server-side", "--field-manager=autoscaler"];
        let number = "{spec: {replicas: 10, source: null, transport: null, auth: null}}";
        for (name, applies, hands_over, left) in [
            ("simply", &["apply"][..], None, "1"),
            ("last", &["apply"], Some((&["apply", "set-last-applied"][..], "{}")), "10"),
            ("server-simply", &gitops, None, "1"),
            ("server", &gitops, Some((&autoscaler, number)), "10"),
        ] {
            kubectl(applies, &file(name, "{spec: {replicas: 10}}")).await;
            if let Some((arguments, manifest)) = hands_over {
                kubectl(arguments, &file(name, manifest)).await;
            }
            kubectl(applies, &file(name, "{}")).await;
            assert_eq!(replicas(name).await, left, "{name}");
        }
    });
}

/// Checks every case, and tells of all that went wrong at once.
async fn check(client: &Client) {
    let mut wrong = Vec::new();
    for case in ACCEPTED {
        if let Err(message) = apply(client, case).await {
            wrong.push(format!("refused: {case}\n  {message}"));
        }
    }
    for (case, sentence) in REFUSED {
        match apply(client, case).await {
            Ok(_) => wrong.push(format!("accepted: {case}")),
            Err(message) if !message.contains(sentence) => {
                wrong.push(format!("refused: {case}\n  with:    {message}\n  without: {sentence}"));
            }
            Err(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every manifest that the README, the documents and the examples show is taken as it stands.
async fn check_documents(client: &Client) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut manifests = Vec::new();
    for folder in ["", "docs", "examples", "examples/local"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let text = match path.extension().and_then(|extension| extension.to_str()) {
                Some("md") => code_blocks(&fs::read_to_string(&path).unwrap()),
                Some("yaml") => fs::read_to_string(&path).unwrap(),
                _ => continue,
            };
            let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let servers = documents.into_iter().filter(|document| document["kind"] == "McpServer");
            manifests.extend(servers.map(|server| (path.clone(), server)));
        }
    }
    assert!(manifests.len() >= 4, "the manifests were not found");
    for (path, manifest) in manifests {
        if let Err(message) = create(client, &manifest).await {
            panic!("{}: {message}", path.display());
        }
    }
}

/// The YAML blocks of a page, as one stream of documents.
fn code_blocks(markdown: &str) -> String {
    let blocks = markdown.split("```yaml\n").skip(1).filter_map(|rest| rest.split_once("```"));
    blocks.map(|(block, _)| format!("---\n{block}")).collect()
}

/// A rule that no case breaks is a rule that nobody knows to work.
#[test]
fn every_rule_of_the_schema_is_broken_by_a_case() {
    let mut rules = BTreeSet::new();
    for definition in longshore_crds::manifests().unwrap() {
        sentences(&serde_json::to_value(definition).unwrap(), &mut rules);
    }
    rules.retain(|rule| !REFUSED.iter().any(|(_, sentence)| sentence.ends_with(rule.as_str())));
    assert!(rules.is_empty(), "no case breaks these: {rules:#?}");
}

fn sentences(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(object) => {
            for rule in object.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten()
            {
                found.insert(rule["message"].as_str().unwrap().to_owned());
            }
            object.values().for_each(|value| sentences(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| sentences(item, found)),
        _ => {}
    }
}

/// Asks the API server for [`LEAST`] with `change` in it, as `kubectl apply` would, and leaves nothing behind.
async fn apply(client: &Client, change: &str) -> Result<Value, String> {
    let mut manifest: Value = serde_saphyr::from_str(LEAST).unwrap();
    merge(&mut manifest, serde_saphyr::from_str(change).unwrap());
    create(client, &manifest).await
}

async fn create(client: &Client, manifest: &Value) -> Result<Value, String> {
    let request = http::Request::post(
        "/apis/longshore.dev/v1alpha1/namespaces/default/mcpservers?dryRun=All&fieldValidation=Strict",
    )
    .header("content-type", "application/json")
    .body(serde_json::to_vec(manifest).unwrap())
    .unwrap();
    match client.request::<Value>(request).await {
        Ok(object) => Ok(object),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => panic!("the API server did not answer: {error}"),
    }
}

/// A JSON merge patch (RFC 7396).
fn merge(target: &mut Value, change: Value) {
    match (target, change) {
        (Value::Object(target), Value::Object(change)) => {
            for (name, value) in change {
                if value.is_null() {
                    target.remove(&name);
                } else {
                    merge(target.entry(name).or_insert(Value::Null), value);
                }
            }
        }
        (target, change) => *target = change,
    }
}
