//! From a manifest to whole objects, compared as a whole.

mod broken;
mod configuration;
mod network;
mod objects;
mod pod;

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longshore_crds::McpServer;
use longshore_sidecar_config::{ApiKey, Upstream};
use serde_json::{Value, json};

use super::*;
use crate::api_keys::ParsedKeys;
use crate::digest;
use crate::mcp_server::condition::{Problem, Reason};
use crate::mcp_server::dereference::{ApiKeysLookup, Dereferenced, Lookup};
use crate::mcp_server::references::Kind;
use crate::mcp_server::validate::validate;
use crate::settings::Sidecar;

fn settings() -> Settings {
    Settings {
        sidecar: Sidecar::of("registry.example/longshore-sidecar:9".to_owned()),
        cluster_domain: "cluster.example".to_owned(),
        callers_from: vec![],
        metrics_from: vec![BTreeMap::from([("team".to_owned(), "monitoring".to_owned())])],
        inventory_subjects: vec!["system:serviceaccount:longshore-system:longshore".to_owned()],
        catalog: true,
        ..Settings::of_tests()
    }
}

/// The name differs from every label and kind, so that no two can be mixed up unseen.
fn manifest(spec: Value) -> McpServer {
    serde_json::from_value(json!({
        "apiVersion": "longshore.dev/v1alpha1",
        "kind": "McpServer",
        "metadata": {"name": "github", "namespace": "tools", "uid": "7b1c", "generation": 3},
        "spec": spec,
    }))
    .unwrap()
}

fn found() -> Dereferenced {
    let mut found = Dereferenced::of_tests();
    found.inventory.subjects = settings().inventory_subjects;
    found
}

fn minimal() -> Value {
    json!({"source": {"image": "example/github:1"}, "transport": {"streamableHttp": {"port": 3000}}, "auth": {"none": {}}})
}

fn with(mut spec: Value, field: &str, value: Value) -> Value {
    let mut place = &mut spec;
    for name in field.split('.') {
        place = &mut place[name];
    }
    *place = value;
    spec
}

fn built(spec: Value) -> Resources<Prepared> {
    build(&validate(&manifest(spec), &found()).unwrap(), &settings()).0
}

/// The template of a server's pods, with the digest that marks it taken out.
fn template(spec: Value) -> Value {
    let mut template =
        serde_json::to_value(built(spec).deployment.unwrap()).unwrap()["spec"]["template"].take();
    let digest =
        template["metadata"]["annotations"].as_object_mut().unwrap().remove("longshore.dev/template");
    assert_eq!(digest.unwrap().as_str().unwrap().len(), 32);
    template
}

fn metadata(name: &str) -> Value {
    json!({
        "name": name,
        "namespace": "tools",
        "labels": labels(),
        "ownerReferences": [{
            "apiVersion": "longshore.dev/v1alpha1", "kind": "McpServer", "name": "github", "uid": "7b1c",
            "controller": true, "blockOwnerDeletion": true,
        }],
    })
}

fn labels() -> Value {
    json!({
        "longshore.dev/server": "github",
        "app.kubernetes.io/component": "mcp-server",
        "app.kubernetes.io/managed-by": "longshore",
        "app.kubernetes.io/name": "mcp-server",
        "app.kubernetes.io/instance": "github",
    })
}

fn selector() -> Value {
    json!({"longshore.dev/server": "github", "app.kubernetes.io/component": "mcp-server"})
}
