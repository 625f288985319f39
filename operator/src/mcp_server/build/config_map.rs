//! The ConfigMap with the sidecar's configuration.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use longshore_sidecar_config::{
    Auth, CONTRACT_VERSION, Config, Limits, Processes, Sessions, Upstream, paths,
};

use super::{metadata, peers, to_json, upstream_text};
use crate::digest;
use crate::mcp_server::validate::{ValidatedAuth, ValidatedServer};
use crate::names::CONFIGURED_ANNOTATION;
use crate::settings::Settings;

/// The ConfigMap for sidecars that reach their server in this way, and the digest that those report once they run it.
pub(super) fn build(
    server: &ValidatedServer,
    settings: &Settings,
    upstream: &Upstream,
    keys_digest: &str,
) -> (ConfigMap, String) {
    let name = name(server, upstream);
    let before = server.configured.get(&name).map(String::as_str);
    let mut config = Config {
        version: CONTRACT_VERSION,
        server: server.identity.clone(),
        generation: server.generation,
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
        limits: Limits { processes: processes(server, upstream, before), ..server.limits },
        sessions: Sessions { seal_with: server.session_keys.seal_with(), ..server.sessions.clone() },
        peers: peers::config(server, settings),
        hosts: hosts(server, settings),
        allowed_origins: server.allowed_origins.clone(),
        inventory: server.inventory.clone(),
        log_level: server.sidecar.log_level,
    };
    let configured = settle(&mut config, before);
    let file = to_json(&config);
    let digest = digest::prefixed(file.as_bytes());
    let annotations = BTreeMap::from([(CONFIGURED_ANNOTATION.to_owned(), configured)]);
    let config_map = ConfigMap {
        metadata: ObjectMeta { annotations: Some(annotations), ..metadata(server, name) },
        data: Some(BTreeMap::from([(paths::CONFIG_FILE.to_owned(), file)])),
        ..ConfigMap::default()
    };
    (config_map, digest)
}

/// Bounds of the processes, where there are any. A manifest of a server that is no stdio server any more says none: pods from
/// before go by those that they had.
fn processes(server: &ValidatedServer, upstream: &Upstream, before: Option<&str>) -> Option<Processes> {
    let written = server.limits.processes.filter(|_| matches!(upstream, Upstream::Stdio {}))?;
    if *upstream == server.upstream {
        return Some(written);
    }
    let kept = before.and_then(|text| serde_json::from_str(text.splitn(3, '/').nth(2)?).ok());
    Some(kept.unwrap_or(written))
}

/// Gives a configuration the generation that it had before if nothing else in it has changed: a change of the manifest
/// that does not reach the sidecars, such as of the number of pods, is no news for them. Returns how it was made: that
/// generation, a digest of the rest, and the bounds of processes, if it has any.
fn settle(config: &mut Config, before: Option<&str>) -> String {
    let rest = Config { generation: 0, ..config.clone() };
    let rest = digest::hex(to_json(&rest).as_bytes())[..16].to_owned();
    let mut before = before.unwrap_or_default().splitn(3, '/');
    if let (Some(generation), Some(same)) = (before.next(), before.next())
        && same == rest
        && let Ok(generation) = generation.parse()
    {
        config.generation = generation;
    }
    let processes = config.limits.processes.map(|processes| format!("/{}", to_json(&processes)));
    format!("{}/{rest}{}", config.generation, processes.unwrap_or_default())
}

/// Its name. It changes with the way to reach the server, so that a pod of an older version keeps the way that fits it.
pub(super) fn name(server: &ValidatedServer, upstream: &Upstream) -> String {
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
