//! The Secret with the API keys' hashes and the session keys, and the sidecar's file made of it.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use longshore_sidecar_config::{Keys, paths};

use super::{metadata, to_json};
use crate::digest;
use crate::mcp_server::validate::{ValidatedAuth, ValidatedServer};
use crate::names::SESSION_KEYS_ANNOTATION;

/// The Secret, and the digest of the file in it.
///
/// It is there without keys too: a pod then needs no restart when its server gets keys, and cannot go on serving
/// everybody meanwhile.
pub(super) fn build(server: &ValidatedServer) -> (Secret, String) {
    let keys = match &server.auth {
        ValidatedAuth::None => Vec::new(),
        ValidatedAuth::ApiKeys(keys) => keys.clone(),
    };
    let file = to_json(&Keys { keys, sessions: server.session_keys.held().cloned().collect() });
    let digest = digest::prefixed(file.as_bytes());
    let data = BTreeMap::from([(paths::KEYS_FILE.to_owned(), ByteString(file.into_bytes()))]);
    let record = BTreeMap::from([(SESSION_KEYS_ANNOTATION.to_owned(), server.session_keys.record())]);
    let metadata = ObjectMeta { annotations: Some(record), ..metadata(server, server.names.keys_secret()) };
    let secret = Secret { metadata, type_: Some("Opaque".to_owned()), data: Some(data), ..Secret::default() };
    (secret, digest)
}
