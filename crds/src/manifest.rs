//! The manifests of the kinds, as they are installed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::Value;

use crate::McpServer;

/// The largest that a manifest may become. `kubectl apply` keeps a copy of what it applied in an annotation, and an
/// object's annotations may hold 256 KiB; this leaves room for versions to come side by side.
pub const MAX_BYTES: usize = 60_000;

/// Why no manifest could be made. It depends on the types alone, so a test finds it before anybody else does.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The derived definition could not be read back.
    #[error("the derived definition is not one that Kubernetes could read")]
    Definition(#[from] serde_json::Error),
    /// The definition could not be written as YAML.
    #[error("the definition cannot be written as YAML")]
    Yaml(#[from] serde_saphyr::ser::Error),
}

/// Every kind of the group, ready to be applied. This, and not `McpServer::crd()`, is what clusters get.
pub fn manifests() -> Result<Vec<CustomResourceDefinition>, Error> {
    [McpServer::crd()].into_iter().map(ready).collect()
}

/// The manifest as one YAML document, without a separator.
pub fn to_yaml(manifest: &CustomResourceDefinition) -> Result<String, Error> {
    // Most of it is indented deeply, which costs once a line.
    let options = serde_saphyr::ser_options! { folded_wrap_chars: 240 };
    let mut yaml = serde_saphyr::to_string_with_options(&serde_json::to_value(manifest)?, options)?;
    if !yaml.ends_with('\n') {
        yaml.push('\n');
    }
    Ok(yaml)
}

/// Every manifest, one YAML document each: what `longshore crds` prints.
pub fn documents() -> Result<String, Error> {
    let documents: Vec<String> = manifests()?.iter().map(to_yaml).collect::<Result<_, _>>()?;
    Ok(documents.iter().map(|document| format!("---\n{document}")).collect())
}

/// Takes out what the derive writes and an API server is better without.
fn ready(definition: CustomResourceDefinition) -> Result<CustomResourceDefinition, Error> {
    let mut value = serde_json::to_value(definition)?;
    if let Some(versions) = value.pointer_mut("/spec/versions").and_then(Value::as_array_mut) {
        for schema in versions.iter_mut().filter_map(|version| version.pointer_mut("/schema/openAPIV3Schema"))
        {
            tidy(schema);
        }
    }
    Ok(serde_json::from_value(value)?)
}

fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            // With `nullable` a `none: null` would be kept and count as written; without it the API server drops it.
            object.remove("nullable");
            // It takes out what it does not know, and has no other word for that.
            if object.get("additionalProperties") == Some(&Value::Bool(false)) {
                object.remove("additionalProperties");
            }
            // The API server warns about formats that it does not know. The bounds say what these do.
            if matches!(object.get("format").and_then(Value::as_str), Some(format) if format.starts_with("uint"))
            {
                object.remove("format");
            }
            // Lines end where the source's do; `kubectl explain` wraps them anew.
            if let Some(Value::String(description)) = object.get_mut("description") {
                let paragraphs: Vec<String> =
                    description.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect();
                *description = paragraphs.join("\n\n");
            }
            object.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
