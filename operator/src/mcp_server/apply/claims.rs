//! Whether an object still is what was applied, as it says itself. Whoever changes a field of it or takes one out takes that
//! from the field manager that had applied it, which `managedFields` show. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value};

use crate::names::MANAGER;

/// What of an object's metadata a field manager can have.
const OF_METADATA: [&str; 3] = ["annotations", "labels", "ownerReferences"];

/// Whether all that is applied is Longshore's still.
pub(super) fn are_whole(applied: &Value, found: &ObjectMeta) -> bool {
    let Value::Object(applied) = applied else { return false };
    let own = found.managed_fields.iter().flatten().find(|entry| {
        let is_own = entry.manager.as_deref() == Some(MANAGER);
        is_own && entry.operation.as_deref() == Some("Apply") && entry.subresource.is_none()
    });
    let fields = own.and_then(|own| own.fields_v1.as_ref());
    let Some(Value::Object(fields)) = fields.map(|fields| &fields.0) else { return false };
    applied.iter().all(|(name, value)| match name.as_str() {
        "apiVersion" | "kind" => true,
        "metadata" => OF_METADATA.into_iter().all(|name| {
            let of_metadata = fields.get("f:metadata").and_then(Value::as_object);
            value.get(name).is_none_or(|value| of_metadata.is_some_and(|owned| has_field(owned, name, value)))
        }),
        name => has_field(fields, name, value),
    })
}

fn has_field(owned: &Map<String, Value>, name: &str, value: &Value) -> bool {
    // Nobody has what is not there.
    let is_nothing = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    is_nothing || owned.get(&format!("f:{name}")).is_some_and(|owned| has_all(owned, value))
}

fn has_all(owned: &Value, value: &Value) -> bool {
    let Value::Object(owned) = owned else { return false };
    match value {
        // Of what is had as a whole no parts are named.
        _ if owned.is_empty() => true,
        Value::Object(fields) => fields.iter().all(|(name, value)| has_field(owned, name, value)),
        Value::Array(items) => items.iter().all(|item| has_item(owned, item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn has_item(owned: &Map<String, Value>, item: &Value) -> bool {
    owned.iter().any(|(key, owned)| match key.split_once(':') {
        Some(("k", keys)) => names(keys, item) && has_all(owned, item),
        Some(("v", value)) => serde_json::from_str::<Value>(value).is_ok_and(|value| value == *item),
        Some(_) | None => false,
    })
}

/// Whether an item of a list is the one of these keys. The API server says those that it does not say itself, such as the
/// protocol of a port.
fn names(keys: &str, item: &Value) -> bool {
    let Ok(keys) = serde_json::from_str::<Map<String, Value>>(keys) else { return false };
    keys.iter().all(|(name, value)| item.get(name).is_none_or(|own| own == value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As a Deployment's are.
    fn fields() -> Value {
        json!({
            "f:metadata": {
                "f:annotations": {"f:longshore.dev/applied": {}},
                "f:labels": {"f:app": {}},
                "f:ownerReferences": {r#"k:{"uid":"7b1c"}"#: {}},
            },
            "f:spec": {
                "f:replicas": {},
                "f:selector": {},
                "f:template": {"f:spec": {
                    "f:containers": {r#"k:{"name":"server"}"#: {
                        ".": {},
                        "f:name": {},
                        "f:args": {},
                        "f:env": {r#"k:{"name":"A"}"#: {".": {}, "f:name": {}, "f:value": {}}},
                        "f:ports": {r#"k:{"containerPort":80,"protocol":"TCP"}"#: {".": {}, "f:containerPort": {}}},
                        "f:resources": {},
                    }},
                    "f:volumes": {r#"k:{"name":"tmp"}"#: {".": {}, "f:name": {}, "f:emptyDir": {}}},
                }},
            },
        })
    }

    fn found(manager: &str, operation: &str, subresource: Option<&str>, fields: &Value) -> ObjectMeta {
        let other =
            json!({"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {"f:paused": {}}}});
        let own = json!({
            "manager": manager, "operation": operation, "subresource": subresource, "fieldsV1": fields,
        });
        serde_json::from_value(json!({"name": "demo", "managedFields": [other, own]})).unwrap()
    }

    fn applied() -> Value {
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": "demo", "namespace": "tools",
                "annotations": {"longshore.dev/applied": "d"},
                "labels": {"app": "demo"},
                "ownerReferences": [{"kind": "McpServer", "name": "demo", "uid": "7b1c"}],
            },
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "demo"}},
                "template": {"spec": {
                    "containers": [{
                        "name": "server",
                        "args": ["a", "b"],
                        "env": [{"name": "A", "value": "b"}],
                        "envFrom": [],
                        "ports": [{"containerPort": 80}],
                        "resources": {},
                    }],
                    "volumes": [{"name": "tmp", "emptyDir": {}}],
                }},
            },
        })
    }

    /// Takes a field out, and what has no others then: the API server names none that has nothing.
    fn take_out(fields: &mut Value, path: &[String]) -> bool {
        let ([name, within @ ..], Value::Object(fields)) = (path, fields) else { return false };
        let Some(field) = fields.get_mut(name) else { return false };
        let was_there = within.is_empty() || take_out(field, within);
        if within.is_empty() || field.as_object().is_some_and(Map::is_empty) {
            fields.remove(name);
        }
        was_there
    }

    #[test]
    fn a_field_that_somebody_else_has_changed_or_taken_out_is_not_longshores_any_more() {
        assert!(are_whole(&applied(), &found("longshore", "Apply", None, &fields())));
        for (manager, operation, subresource) in [
            ("kubectl", "Apply", None),
            ("longshore", "Update", None),
            ("longshore", "Apply", Some("status")),
        ] {
            assert!(!are_whole(&applied(), &found(manager, operation, subresource, &fields())), "{manager}");
        }
        let container = r#"/f:spec/f:template/f:spec/f:containers/k:{"name":"server"}"#;
        let within = |path: &str| format!("{container}/{path}");
        for lost in [
            "/f:metadata".to_owned(),
            "/f:metadata/f:annotations/f:longshore.dev~1applied".to_owned(),
            "/f:metadata/f:labels/f:app".to_owned(),
            r#"/f:metadata/f:ownerReferences/k:{"uid":"7b1c"}"#.to_owned(),
            "/f:spec".to_owned(),
            "/f:spec/f:replicas".to_owned(),
            "/f:spec/f:selector".to_owned(),
            container.to_owned(),
            within("f:args"),
            within(r#"f:env/k:{"name":"A"}"#),
            within(r#"f:env/k:{"name":"A"}/f:value"#),
            within(r#"f:ports/k:{"containerPort":80,"protocol":"TCP"}"#),
            within("f:resources"),
            r#"/f:spec/f:template/f:spec/f:volumes/k:{"name":"tmp"}/f:emptyDir"#.to_owned(),
        ] {
            let mut fields = fields();
            let path: Vec<_> = lost.split('/').skip(1).map(|name| name.replace("~1", "/")).collect();
            assert!(take_out(&mut fields, &path), "{lost}");
            assert!(!are_whole(&applied(), &found("longshore", "Apply", None, &fields)), "without {lost}");
        }
    }

    #[test]
    fn what_is_in_a_set_is_known_by_itself() {
        let fields = json!({"f:spec": {"f:names": {r#"v:"a""#: {}}}});
        let is_whole = |names: Value| {
            are_whole(&json!({"spec": {"names": names}}), &found("longshore", "Apply", None, &fields))
        };
        assert!(is_whole(json!(["a"])));
        assert!(!is_whole(json!(["a", "b"])));
    }
}
