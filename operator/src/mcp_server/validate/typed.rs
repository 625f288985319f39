//! From what the schema keeps as it is written to Kubernetes' own types, without losing a word.

use longshore_crds::Written;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::mcp_server::condition::Problem;

/// Reads what is kept as it is written.
pub(super) fn read(field: &str, written: &Written) -> Result<Value, Problem> {
    let value = written.value().ok_or_else(|| {
        Problem::invalid(
            field,
            format_args!(
                "it has more than {} KiB or {} values, so nothing of it is read: write less",
                Written::MOST_BYTES / 1024,
                Written::MOST_VALUES
            ),
        )
    })?;
    value.map_err(|error| Problem::invalid(field, error))
}

/// Reads a value as a Kubernetes type, and refuses it if a part of it would be lost: a field that the type does not
/// have is a mistake that nobody would notice otherwise.
pub(super) fn typed<T: Serialize + DeserializeOwned>(field: &str, value: &Value) -> Result<T, Problem> {
    let typed: T = serde_json::from_value(value.clone()).map_err(|error| Problem::invalid(field, error))?;
    let kept = serde_json::to_value(&typed).map_err(|error| Problem::invalid(field, error))?;
    match lost(field, value, &kept) {
        None => Ok(typed),
        Some((field, Lost::Null)) => {
            Err(Problem::invalid(&field, "null removes nothing here; leave the field out"))
        }
        Some((field, Lost::Directive)) => {
            Err(Problem::invalid(&field, "patch directives are not known here; only fields can be set"))
        }
        Some((field, Lost::Unknown)) => Err(Problem::invalid(&field, "there is no such field")),
    }
}

enum Lost {
    Null,
    Directive,
    Unknown,
}

/// The first path of `written` that is not in `kept`.
fn lost(path: &str, written: &Value, kept: &Value) -> Option<(String, Lost)> {
    match (written, kept) {
        (Value::Object(written), Value::Object(kept)) => written.iter().find_map(|(name, value)| {
            let path = format!("{path}.{name}");
            match kept.get(name) {
                Some(kept) => lost(&path, value, kept),
                None if value.is_null() => Some((path, Lost::Null)),
                None if name.starts_with('$') => Some((path, Lost::Directive)),
                None => Some((path, Lost::Unknown)),
            }
        }),
        (Value::Array(written), Value::Array(kept)) => written
            .iter()
            .zip(kept)
            .enumerate()
            .find_map(|(index, (written, kept))| lost(&format!("{path}[{index}]"), written, kept)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{PodTemplateSpec, Volume};
    use serde_json::json;

    use super::*;

    #[test]
    fn refuses_what_it_would_lose() {
        for (value, complaint) in [
            (
                json!({"spec": {"containers": [{"name": "server", "imag": "x"}]}}),
                Some("v.spec.containers[0].imag: there is no such field"),
            ),
            (
                json!({"spec": {"containers": [], "nodeName": null}}),
                Some("v.spec.nodeName: null removes nothing"),
            ),
            (
                json!({"spec": {"containers": [{"name": "server", "$patch": "delete"}]}}),
                Some("v.spec.containers[0].$patch: patch directives"),
            ),
            (json!({"spec": {"containers": 7}}), Some("v: invalid type")),
            (
                json!({"spec": {"containers": [{"name": "server", "env": []}], "priorityClassName": "high"}}),
                None,
            ),
            (json!({"metadata": {"labels": {"a": "b"}}}), None),
        ] {
            let outcome = typed::<PodTemplateSpec>("v", &value);
            match (outcome, complaint) {
                (Ok(_), None) => {}
                (Err(problem), Some(complaint)) => {
                    assert!(problem.message.starts_with(complaint), "{}", problem.message)
                }
                (outcome, _) => panic!("{value}: {outcome:?}"),
            }
        }
        assert!(typed::<Volume>("v", &json!({"name": "a", "emptyDir": {}})).is_ok());
    }
}
