//! Where to look: in one namespace, in some, or in all; and how lists are asked for.

use std::collections::BTreeSet;

use k8s_openapi::NamespaceResourceScope;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};

use crate::names::{SERVER_LABEL, owned_selector};

/// How many objects a list brings at once. A page is in memory as a whole, twice while it is read, and an object may have
/// 1.4 MB.
pub const PAGE: u32 = 16;

/// One namespace, or all of them.
pub(crate) type Scope = Option<String>;

/// The namespaces to watch.
pub(crate) fn scopes(namespaces: &[String]) -> Vec<Scope> {
    if namespaces.is_empty() {
        return vec![None];
    }
    namespaces.iter().collect::<BTreeSet<_>>().into_iter().cloned().map(Some).collect()
}

/// Whether a namespace is in a scope.
pub(crate) fn covers(scope: &Scope, namespace: &str) -> bool {
    scope.as_ref().is_none_or(|scope| scope == namespace)
}

/// The objects of a kind in a scope.
pub(crate) fn api<K>(client: &Client, scope: &Scope) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match scope {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// A watch of what Longshore made for servers.
pub(crate) fn owned() -> watcher::Config {
    watcher::Config::default().labels(&format!("{},{SERVER_LABEL}", owned_selector()))
}
