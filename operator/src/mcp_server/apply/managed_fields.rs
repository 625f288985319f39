//! Whether an object still is what was applied. Whoever changes a field of it or takes one out takes that from the field
//! manager that had applied it, which `managedFields` show. They do not show what a webhook makes of a value, or what
//! somebody puts back together with older `managedFields`, so the values have to be there too. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value};

use crate::mcp_server::validate::amount;
use crate::names::MANAGER;

/// What of an object's metadata a field manager can have.
const OF_METADATA: [&str; 3] = ["annotations", "labels", "ownerReferences"];

/// What the API server leaves out where it says nothing, such as `false`. (Others are written once more for each takeover.)
const LEFT_OUT: [&str; 14] = [
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "initialDelaySeconds",
    "limits",
    "paused",
    "prefix",
    "publishNotReadyAddresses",
    "readOnly",
    "requests",
    "stdin",
    "subPath",
    "tty",
    "value",
];

/// What the API server spells in its own way.
const AMOUNTS: [&str; 4] = ["cpu", "ephemeral-storage", "memory", "sizeLimit"];

/// Whether all that is applied is there, and is Longshore's still. Others may have added to it.
pub(super) fn are_kept(applied: &Value, found: &ObjectMeta, is: &Value) -> bool {
    are_whole(applied, found) && has_value("", applied, Some(is))
}

fn has_value(name: &str, applied: &Value, is: Option<&Value>) -> bool {
    match (applied, is) {
        (Value::Null, _) => true,
        (applied, None) => is_left_out(name, applied),
        (Value::Object(fields), Some(is)) => {
            is.is_object() && fields.iter().all(|(name, value)| has_value(name, value, is.get(name)))
        }
        (Value::Array(items), Some(Value::Array(are)))
            if !items.is_empty() && items.iter().all(Value::is_object) =>
        {
            items.iter().all(|item| are.iter().any(|is| has_value("", item, Some(is))))
        }
        (Value::String(one), Some(Value::String(other))) if AMOUNTS.contains(&name) => {
            one == other || amount(one).is_some_and(|one| amount(other) == Some(one))
        }
        (applied, Some(is)) => applied == is,
    }
}

fn is_left_out(name: &str, applied: &Value) -> bool {
    let says_nothing = match applied {
        Value::Array(items) => return items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Bool(it) => !it,
        Value::String(text) => text.is_empty(),
        Value::Null => true,
    };
    says_nothing && LEFT_OUT.contains(&name)
}

/// Whether all that is applied is Longshore's still.
fn are_whole(applied: &Value, found: &ObjectMeta) -> bool {
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
    // Nobody has what is not there. (Of a list that is had as a whole the values tell.)
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

/// Whether an item of a list is the one of these keys. The API server says that one which it may leave out, the protocol of
/// a port.
fn names(keys: &str, item: &Value) -> bool {
    let Ok(keys) = serde_json::from_str::<Map<String, Value>>(keys) else { return false };
    keys.iter().all(|(name, value)| match item.get(name) {
        Some(own) => own == value,
        None => name == "protocol" && value == "TCP",
    })
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

    /// As where a webhook changes it, or where somebody brings back a manifest with the `managedFields` of its time.
    #[test]
    fn a_value_that_is_another_one_is_seen_whoever_is_said_to_have_it() {
        let container = "/spec/template/spec/containers/0";
        let cpu = |amount: &str| Some(json!({"limits": {"cpu": amount}}));
        let one_more = json!([{"name": "B"}, {"name": "A", "value": "b"}]);
        let nothing = || Some(Value::Null);
        for (what, path, applied_value, value, expected) in [
            ("all is as it was", "/args", None, None, true),
            ("the number of pods", "/spec/replicas", None, Some(json!(3)), false),
            ("no number of pods", "/spec/replicas", None, nothing(), false),
            ("nor where none are to be", "/spec/replicas", Some(json!(0)), nothing(), false),
            ("a label", "/metadata/labels/app", None, Some(json!("x")), false),
            ("one more label", "/metadata/labels/more", None, Some(json!("x")), true),
            ("more arguments", "/args", None, Some(json!(["a", "b", "c"])), false),
            ("arguments for none", "/args", Some(json!([])), None, false),
            ("none for none", "/args", Some(json!([])), nothing(), true),
            ("a variable's value", "/env/0/value", None, Some(json!("x")), false),
            ("no value for an empty one", "/env/0/value", Some(json!("")), nothing(), true),
            ("one more variable", "/env", None, Some(one_more), true),
            ("no variable", "/env", None, Some(json!([])), false),
            ("no kind of volume", "/spec/template/spec/volumes/0/emptyDir", None, nothing(), false),
            ("what is left out", "/spec/paused", Some(json!(false)), nothing(), true),
            ("what is not left out", "/stdinOnly", Some(json!(false)), nothing(), false),
            ("another spelling", "/resources", cpu("1000m"), cpu("1"), true),
            ("another amount", "/resources", cpu("1000m"), cpu("2"), false),
            ("text that is no amount", "/image", Some(json!("1000m")), Some(json!("1")), false),
        ] {
            let is_of_all = path.starts_with("/spec") || path.starts_with("/metadata");
            let path = if is_of_all { path.to_owned() } else { format!("{container}{path}") };
            let (mut applied, mut is) = (applied(), applied());
            applied_value.into_iter().for_each(|value| put(&mut applied, &path, value));
            value.into_iter().for_each(|value| put(&mut is, &path, value));
            assert_eq!(has_value("", &applied, Some(&is)), expected, "{what}");
        }
    }

    /// Puts a value where a path leads, or takes it away where it is none.
    fn put(object: &mut Value, path: &str, value: Value) {
        let (parent, name) = path.rsplit_once('/').unwrap();
        match (object.pointer_mut(parent).unwrap(), value) {
            (Value::Array(items), value) => items[name.parse::<usize>().unwrap()] = value,
            (parent, Value::Null) => drop(parent.as_object_mut().unwrap().remove(name)),
            (parent, value) => parent[name] = value,
        }
    }

    #[test]
    fn ports_of_one_number_are_told_apart_by_their_protocols() {
        let both = ["TCP", "UDP"].map(|it| format!(r#"k:{{"containerPort":53,"protocol":"{it}"}}"#));
        let ports = json!([{"containerPort": 53}, {"containerPort": 53, "protocol": "UDP"}]);
        let applied = json!({"spec": {"ports": ports}});
        for (owned, expected) in [(&both[..], true), (&both[..1], false), (&both[1..], false)] {
            let has = json!({"f:containerPort": {}, "f:protocol": {}});
            let ports: Map<_, _> = owned.iter().map(|key| (key.clone(), has.clone())).collect();
            let fields = json!({"f:spec": {"f:ports": ports}});
            let found = found("longshore", "Apply", None, &fields);
            assert_eq!(are_whole(&applied, &found), expected, "{owned:?}");
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
