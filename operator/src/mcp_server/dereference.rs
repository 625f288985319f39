//! First step: reads what a manifest names. The only step that looks at Secrets, ConfigMaps and ServiceAccounts.
//!
//! What was read is remembered until the watch says that it changed ([`cache`]), so a reconcile of a settled server
//! reads nothing. Of an object only the names of those entries are kept that some manifest asks for, and of API keys their
//! hashes: whoever writes a ConfigMap of fifty thousand entries fills nobody's memory.

pub(crate) mod cache;
pub(crate) mod own_bounds;
pub(crate) mod own_keys;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longshore_crds::McpServer;
use longshore_sidecar_config::{InventoryAccess, Upstream};

use crate::api::{self, ApiError};
use crate::api_keys::ParsedKeys;
use crate::mcp_server::context::Context;
use crate::mcp_server::references::{self, Kind};
use crate::mcp_server::session_keys::SessionKeys;
use crate::reading::Lean;

/// Whether an object that a manifest names exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// It does not exist.
    Missing,
    /// It is one of Longshore's own, which no manifest may name.
    Reserved,
    /// Nobody knows: the API server does not give it, and these are its words.
    Unreadable(String),
    /// It exists, with these of the entries that matter.
    Present {
        /// The names of those entries.
        keys: Arc<BTreeSet<String>>,
    },
}

/// What the Secret with the API keys holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ApiKeysLookup {
    /// The manifest names none.
    #[default]
    NotNamed,
    /// It does not exist.
    Missing,
    /// It is one of Longshore's own.
    Reserved,
    /// Nobody knows: the API server does not give it, and these are its words.
    Unreadable(String),
    /// It holds these keys, as hashes.
    Present(ParsedKeys),
}

/// Everything outside of the manifest that decides what its objects look like.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dereferenced {
    /// The Secrets, ConfigMaps and ServiceAccounts that it names.
    pub objects: BTreeMap<(Kind, String), Lookup>,
    /// The Secret with the API keys.
    pub api_keys: ApiKeysLookup,
    /// How the sidecars of the pods that are there reach their servers.
    pub mounted_upstreams: Vec<Upstream>,
    /// Who may read the sidecars' inventories.
    pub inventory: InventoryAccess,
    /// What sessions are sealed with.
    pub session_keys: SessionKeys,
}

// === impl Dereferenced ===

impl Dereferenced {
    /// What is known of one of them.
    pub(crate) fn lookup(&self, kind: Kind, name: &str) -> &Lookup {
        self.objects.get(&(kind, name.to_owned())).unwrap_or(&Lookup::Missing)
    }
}

/// Reads what the manifest names. Client required.
///
/// What cannot be read is trouble of that object alone, once it is certain that it cannot: where the API server refuses
/// it, or has failed for long (`patient`: it has not). Gives the first such failure beside what was found.
pub(crate) async fn dereference(
    server: &McpServer,
    context: &Context,
    patient: bool,
    mounted_upstreams: Vec<Upstream>,
    session_keys: SessionKeys,
) -> Result<(Dereferenced, Option<ApiError>), ApiError> {
    let Context { client, references: cache, .. } = context;
    let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
    let name = server.metadata.name.as_deref().unwrap_or_default();
    let keys_secret = server.spec.auth.api_keys.as_ref().map(|keys| keys.secret_ref.name.as_str());
    let asked = references::asked(&server.spec);
    let mut used = asked.clone();
    if let Some(secret) = keys_secret {
        used.entry((Kind::Secret, secret.to_owned())).or_default();
    }
    // Said before the first read: a change during the reads then triggers another reconcile.
    cache.uses(namespace, name, used);
    let mut unread = None;
    let mut words = |error: ApiError| match error.lasting(!patient).map(str::to_owned) {
        Some(words) => {
            // What the API server cannot do is waited for, whatever else it refuses.
            if unread.is_none() || error.failure().is_some() {
                unread = Some(error);
            }
            Ok(words)
        }
        None => Err(error),
    };
    let mut objects = BTreeMap::new();
    for ((kind, object), entries) in asked {
        let lookup = match cache.lookup(kind, namespace, &object, &entries) {
            Some(lookup) => lookup,
            None => match cache.read(client, kind, namespace, &object, &entries).await {
                Ok(lookup) => lookup,
                Err(error) => Lookup::Unreadable(words(error)?),
            },
        };
        objects.insert((kind, object), lookup);
    }
    let api_keys = match keys_secret {
        None => ApiKeysLookup::NotNamed,
        Some(secret) => match cache.api_keys(namespace, secret) {
            Some(keys) => keys,
            None => match cache.read_api_keys(client, namespace, secret).await {
                Ok(keys) => keys,
                Err(error) => ApiKeysLookup::Unreadable(words(error)?),
            },
        },
    };
    let inventory = context.inventory_access.load().as_ref().clone();
    Ok((Dereferenced { objects, api_keys, mounted_upstreams, inventory, session_keys }, unread))
}

/// A Secret or ConfigMap as far as it matters: which of the entries that are asked for it has, and whether it is
/// Longshore's.
fn summarise(reserved: bool, keys: impl Iterator<Item = String>, asked: &BTreeSet<String>) -> Lookup {
    if reserved {
        return Lookup::Reserved;
    }
    Lookup::Present { keys: Arc::new(keys.filter(|key| asked.contains(key)).collect()) }
}

/// Reads one object, or finds that it is not there.
async fn get<K>(client: &kube::Client, namespace: &str, name: &str) -> Result<Option<K>, ApiError>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let objects = kube::Api::<Lean<K>>::namespaced(client.clone(), namespace);
    Ok(api::call(objects.get_opt(name)).await?.map(|Lean(object)| object))
}

#[cfg(test)]
mod tests {
    use axum::{Json, Router};
    use k8s_openapi::api::core::v1::Secret;
    use kube::client::ClientBuilder;
    use serde_json::json;

    use super::*;

    /// Whoever may write a Secret decides what its managed fields are.
    #[tokio::test]
    async fn managed_fields_of_any_depth_keep_nobody_from_reading_an_object() {
        let deep = (0..200).fold(json!({}), |deep, _| json!({"f:a": deep}));
        let metadata = json!({"name": "keys", "managedFields": [{"manager": "x", "fieldsV1": deep}]});
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"ada": "eA=="}});
        let router = Router::new().fallback(async || Json(secret));
        let client = ClientBuilder::new(router, "tools").build();
        let read = get::<Secret>(&client, "tools", "keys").await.unwrap().unwrap();
        assert!(read.data.unwrap().contains_key("ada"));
    }
}
