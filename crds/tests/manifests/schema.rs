//! What holds for every schema.

use longshore_crds::McpServerStatus;
use longshore_crds::manifest::{self, MAX_BYTES};
use serde_json::{Value, json};

#[test]
fn manifests_are_small_enough_for_a_plain_apply() {
    for definition in longshore_crds::manifests().unwrap() {
        let size = manifest::to_yaml(&definition).unwrap().len();
        assert!(size < MAX_BYTES, "{} bytes: {size}", definition.spec.names.kind);
    }
}

#[test]
fn documents_can_be_read_back() {
    let documents: Vec<Value> = serde_saphyr::from_multiple(&manifest::documents().unwrap()).unwrap();
    let manifests: Vec<Value> = longshore_crds::manifests()
        .unwrap()
        .into_iter()
        .map(|definition| serde_json::to_value(definition).unwrap())
        .collect();
    assert_eq!(documents, manifests);
}

/// Whoever types `kubectl explain` learns what every field of ours means; Kubernetes' own types are left without.
#[test]
fn every_field_of_ours_is_described() {
    for definition in longshore_crds::manifests().unwrap() {
        for version in definition.spec.versions {
            let schema = serde_json::to_value(version.schema.unwrap().open_api_v3_schema.unwrap()).unwrap();
            for part in ["spec", "status"] {
                let part_schema = &schema["properties"][part];
                for (name, field) in part_schema["properties"].as_object().unwrap() {
                    described(&format!("{part}.{name}"), field);
                }
            }
        }
    }
}

fn described(path: &str, field: &Value) {
    const KUBERNETES: [&str; 9] = [
        "spec.source.env",
        "spec.source.envFrom",
        "spec.pod.imagePullSecrets",
        "spec.pod.overrides",
        "spec.pod.resources",
        "spec.pod.securityContext",
        "spec.pod.volumeMounts",
        "spec.sidecar.resources",
        "status.conditions",
    ];
    assert!(field["description"].is_string(), "{path} has no description");
    if KUBERNETES.contains(&path) || path.ends_with("volumes") || path.ends_with("tolerations") {
        return;
    }
    let properties = field["properties"].as_object().or_else(|| field["items"]["properties"].as_object());
    for (name, inner) in properties.into_iter().flatten() {
        described(&format!("{path}.{name}"), inner);
    }
}

/// The oldest cluster that the chart is installed on knows all of them, and has them switched on.
#[test]
fn a_variable_comes_from_what_every_cluster_has() {
    for definition in longshore_crds::manifests().unwrap() {
        for version in definition.spec.versions {
            let schema = serde_json::to_value(version.schema.unwrap().open_api_v3_schema.unwrap()).unwrap();
            let env = &schema["properties"]["spec"]["properties"]["source"]["properties"]["env"];
            let sources = env["items"]["properties"]["valueFrom"]["properties"].as_object().unwrap();
            let sources: Vec<&str> = sources.keys().map(String::as_str).collect();
            assert_eq!(sources, ["configMapKeyRef", "fieldRef", "resourceFieldRef", "secretKeyRef"]);
        }
    }
}

/// What waits for a server by `observedGeneration` waits for the operator's first look too.
#[test]
fn a_status_that_nobody_has_written_is_of_no_generation() {
    for definition in longshore_crds::manifests().unwrap() {
        for version in definition.spec.versions {
            let schema = serde_json::to_value(version.schema.unwrap().open_api_v3_schema.unwrap()).unwrap();
            let status = &schema["properties"]["status"]["default"];
            assert_eq!(status["observedGeneration"], -1);
            let [ready] = &**status["conditions"].as_array().unwrap() else { panic!("{status}") };
            assert_eq!((&ready["type"], &ready["status"]), (&json!("Ready"), &json!("Unknown")));
            let status: McpServerStatus = serde_json::from_value(status.clone()).unwrap();
            assert_eq!(status, McpServerStatus::default());
        }
    }
    let status: McpServerStatus = serde_json::from_value(json!({"observedGeneration": 3})).unwrap();
    assert_eq!(status.observed_generation, Some(3));
}

/// A rule reads only what has a bound, and says in a sentence what to write.
#[test]
fn every_rule_says_what_to_write() {
    for definition in longshore_crds::manifests().unwrap() {
        let mut rules = Vec::new();
        collect(&serde_json::to_value(&definition).unwrap(), &mut rules);
        assert!(rules.len() > 20, "the rules were not found");
        for rule in rules {
            let message = rule["message"].as_str().unwrap_or_else(|| panic!("no message: {rule}"));
            assert!(message.len() > 20 && !message.ends_with('.') && !message.contains('\n'), "{message}");
        }
    }
}

fn collect(schema: &Value, rules: &mut Vec<Value>) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::Array(found)) = object.get("x-kubernetes-validations") {
                rules.extend(found.iter().cloned());
            }
            object.values().for_each(|value| collect(value, rules));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, rules)),
        _ => {}
    }
}
