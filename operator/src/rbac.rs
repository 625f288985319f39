//! The rights that the operator and the catalog need, each with its reason. The chart's roles say the same; tests hold them
//! together and show that every right is used.

/// Some verbs on one resource, and what they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The resource, with its subresource.
    pub resource: &'static str,
    /// What may be done with it.
    pub verbs: &'static [&'static str],
    /// Why.
    pub reason: &'static str,
}

const fn rule(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    reason: &'static str,
) -> Rule {
    Rule { group, resource, verbs, reason }
}

/// The rights in every namespace that holds servers.
///
/// `create` comes with `patch`, since server-side apply creates what is not there. `get` is for what manifests name: of
/// what the operator makes itself, the watches tell it enough.
pub const SERVERS: &[Rule] = &[
    rule("longshore.dev", "mcpservers", &["list", "watch"], "what is wanted"),
    rule("longshore.dev", "mcpservers/status", &["patch"], "what is"),
    rule(
        "longshore.dev",
        "mcpservers/finalizers",
        &["update"],
        "owner references that block deletion, where the API server checks who sets them",
    ),
    rule("apps", "deployments", &["list", "watch", "create", "patch"], "the server's pods"),
    rule("apps", "replicasets", &["list", "watch"], "which pods are a Deployment's, and of which version"),
    rule(
        "",
        "pods",
        &["list", "watch", "patch"],
        "how they are; an annotation makes the kubelet update their files",
    ),
    rule("", "services", &["list", "watch", "create", "patch"], "the server's address"),
    rule(
        "",
        "configmaps",
        &["get", "list", "watch", "create", "patch", "delete"],
        "the sidecars' configuration; those that a manifest names",
    ),
    rule(
        "",
        "secrets",
        &["get", "list", "watch", "create", "patch"],
        "the hashes of API keys and the session keys; those that a manifest names",
    ),
    rule(
        "",
        "serviceaccounts",
        &["get", "list", "watch", "create", "patch", "delete"],
        "an identity without rights for pods; those that a manifest names",
    ),
    rule(
        "networking.k8s.io",
        "networkpolicies",
        &["list", "watch", "create", "patch"],
        "nothing reaches a server but through its sidecar",
    ),
    rule(
        "policy",
        "poddisruptionbudgets",
        &["list", "watch", "create", "patch", "delete"],
        "whoever empties nodes leaves a server of several pods some of them",
    ),
    rule("events.k8s.io", "events", &["create", "patch"], "what happened, for `kubectl describe`"),
];

/// The rights to the one Lease in the operator's own namespace that is its own, by its name.
pub const OWN_LEASE: &[Rule] =
    &[rule("coordination.k8s.io", "leases", &["get", "update"], "one of several operators acts")];

/// The rights in the operator's own namespace. What is not there yet has no name to be permitted by.
pub const OWN_NAMESPACE: &[Rule] =
    &[rule("coordination.k8s.io", "leases", &["create"], "the first of them makes the Lease")];

/// The catalog's rights in every namespace that holds servers: it reads, and writes nothing.
pub const CATALOG: &[Rule] = &[
    rule("longshore.dev", "mcpservers", &["list", "watch"], "what is published"),
    rule("apps", "deployments", &["list", "watch"], "which pods are a server's"),
    rule("apps", "replicasets", &["list", "watch"], "which pods are a Deployment's"),
    rule("", "pods", &["list", "watch"], "where their sidecars are"),
];
