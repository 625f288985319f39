//! Pieces of schema that the derive cannot make.
//!
//! Two things shape them. The whole definition stays under [`crate::manifest::MAX_BYTES`], so that a plain `kubectl
//! apply` can hold it in its annotation: Kubernetes' own types come without their descriptions, and what would need a
//! pod's schema is kept as it is written. And the API server estimates the cost of every CEL rule from the bounds in
//! the schema, so whatever a rule reads has a bound.

use k8s_openapi::api::core::v1::{EnvVar, PodSecurityContext, ResourceRequirements};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::names;

/// A Kubernetes type as Kubernetes describes it, without the prose: `kubectl explain pod.spec` has it.
pub(crate) fn kubernetes<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = generator.subschema_for::<T>();
    if let Some(object) = schema.as_object_mut() {
        object.values_mut().for_each(strip_descriptions);
        object.remove("description");
    }
    schema
}

/// Removes `description` wherever it is a keyword. (No Kubernetes type used here has a property of that name.)
fn strip_descriptions(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.remove("description");
            object.values_mut().for_each(strip_descriptions);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_descriptions),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// An object that is kept as written.
pub(crate) fn unknown_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Names of Kubernetes objects (a DNS subdomain).
pub(crate) const OBJECT_NAME: &str =
    r"self.matches(r'^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')";

/// Times of a second to a month, as a rule and the sentence of those who break it. All parts but the first may be 0:
/// programs in Go write a day as `24h0m0s`.
pub(crate) const SECOND_TO_MONTH: (&str, &str) = (
    r"self.matches(r'^[1-9]\d*[smh](\d+[smh])*$') && duration(self)<=duration('720h')",
    "write a time from 1s to 720h, such as `90s`, `30m` or `24h`",
);

/// One rule, as the API server reads it.
fn rule(rule: &str, message: &str) -> Value {
    json!({ "rule": rule, "message": message })
}

/// Objects that are kept as written, but for the name that `rules` read.
fn named_objects(max_items: u32, name_rules: &[Value]) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": max_items,
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 63,
                    "x-kubernetes-validations": name_rules,
                },
            },
            "x-kubernetes-preserve-unknown-fields": true,
        },
    })
}

fn volume_name_rule() -> Value {
    rule(
        &format!("!self.startsWith('{}')", names::VOLUME_PREFIX),
        &format!("volumes named `{}...` are Longshore's: choose another name", names::VOLUME_PREFIX),
    )
}

fn container_name_rule() -> Value {
    rule(
        &format!("self != '{}'", names::SIDECAR_CONTAINER),
        &format!(
            "the container `{}` may not be changed here: its settings are in spec.sidecar, and the server's \
             container is named `{}`",
            names::SIDECAR_CONTAINER,
            names::SERVER_CONTAINER
        ),
    )
}

/// `spec.pod.volumes`.
pub(crate) fn volumes(_: &mut SchemaGenerator) -> Schema {
    let mut schema = named_objects(64, &[volume_name_rule()]);
    schema.insert("x-kubernetes-list-type".to_owned(), "map".into());
    schema.insert("x-kubernetes-list-map-keys".to_owned(), vec!["name"].into());
    schema
}

/// `spec.pod.volumeMounts`. Written out, since rules read the names and paths and so need their bounds.
pub(crate) fn volume_mounts(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["mountPath"],
        "items": {
            "type": "object",
            "required": ["mountPath", "name"],
            "properties": {
                "name": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 63,
                    "x-kubernetes-validations": [volume_name_rule()],
                },
                "mountPath": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 512,
                    "x-kubernetes-validations": [
                        rule(
                            "self.matches(r'^/') && !self.contains('//') && !self.matches(r'/[.]{1,2}(/|$)')",
                            "write an absolute path without `//`, `.` and `..`, such as `/data`",
                        ),
                        rule(
                            r"!self.matches(r'^/((run|etc)/?)?$') && !self.matches(r'^/(run|etc)/longshore(/|$)')",
                            "/run/longshore and /etc/longshore are Longshore's and may not be hidden: mount the \
                             volume elsewhere, such as at `/data`",
                        ),
                    ],
                },
                // `Bidirectional` is for privileged containers, which a server's is not.
                "mountPropagation": { "type": "string", "enum": ["None", "HostToContainer"] },
                "readOnly": { "type": "boolean" },
                "recursiveReadOnly": { "type": "string", "enum": ["Disabled", "IfPossible", "Enabled"] },
                "subPath": { "type": "string", "maxLength": 512 },
                "subPathExpr": { "type": "string", "maxLength": 512 },
            },
        },
    })
}

/// `spec.pod.overrides`: a partial pod template of which only those fields are declared that rules read.
pub(crate) fn overrides(_: &mut SchemaGenerator) -> Schema {
    let host = |field: &str, what: &str| {
        json!({
            "type": "boolean",
            "x-kubernetes-validations": [rule(
                "!self",
                &format!("leave {field} out: a server may not share {what} with its node"),
            )],
        })
    };
    json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "spec": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {
                    "containers": named_objects(16, &[container_name_rule()]),
                    "initContainers": named_objects(16, &[container_name_rule()]),
                    "volumes": named_objects(64, &[volume_name_rule()]),
                    "hostNetwork": host("hostNetwork", "the network"),
                    "hostPID": host("hostPID", "processes"),
                    "hostIPC": host("hostIPC", "memory"),
                },
            },
        },
    })
}

/// What a container requests and may use: Kubernetes' own, with amounts that are amounts.
pub(crate) fn resources(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = kubernetes::<ResourceRequirements>(generator);
    for field in ["limits", "requests"] {
        let property = schema.pointer_mut(&format!("/properties/{field}")).and_then(Value::as_object_mut);
        if let Some(property) = property {
            property.insert("maxProperties".to_owned(), 16.into());
            property.insert(
                "additionalProperties".to_owned(),
                json!({
                    "x-kubernetes-int-or-string": true,
                    "maxLength": 32,
                    "x-kubernetes-validations": [rule(
                        "type(self) == int || isQuantity(string(self))",
                        "write an amount such as `250m` of CPU or `128Mi` of memory",
                    )],
                }),
            );
        }
    }
    schema
}

/// The same for the sidecar, which has no use for devices.
pub(crate) fn sidecar_resources(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = resources(generator);
    remove(&mut schema, "claims");
    schema
}

fn remove(schema: &mut Schema, property: &str) {
    remove_at(schema, "/properties", property);
}

fn remove_at(schema: &mut Schema, pointer: &str, property: &str) {
    if let Some(properties) = schema.pointer_mut(pointer).and_then(Value::as_object_mut) {
        properties.remove(property);
    }
}

/// `spec.source.env`.
pub(crate) fn environment(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = kubernetes::<Vec<EnvVar>>(generator);
    // Of 1.34, and off there: older API servers do not know it, and would refuse the Deployment.
    remove_at(&mut schema, "/items/properties/valueFrom/properties", "fileKeyRef");
    schema
}

/// `spec.pod.securityContext`: Kubernetes' own, but neither root's user nor the sidecar's user and group.
pub(crate) fn security_context(generator: &mut SchemaGenerator) -> Schema {
    let group = || {
        rule(
            &format!("self != {}", names::SIDECAR_USER),
            &format!("{} is the sidecar's group: choose another, such as 10001", names::SIDECAR_USER),
        )
    };
    let rules = [
        (
            "runAsUser",
            vec![
                rule("self != 0", "0 is root: choose another user, such as 10001, or leave runAsUser out"),
                rule(
                    &format!("self != {}", names::SIDECAR_USER),
                    &format!("{} is the sidecar's user: choose another, such as 10001", names::SIDECAR_USER),
                ),
            ],
        ),
        ("runAsGroup", vec![group()]),
        ("fsGroup", vec![group()]),
        ("runAsNonRoot", vec![rule("self", "leave runAsNonRoot out: a server may not run as root")]),
    ];
    let mut schema = kubernetes::<PodSecurityContext>(generator);
    // Longshore's programs are for Linux.
    remove(&mut schema, "windowsOptions");
    for (field, rules) in rules {
        let property = schema.pointer_mut(&format!("/properties/{field}")).and_then(Value::as_object_mut);
        if let Some(property) = property {
            property.insert("x-kubernetes-validations".to_owned(), rules.into());
        }
    }
    schema
}

/// A map of annotations. Rules read the keys.
pub(crate) fn annotations(_: &mut SchemaGenerator) -> Schema {
    map(&json!({ "type": "string", "maxLength": 4096 }))
}

/// A map of labels, or of those of nodes. Rules read the keys.
pub(crate) fn labels(_: &mut SchemaGenerator) -> Schema {
    map(
        &json!({ "type": "string", "maxLength": 63, "pattern": r"^([A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?)?$" }),
    )
}

fn map(values: &Value) -> Schema {
    json_schema!({ "type": "object", "maxProperties": 64, "additionalProperties": values })
}

/// What a glob is made of: characters, `\` with one, `[ab]`, and `{a,b}` of those. A subset of what the sidecar's
/// matcher takes, so that a glob that is refused is refused here and not by a condition later; only ranges that run
/// backwards (`[z-a]`) and classes of more than ASCII pass, which would make it too dear for the API server.
const GLOB: &str =
    r"^([^\\\[{}]|\\.|\[[!^]?[^\[\]!^][^\[\]]*\]|\{([^\\\[{}]|\\.|\[[!^]?[^\[\]!^][^\[\]]*\])*\})+$";

/// Globs over names: MCP's tool names have at most 128 characters.
pub(crate) fn name_globs(_: &mut SchemaGenerator) -> Schema {
    globs(64, 128)
}

/// Globs over URIs, which are longer. The bounds are about as wide as the API server's budget for rules lets them be.
pub(crate) fn uri_globs(_: &mut SchemaGenerator) -> Schema {
    globs(32, 240)
}

fn globs(max_items: u32, max_length: u32) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": max_items,
        "items": {
            "type": "string",
            "maxLength": max_length,
            "x-kubernetes-validations": [rule(
                &format!("self.matches(r'{GLOB}')"),
                "write a glob such as `get_*`: `[` needs its `]`, `{` its `}`, braces do not nest, and a backslash \
                 escapes the next character",
            )],
        },
    })
}

/// `spec.expose.allowedOrigins`.
pub(crate) fn origins(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "maxLength": 512,
            "x-kubernetes-validations": [rule(
                r"self.matches(r'^[a-z][-+.a-z0-9]*://([-._a-z0-9]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?$')",
                "write the origin as a browser sends it, `scheme://host[:port]` in lower case and without a path, \
                 such as `https://app.example.com`; wildcards are not supported",
            )],
        },
    })
}

/// Skips, when an object is written, what it would have anyway.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
