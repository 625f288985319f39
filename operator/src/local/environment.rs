//! The environment of a server's process: what its manifest says, resolved from the documents at hand. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, EnvVarSource};

use super::manifests::{Data, Documents};

/// What a server gets of the environment of whoever runs `local`, and no more: the rest may hold secrets of theirs.
pub(super) const INHERITED: [&str; 9] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// Variables by name.
pub(super) type Environment = BTreeMap<String, String>;

/// The variables of a manifest, and what cannot be had here.
pub(super) fn of(
    namespace: &str,
    env: &[EnvVar],
    env_from: &[EnvFromSource],
    documents: &Documents,
) -> (Environment, Vec<String>) {
    let mut found = Environment::new();
    let mut not_here = Vec::new();
    for source in env_from {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let secret = source.secret_ref.as_ref().and_then(|it| get(&documents.secrets, namespace, &it.name));
        let map =
            source.config_map_ref.as_ref().and_then(|it| get(&documents.config_maps, namespace, &it.name));
        for (name, value) in secret.into_iter().chain(map).flatten() {
            found.insert(format!("{prefix}{name}"), String::from_utf8_lossy(&value.0).into_owned());
        }
    }
    for variable in env {
        let value = match (&variable.value, &variable.value_from) {
            (_, Some(source)) => match referenced(namespace, source, documents) {
                Source::Value(value) => value,
                // The validation has said so where it is not optional.
                Source::Missing => continue,
                Source::ClusterOnly(field) => {
                    not_here.push(format!("env {} ({field})", variable.name));
                    continue;
                }
            },
            (value, None) => expand(value.as_deref().unwrap_or_default(), &found),
        };
        found.insert(variable.name.clone(), value);
    }
    (found, not_here)
}

enum Source {
    Value(String),
    Missing,
    ClusterOnly(&'static str),
}

fn referenced(namespace: &str, source: &EnvVarSource, documents: &Documents) -> Source {
    let (objects, name, key) = if let Some(it) = &source.secret_key_ref {
        (&documents.secrets, &it.name, &it.key)
    } else if let Some(it) = &source.config_map_key_ref {
        (&documents.config_maps, &it.name, &it.key)
    } else if source.field_ref.is_some() {
        return Source::ClusterOnly("fieldRef");
    } else if source.resource_field_ref.is_some() {
        return Source::ClusterOnly("resourceFieldRef");
    } else {
        return Source::ClusterOnly("valueFrom");
    };
    match get(objects, namespace, name).and_then(|data| data.get(key)) {
        Some(value) => Source::Value(String::from_utf8_lossy(&value.0).into_owned()),
        None => Source::Missing,
    }
}

fn get<'a>(objects: &'a BTreeMap<(String, String), Data>, namespace: &str, name: &str) -> Option<&'a Data> {
    objects.get(&(namespace.to_owned(), name.to_owned()))
}

/// Replaces `$(NAME)` as Kubernetes does: by variables that are known, `$$` by `$`, and nothing else.
pub(super) fn expand(text: &str, known: &Environment) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = after.strip_prefix('(').and_then(|it| it.split_once(')')) {
            match known.get(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;
    use serde_json::json;

    #[test]
    fn variables_are_replaced_as_kubernetes_does() {
        let known = Environment::from([("HOST".to_owned(), "localhost".to_owned())]);
        for (text, expected) in [
            ("plain", "plain"),
            ("http://$(HOST):1", "http://localhost:1"),
            ("$(NOBODY)", "$(NOBODY)"),
            ("$$(HOST) costs $5", "$(HOST) costs $5"),
            ("$(HOST", "$(HOST"),
            ("é$", "é$"),
        ] {
            assert_eq!(expand(text, &known), expected, "{text}");
        }
    }

    #[test]
    fn values_come_from_the_documents_and_what_needs_a_cluster_is_named() {
        let mut documents = Documents::default();
        let data = |pairs: &[(&str, &str)]| -> Data {
            pairs.iter().map(|(name, text)| ((*name).to_owned(), ByteString((*text).into()))).collect()
        };
        let key = |name: &str| ("tools".to_owned(), name.to_owned());
        documents.secrets.insert(key("token"), data(&[("value", "s3cret")]));
        documents.config_maps.insert(key("urls"), data(&[("A", "1"), ("B", "2")]));
        let env: Vec<EnvVar> = serde_json::from_value(json!([
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "value"}}},
            {"name": "GONE", "valueFrom": {"secretKeyRef": {"name": "none", "key": "x", "optional": true}}},
            {"name": "BOTH", "value": "$(TOKEN)-$(X_A)"},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "EMPTY"},
        ]))
        .unwrap();
        let from: Vec<EnvFromSource> =
            serde_json::from_value(json!([{"prefix": "X_", "configMapRef": {"name": "urls"}}])).unwrap();
        let (found, not_here) = of("tools", &env, &from, &documents);
        let found: Vec<_> = found.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(found, ["BOTH=s3cret-1", "EMPTY=", "TOKEN=s3cret", "X_A=1", "X_B=2"]);
        assert_eq!(not_here, ["env NODE (fieldRef)"]);
    }
}
