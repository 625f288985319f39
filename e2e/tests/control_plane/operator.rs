//! The operator against a real API server with real controllers and without a node: what it makes, mends and removes,
//! and what happens when it or the API server dies.
//!
//! Each test has a namespace and operators of its own that watch nothing else, with the rights that the chart gives.

mod contested;
mod contracts;
mod ending;
mod expired;
mod gate;
mod heavy;
mod keys;
mod leadership;
mod limits;
mod line;
pub(crate) mod node;
mod objects;
mod others;
mod outages;
mod quiet;
mod references;
mod replicas;
mod rights;
mod rivals;
mod scopes;
pub(crate) mod stand;
mod status;
mod takeover;
mod touched;
mod webhooks;

use std::sync::LazyLock;

use longshore_e2e::cluster::Shape;
use longshore_e2e::testing::Stage;

pub(crate) static STAGE: Stage = Stage::prepared(Shape::ControlPlane, stand::install);

/// The least that is a server.
pub(crate) static LEAST: LazyLock<String> = LazyLock::new(|| server("{}"));

/// One whose clients have the keys of the Secret `keys`.
pub(crate) static KEYED: LazyLock<String> =
    LazyLock::new(|| server("{auth: {none: null, apiKeys: {secretRef: {name: keys}}}}"));

/// The least that is a server, with more in its spec.
pub(crate) fn server(more: &str) -> String {
    let more: serde_json::Value = serde_saphyr::from_str(more).unwrap();
    let mut manifest = serde_json::json!({
        "apiVersion": "longshore.dev/v1alpha1",
        "kind": "McpServer",
        "metadata": {"name": "demo"},
        "spec": {
            "source": {"image": "registry.invalid/demo:1"},
            "transport": {"streamableHttp": {"port": 3000}},
            "auth": {"none": {}},
        },
    });
    merge(&mut manifest["spec"], more);
    manifest.to_string()
}

/// JSON merge patch (RFC 7396).
fn merge(target: &mut serde_json::Value, patch: serde_json::Value) {
    let serde_json::Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = serde_json::json!({});
    }
    for (name, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(&name);
        } else {
            merge(&mut target[&name], value);
        }
    }
}
