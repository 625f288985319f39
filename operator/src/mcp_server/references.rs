//! Which Secrets, ConfigMaps and ServiceAccounts a manifest names, and where. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    Container, EnvFromSource, EnvVar, KeyToPath, LocalObjectReference, PodTemplateSpec, Volume,
};
use longshore_crds::{McpServerSpec, Written};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::names;

/// The kinds of objects that a manifest can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// A Secret.
    Secret,
    /// A ConfigMap.
    ConfigMap,
    /// A ServiceAccount.
    ServiceAccount,
}

impl Kind {
    /// As people write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
            Self::ServiceAccount => "ServiceAccount",
        }
    }
}

/// One place of a manifest that names an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// What kind of object.
    pub kind: Kind,
    /// Its name, in the server's namespace.
    pub name: String,
    /// The entry that has to be in it. `None`: any or all.
    pub key: Option<String>,
    /// Whether the pod starts without it.
    pub need: Need,
    /// The field that names it.
    pub field: String,
}

/// Whether a pod starts without an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The pod does not start without it.
    Required,
    /// The pod starts without it: the manifest says `optional: true`.
    Optional,
}

impl Need {
    fn of(optional: Option<bool>) -> Self {
        if optional == Some(true) { Self::Optional } else { Self::Required }
    }
}

/// So many objects may be named by a manifest, each of which is read. Templates have room for fifteen thousand.
pub(crate) const MOST: usize = 512;

/// The first reference to an object more than may be named, if there are so many.
pub(crate) fn beyond(references: &[Reference]) -> Option<&Reference> {
    let mut objects = BTreeSet::new();
    references.iter().find(|it| objects.insert((it.kind, it.name.as_str())) && objects.len() > MOST)
}

/// The variable that a container has in any case: whether it is the manifest's makes a difference.
pub(crate) const HOME: &str = "HOME";

/// The entry that makes a variable where all entries become variables, with this before their names. `None`: none does.
pub(crate) fn entry_of<'a>(variable: &'a str, prefix: Option<&str>) -> Option<&'a str> {
    variable.strip_prefix(prefix.unwrap_or_default())
}

/// The objects that a manifest names, but for the Secret with the API keys, and which entries of each it matters to know
/// of. None at all where there are more than may be named, which the validation refuses, and none of a name that no object can
/// have: it is not there.
pub(crate) fn asked(spec: &McpServerSpec) -> BTreeMap<(Kind, String), BTreeSet<String>> {
    let references = of(spec);
    let mut asked: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    if beyond(&references).is_some() {
        return asked;
    }
    for reference in references.into_iter().filter(|reference| names::is_possible(&reference.name)) {
        asked.entry((reference.kind, reference.name)).or_default().extend(reference.key);
    }
    for from in &spec.source.env_from {
        let secret = from.secret_ref.as_ref().map(|it| (Kind::Secret, &it.name));
        let config_map = from.config_map_ref.as_ref().map(|it| (Kind::ConfigMap, &it.name));
        for (kind, name) in secret.into_iter().chain(config_map) {
            if let (Some(entries), Some(entry)) =
                (asked.get_mut(&(kind, name.clone())), entry_of(HOME, from.prefix.as_deref()))
            {
                entries.insert(entry.to_owned());
            }
        }
    }
    asked
}

/// Every reference of a manifest, but for the Secret with the API keys.
pub(crate) fn of(spec: &McpServerSpec) -> Vec<Reference> {
    let mut found = Collector::default();
    found.env("spec.source.env", &spec.source.env);
    found.env_from("spec.source.envFrom", &spec.source.env_from);
    found.pull_secrets("spec.pod.imagePullSecrets", &spec.pod.image_pull_secrets);
    for (index, volume) in read::<Vec<Value>>(spec.pod.volumes.as_ref()).iter().flatten().enumerate() {
        found.volume(&format!("spec.pod.volumes[{index}]"), volume);
    }
    if let Some(account) = &spec.pod.service_account_name {
        let field = "spec.pod.serviceAccountName".to_owned();
        found.add(Kind::ServiceAccount, account, None, Need::Required, field);
    }
    let overrides = read::<PodTemplateSpec>(spec.pod.overrides.as_ref());
    if let Some(spec) = overrides.and_then(|template| template.spec) {
        let path = "spec.pod.overrides.spec";
        found.containers(&format!("{path}.containers"), &spec.containers);
        found.containers(
            &format!("{path}.initContainers"),
            spec.init_containers.as_deref().unwrap_or_default(),
        );
        found.pull_secrets(
            &format!("{path}.imagePullSecrets"),
            spec.image_pull_secrets.as_deref().unwrap_or_default(),
        );
        for (index, volume) in spec.volumes.iter().flatten().enumerate() {
            if let Ok(volume) = serde_json::to_value(volume) {
                found.volume(&format!("{path}.volumes[{index}]"), &volume);
            }
        }
    }
    found.references
}

/// What is kept as it is written, if it can be read: the validation refuses the rest.
fn read<T: DeserializeOwned>(written: Option<&Written>) -> Option<T> {
    serde_json::from_value(written?.value()?.ok()?).ok()
}

#[derive(Default)]
struct Collector {
    references: Vec<Reference>,
}

// === impl Collector ===

impl Collector {
    fn add(&mut self, kind: Kind, name: &str, key: Option<&str>, need: Need, field: String) {
        if !name.is_empty() {
            let key = key.map(str::to_owned);
            self.references.push(Reference { kind, name: name.to_owned(), key, need, field });
        }
    }

    fn containers(&mut self, path: &str, containers: &[Container]) {
        for (index, container) in containers.iter().enumerate() {
            self.env(&format!("{path}[{index}].env"), container.env.as_deref().unwrap_or_default());
            self.env_from(
                &format!("{path}[{index}].envFrom"),
                container.env_from.as_deref().unwrap_or_default(),
            );
        }
    }

    fn env(&mut self, path: &str, env: &[EnvVar]) {
        for (index, variable) in env.iter().enumerate() {
            let Some(source) = &variable.value_from else { continue };
            if let Some(key) = &source.secret_key_ref {
                let field = format!("{path}[{index}].valueFrom.secretKeyRef");
                self.add(Kind::Secret, &key.name, Some(&key.key), Need::of(key.optional), field);
            }
            if let Some(key) = &source.config_map_key_ref {
                let field = format!("{path}[{index}].valueFrom.configMapKeyRef");
                self.add(Kind::ConfigMap, &key.name, Some(&key.key), Need::of(key.optional), field);
            }
        }
    }

    fn env_from(&mut self, path: &str, sources: &[EnvFromSource]) {
        for (index, source) in sources.iter().enumerate() {
            if let Some(secret) = &source.secret_ref {
                let field = format!("{path}[{index}].secretRef");
                self.add(Kind::Secret, &secret.name, None, Need::of(secret.optional), field);
            }
            if let Some(config_map) = &source.config_map_ref {
                let field = format!("{path}[{index}].configMapRef");
                self.add(Kind::ConfigMap, &config_map.name, None, Need::of(config_map.optional), field);
            }
        }
    }

    fn pull_secrets(&mut self, path: &str, secrets: &[LocalObjectReference]) {
        for (index, secret) in secrets.iter().enumerate() {
            self.add(Kind::Secret, &secret.name, None, Need::Required, format!("{path}[{index}]"));
        }
    }

    fn volume(&mut self, path: &str, value: &Value) {
        if let Ok(volume) = serde_json::from_value::<Volume>(value.clone()) {
            if let Some(secret) = &volume.secret {
                let name = secret.secret_name.as_deref().unwrap_or_default();
                let field = format!("{path}.secret");
                self.items(Kind::Secret, name, secret.items.as_deref(), Need::of(secret.optional), &field);
            }
            if let Some(config_map) = &volume.config_map {
                let need = Need::of(config_map.optional);
                let field = format!("{path}.configMap");
                self.items(Kind::ConfigMap, &config_map.name, config_map.items.as_deref(), need, &field);
            }
            let sources = volume.projected.and_then(|projected| projected.sources).unwrap_or_default();
            for (index, source) in sources.iter().enumerate() {
                let path = format!("{path}.projected.sources[{index}]");
                if let Some(secret) = &source.secret {
                    let need = Need::of(secret.optional);
                    let field = format!("{path}.secret");
                    self.items(Kind::Secret, &secret.name, secret.items.as_deref(), need, &field);
                }
                if let Some(config_map) = &source.config_map {
                    let need = Need::of(config_map.optional);
                    let field = format!("{path}.configMap");
                    self.items(Kind::ConfigMap, &config_map.name, config_map.items.as_deref(), need, &field);
                }
            }
        }
        self.secret_refs(path, value);
    }

    fn items(&mut self, kind: Kind, name: &str, items: Option<&[KeyToPath]>, need: Need, field: &str) {
        self.add(kind, name, None, need, field.to_owned());
        for (index, item) in items.unwrap_or_default().iter().enumerate() {
            self.add(kind, name, Some(&item.key), need, format!("{field}.items[{index}]"));
        }
    }

    /// The credentials of storage drivers: many kinds of volumes have them, in a field of one of these names.
    fn secret_refs(&mut self, path: &str, value: &Value) {
        let Value::Object(fields) = value else { return };
        for (name, value) in fields {
            let path = format!("{path}.{name}");
            match name.as_str() {
                "secretRef" | "nodePublishSecretRef" => {
                    if let Some(secret) = value.get("name").and_then(Value::as_str) {
                        self.add(Kind::Secret, secret, None, Need::Required, path);
                    }
                }
                "azureFile" => {
                    if let Some(secret) = value.get("secretName").and_then(Value::as_str) {
                        self.add(Kind::Secret, secret, None, Need::Required, path);
                    }
                }
                _ => self.secret_refs(&path, value),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entries_that_matter_are_those_that_are_named_and_those_that_make_a_home() {
        let spec: McpServerSpec = serde_json::from_value(serde_json::json!({
            "source": {
                "image": "x",
                "env": [
                    {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c1", "key": "a"}}},
                    {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c1", "key": "b"}}},
                ],
                "envFrom": [
                    {"configMapRef": {"name": "c1"}},
                    {"configMapRef": {"name": "c2"}, "prefix": "HO"},
                    {"secretRef": {"name": "s1"}, "prefix": "X_"},
                    {"secretRef": {"name": ""}},
                    {"configMapRef": {"name": "../c3"}},
                ],
            },
            "transport": {"streamableHttp": {"port": 3000}},
            "auth": {"none": {}},
            "pod": {"serviceAccountName": "a1"},
        }))
        .unwrap();
        let asked: Vec<String> = asked(&spec)
            .into_iter()
            .map(|((kind, name), entries)| format!("{} {name} {entries:?}", kind.name()))
            .collect();
        assert_eq!(
            asked,
            [
                r#"Secret s1 {}"#,
                r#"ConfigMap c1 {"HOME", "a", "b"}"#,
                r#"ConfigMap c2 {"ME"}"#,
                r#"ServiceAccount a1 {}"#,
            ]
        );
    }

    #[test]
    fn finds_every_place_that_names_something() {
        let spec: McpServerSpec = serde_json::from_value(serde_json::json!({
            "source": {
                "image": "x",
                "env": [
                    {"name": "A", "value": "plain"},
                    {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s1", "key": "token"}}},
                    {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c1", "key": "url", "optional": true}}},
                ],
                "envFrom": [{"secretRef": {"name": "s2"}}, {"configMapRef": {"name": "c2"}}],
            },
            "transport": {"streamableHttp": {"port": 3000}},
            "auth": {"none": {}},
            "pod": {
                "imagePullSecrets": [{"name": "s3"}],
                "serviceAccountName": "a1",
                "volumes": [
                    {"name": "a", "secret": {"secretName": "s4", "items": [{"key": "k", "path": "p"}]}},
                    {"name": "b", "projected": {"sources": [
                        {"configMap": {"name": "c3"}}, {"secret": {"name": "s5", "optional": true}}]}},
                    {"name": "c", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "s6"}}},
                    {"name": "d", "azureFile": {"shareName": "x", "secretName": "s7"}},
                ],
                "overrides": {"spec": {
                    "containers": [{"name": "other", "envFrom": [{"secretRef": {"name": "s8"}}]}],
                    "volumes": [{"name": "e", "configMap": {"name": "c4"}}],
                }},
            },
        }))
        .unwrap();
        let found: Vec<String> = of(&spec)
            .into_iter()
            .map(|reference| {
                let key = reference.key.map(|key| format!("/{key}")).unwrap_or_default();
                let need = if reference.need == Need::Optional { "?" } else { "" };
                format!("{} {}{key}{need} {}", reference.kind.name(), reference.name, reference.field)
            })
            .collect();
        assert_eq!(
            found,
            [
                "Secret s1/token spec.source.env[1].valueFrom.secretKeyRef",
                "ConfigMap c1/url? spec.source.env[2].valueFrom.configMapKeyRef",
                "Secret s2 spec.source.envFrom[0].secretRef",
                "ConfigMap c2 spec.source.envFrom[1].configMapRef",
                "Secret s3 spec.pod.imagePullSecrets[0]",
                "Secret s4 spec.pod.volumes[0].secret",
                "Secret s4/k spec.pod.volumes[0].secret.items[0]",
                "ConfigMap c3 spec.pod.volumes[1].projected.sources[0].configMap",
                "Secret s5? spec.pod.volumes[1].projected.sources[1].secret",
                "Secret s6 spec.pod.volumes[2].csi.nodePublishSecretRef",
                "Secret s7 spec.pod.volumes[3].azureFile",
                "ServiceAccount a1 spec.pod.serviceAccountName",
                "Secret s8 spec.pod.overrides.spec.containers[0].envFrom[0].secretRef",
                "ConfigMap c4 spec.pod.overrides.spec.volumes[0].configMap",
            ]
        );
    }
}
