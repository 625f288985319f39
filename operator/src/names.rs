//! The names, labels and annotations by which Longshore knows its own objects.

use std::collections::BTreeMap;

/// The field manager of every server-side apply, and the value of `app.kubernetes.io/managed-by`.
pub(crate) const MANAGER: &str = "longshore";

/// Which server an object belongs to. Part of the Deployment's selector, so it can never change.
pub(crate) const SERVER_LABEL: &str = "longshore.dev/server";
/// The recommended label that says who looks after an object.
pub(crate) const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// The recommended label that says what an object is.
pub const NAME_LABEL: &str = "app.kubernetes.io/name";
/// What it says of the pods of the control plane: the chart gives it to all of them.
pub const CONTROL_PLANE: &str = "longshore";
/// The recommended label that says which part of a whole an object is.
pub(crate) const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
/// The component of every object that serves an MCP server.
pub(crate) const COMPONENT: &str = "mcp-server";

/// On a pod: the digest of the template that it was made from, by which a new version is told from an old one.
pub(crate) const TEMPLATE_ANNOTATION: &str = "longshore.dev/template";
/// On a pod: how its sidecar reaches its server, as JSON. A pod of an older version keeps it until it goes, whatever
/// the manifest says by then.
pub(crate) const UPSTREAM_ANNOTATION: &str = "longshore.dev/upstream";
/// On what is made for a server: the digest of what was applied, by which whoever begins to act knows that it need not be.
pub(crate) const APPLIED_ANNOTATION: &str = "longshore.dev/applied";
/// On an `McpServer`: a value that its owner changes to ask for a new session key.
pub(crate) const ROTATE_ANNOTATION: &str = "longshore.dev/rotate-session-keys";
/// On the Secret with the session keys: how far they are, as JSON. It holds no key.
pub(crate) const SESSION_KEYS_ANNOTATION: &str = "longshore.dev/session-keys";
/// On a pod: touched when its configuration changes, which makes the kubelet update the mounted files at once.
pub(crate) const CONFIG_ANNOTATION: &str = "longshore.dev/config";
/// Says which container `kubectl logs` and `kubectl exec` mean when none is named.
pub(crate) const DEFAULT_CONTAINER_ANNOTATION: &str = "kubectl.kubernetes.io/default-container";

/// The selector of every object that Longshore made for some server.
pub(crate) fn owned_selector() -> String {
    format!("{MANAGED_BY_LABEL}={MANAGER},{COMPONENT_LABEL}={COMPONENT}")
}

/// The labels by which a server's pods are selected.
pub(crate) fn pod_selector(server: &str) -> BTreeMap<String, String> {
    pairs([(SERVER_LABEL, server), (COMPONENT_LABEL, COMPONENT)])
}

/// The same selector as text.
pub(crate) fn selector_text(server: &str) -> String {
    let pairs: Vec<_> =
        pod_selector(server).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join(",")
}

/// The labels of everything that is made for a server.
pub(crate) fn labels(server: &str) -> BTreeMap<String, String> {
    pairs([
        (SERVER_LABEL, server),
        (COMPONENT_LABEL, COMPONENT),
        (MANAGED_BY_LABEL, MANAGER),
        (NAME_LABEL, COMPONENT),
        ("app.kubernetes.io/instance", server),
    ])
}

/// What the names of Secrets with the hashes of API keys end with.
const KEYS_SECRET_SUFFIX: &str = "-longshore-keys";

/// The longest name of an object of these kinds.
const LONGEST_NAME: usize = 253;

/// Whether a Secret of this name is Longshore's own, or would be if it existed: of this server or of any other.
pub(crate) fn is_keys_secret(name: &str) -> bool {
    name.ends_with(KEYS_SECRET_SUFFIX)
}

/// Whether a Secret, ConfigMap or ServiceAccount can have this name. To ask for one of another name is to ask for something
/// else: an address has no room for every character.
pub(crate) fn is_possible(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let is_part = |part: &str| {
        part.starts_with(is_plain)
            && part.ends_with(is_plain)
            && part.chars().all(|letter| is_plain(letter) || letter == '-')
    };
    name.len() <= LONGEST_NAME && name.split('.').all(is_part)
}

fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The names of the objects of one server. The Deployment and the Service have the server's own name; the others add
/// a suffix, for which the longest allowed name of an `McpServer` leaves room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectNames {
    server: String,
}

impl ObjectNames {
    /// The names for the server of this name.
    pub fn of(server: &str) -> Self {
        Self { server: server.to_owned() }
    }

    /// The Deployment.
    pub fn deployment(&self) -> String {
        self.server.clone()
    }

    /// The Service, whose name is part of the URL.
    pub fn service(&self) -> String {
        self.server.clone()
    }

    /// The headless Service by which the pods find each other.
    pub fn peers(&self) -> String {
        format!("{}-longshore", self.server)
    }

    /// The PodDisruptionBudget, for servers of several pods.
    pub fn disruption_budget(&self) -> String {
        format!("{}-longshore", self.server)
    }

    /// The ServiceAccount without rights, for servers that name none.
    pub fn service_account(&self) -> String {
        format!("{}-longshore", self.server)
    }

    /// The NetworkPolicy.
    pub fn network_policy(&self) -> String {
        format!("{}-longshore", self.server)
    }

    /// The Secret with the hashes of the API keys.
    pub fn keys_secret(&self) -> String {
        format!("{}{KEYS_SECRET_SUFFIX}", self.server)
    }

    /// The ConfigMap with the configuration of the sidecars that reach their server in one certain way.
    ///
    /// The name carries the version of the contract, so that a sidecar of an older release that restarts during an
    /// upgrade still finds what it can read.
    pub fn config_map(&self, contract: u32, upstream_digest: &str) -> String {
        format!("{}-longshore-v{contract}-{}", self.server, &upstream_digest[..8.min(upstream_digest.len())])
    }
}
