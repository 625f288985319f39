//! The Secret with the API keys' hashes, and the sidecar's file made of it.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use longshore_sidecar_config::{Keys, paths};

use super::{metadata, to_json};
use crate::digest;
use crate::mcp_server::validate::{ValidatedAuth, ValidatedServer};

/// The Secret, and the digest of the file in it.
///
/// It is there without keys too: a pod then needs no restart when its server gets keys, and cannot go on serving
/// everybody meanwhile.
pub(super) fn build(server: &ValidatedServer) -> (Secret, String) {
    let keys = match &server.auth {
        ValidatedAuth::None => Vec::new(),
        ValidatedAuth::ApiKeys(keys) => keys.clone(),
    };
    let file = to_json(&Keys { keys, sessions: server.session_keys.held().to_vec() });
    let digest = digest::prefixed(file.as_bytes());
    let data = BTreeMap::from([(paths::KEYS_FILE.to_owned(), ByteString(file.into_bytes()))]);
    let secret = Secret {
        metadata: metadata(server, server.names.keys_secret()),
        type_: Some("Opaque".to_owned()),
        data: Some(data),
        ..Secret::default()
    };
    (secret, digest)
}
