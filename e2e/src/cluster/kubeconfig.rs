//! Kubeconfigs, with everything inside of them: they can be moved and outlive the files that they were made of.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::spec::Spec;

/// Who a kubeconfig speaks for, in PEM.
pub(crate) struct Identity<'a> {
    pub(crate) authority: &'a str,
    pub(crate) certificate: &'a str,
    pub(crate) key: &'a str,
}

/// The kubeconfig, as JSON, which is YAML.
pub(crate) fn to_yaml(spec: &Spec, identity: &Identity<'_>) -> String {
    let name = format!("longshore-{}", spec.name);
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {
            "server": spec.server(),
            "certificate-authority-data": STANDARD.encode(identity.authority),
        }}],
        "users": [{"name": name, "user": {
            "client-certificate-data": STANDARD.encode(identity.certificate),
            "client-key-data": STANDARD.encode(identity.key),
        }}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    });
    format!("{config:#}\n")
}
