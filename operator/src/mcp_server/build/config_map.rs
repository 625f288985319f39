//! The ConfigMap with the sidecar's configuration.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use longshore_sidecar_config::{Auth, CONTRACT_VERSION, Config, Limits, Sessions, Upstream, paths};

use super::{metadata, peers, to_json, upstream_text};
use crate::digest;
use crate::mcp_server::validate::{ValidatedAuth, ValidatedServer};
use crate::settings::Settings;

/// The ConfigMap for sidecars that reach their server in this way, and the digest that those report once they run it.
pub(super) fn build(
    server: &ValidatedServer,
    settings: &Settings,
    upstream: &Upstream,
    keys_digest: &str,
) -> (ConfigMap, String) {
    let name = name(server, upstream);
    let config = Config {
        version: CONTRACT_VERSION,
        server: server.identity.clone(),
        // Of no generation: what changes nothing else, such as the number of pods, is no news for sidecars.
        generation: 0,
        upstream: upstream.clone(),
        // Nothing is said of what was reached in another way before.
        protocol: server
            .protocol
            .filter(|_| *upstream == server.upstream)
            .map(|revision| revision.as_str().to_owned()),
        keys_digest: keys_digest.to_owned(),
        auth: match &server.auth {
            ValidatedAuth::None => Auth::None,
            ValidatedAuth::ApiKeys(_) => Auth::ApiKeys {},
        },
        access: server.access.clone(),
        tools: server.tools.clone(),
        limits: Limits {
            processes: server.limits.processes.filter(|_| matches!(upstream, Upstream::Stdio {})),
            ..server.limits
        },
        sessions: Sessions { seal_with: server.session_keys.seal_with(), ..server.sessions.clone() },
        peers: peers::config(server, settings),
        hosts: hosts(server, settings),
        allowed_origins: server.allowed_origins.clone(),
        inventory: server.inventory.clone(),
        log_level: server.sidecar.log_level,
    };
    let file = to_json(&config);
    let digest = digest::prefixed(file.as_bytes());
    let config_map = ConfigMap {
        metadata: metadata(server, name),
        data: Some(BTreeMap::from([(paths::CONFIG_FILE.to_owned(), file)])),
        ..ConfigMap::default()
    };
    (config_map, digest)
}

/// The ConfigMap's name. It changes with the way to reach the server, so that a pod of an older version keeps the way that
/// fits it.
pub(crate) fn name(server: &ValidatedServer, upstream: &Upstream) -> String {
    server.names.config_map(CONTRACT_VERSION, &digest::hex(upstream_text(upstream).as_bytes()))
}

/// The names by which clients may address the server: those of its Service, and the public one.
fn hosts(server: &ValidatedServer, settings: &Settings) -> Vec<String> {
    let service = server.names.service();
    let namespace = &server.identity.namespace;
    let domain = &settings.cluster_domain;
    let mut hosts = vec![
        service.clone(),
        format!("{service}.{namespace}"),
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}.svc.{domain}"),
    ];
    hosts.extend(server.public_host.clone());
    hosts
}
