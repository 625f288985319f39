//! The API keys of local servers: those of a Secret beside the manifest, or else the one on the command line, or one that is
//! made for the occasion.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::jiff::Timestamp;
use longshore_crds::{McpServer, api_keys};
use longshore_sidecar_config::ApiKey;

use super::ServerId;
use super::manifests::Data;
use crate::api_keys::{NewKey, NoRandomness, ParsedKeys};
use crate::mcp_server::dereference::{ApiKeysLookup, own_keys};
use crate::mcp_server::session_keys::SessionKeys;

/// Whose key it is that is made here.
pub(super) const PRINCIPAL: &str = "local";

/// The keys that were made, by server. They live as long as the process, so that clients go on working after a change.
#[derive(Default)]
pub(super) struct Made {
    api_keys: BTreeMap<ServerId, String>,
    session_keys: BTreeMap<ServerId, SessionKeys>,
}

/// What clients of a server have to bring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClientKey {
    /// Nothing.
    NotNeeded,
    /// This key.
    Known(String),
    /// One whose hash is in the Secret: nobody here can say it.
    Hashed,
    /// The same, and the one on the command line is none of the server's.
    NotTheirs,
}

/// The keys of a server, as the validation wants them, and the one to show.
pub(super) fn of(
    manifest: &McpServer,
    id: &ServerId,
    secret: Option<&Data>,
    given: Option<&str>,
    made: &mut Made,
) -> Result<(ApiKeysLookup, ClientKey), NoRandomness> {
    if manifest.spec.auth.api_keys.is_none() {
        return Ok((ApiKeysLookup::NotNamed, ClientKey::NotNeeded));
    }
    let Some(data) = secret else {
        let key = match given.filter(|key| is_usable(key)) {
            // What was pasted into a client works after a restart, too.
            Some(key) => key.to_owned(),
            None => made.of(id)?,
        };
        let known = ApiKey { principal: PRINCIPAL.to_owned(), sha256: api_keys::hash(&key) };
        let keys = ParsedKeys { keys: vec![known], problems: Vec::new() };
        return Ok((ApiKeysLookup::Present(keys), ClientKey::Known(key)));
    };
    let parsed = ParsedKeys::from_data(data);
    let is_live = |key: &str| {
        let hash = api_keys::hash(key);
        parsed.keys.iter().any(|live| live.sha256 == hash)
    };
    // The one on the command line may be another server's.
    let shown = match given.into_iter().chain(plain(data)).find(|key| is_live(key)) {
        Some(key) => ClientKey::Known(key.to_owned()),
        None if given.is_some() => ClientKey::NotTheirs,
        None => ClientKey::Hashed,
    };
    Ok((ApiKeysLookup::Present(parsed), shown))
}

impl Made {
    fn of(&mut self, id: &ServerId) -> Result<String, NoRandomness> {
        if let Some(key) = self.api_keys.get(id) {
            return Ok(key.clone());
        }
        let key = NewKey::generate()?.key;
        self.api_keys.insert(id.clone(), key.clone());
        Ok(key)
    }

    /// What the sessions of a server are sealed with.
    pub(super) fn session_keys(&mut self, id: &ServerId) -> Result<SessionKeys, NoRandomness> {
        if let Some(keys) = self.session_keys.get(id) {
            return Ok(keys.clone());
        }
        let keys = SessionKeys::first(&own_keys::material()?, Timestamp::now(), None);
        self.session_keys.insert(id.clone(), keys.clone());
        Ok(keys)
    }
}

/// Whether a Secret could hold it as a plain key.
fn is_usable(key: &str) -> bool {
    let data = Data::from([(PRINCIPAL.to_owned(), ByteString(key.as_bytes().to_vec()))]);
    let parsed = ParsedKeys::from_data(&data);
    parsed.problems.is_empty() && parsed.keys.len() == 1 && plain(&data).eq([key])
}

/// The lines that may be plain keys.
fn plain(data: &Data) -> impl Iterator<Item = &str> {
    data.values()
        .filter_map(|value| std::str::from_utf8(&value.0).ok())
        .flat_map(str::lines)
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("sha256:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "a-plain-key-of-some-length";

    fn server(auth: serde_json::Value) -> McpServer {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "longshore.dev/v1alpha1", "kind": "McpServer", "metadata": {"name": "a"},
            "spec": {"auth": auth},
        }))
        .unwrap()
    }

    #[test]
    fn a_key_is_shown_where_it_can_be_and_made_where_there_is_no_secret() {
        let id = ServerId { namespace: "n".to_owned(), name: "a".to_owned() };
        let keyed = server(serde_json::json!({"apiKeys": {"secretRef": {"name": "keys"}}}));
        let hashed = format!("sha256:{}", api_keys::hash(PLAIN));
        let data = |text: &str| Data::from([("ada".to_owned(), ByteString(text.as_bytes().to_vec()))]);
        let mut made = Made::default();
        for (secret, given, expected) in [
            (Some(data(PLAIN)), None, ClientKey::Known(PLAIN.to_owned())),
            (Some(data(&hashed)), None, ClientKey::Hashed),
            (Some(data(&hashed)), Some(PLAIN), ClientKey::Known(PLAIN.to_owned())),
            (Some(data(&hashed)), Some("another"), ClientKey::NotTheirs),
            (Some(data(PLAIN)), Some("another"), ClientKey::Known(PLAIN.to_owned())),
            (Some(data("short")), Some("short"), ClientKey::NotTheirs),
            (Some(data("short")), None, ClientKey::Hashed),
        ] {
            let (_, shown) = of(&keyed, &id, secret.as_ref(), given, &mut made).unwrap();
            assert_eq!(shown, expected);
        }
        let (lookup, first) = of(&keyed, &id, None, None, &mut made).unwrap();
        let ClientKey::Known(key) = &first else { panic!("{first:?}") };
        let ApiKeysLookup::Present(parsed) = lookup else { panic!("{lookup:?}") };
        assert_eq!(parsed.keys, [ApiKey { principal: PRINCIPAL.to_owned(), sha256: api_keys::hash(key) }]);
        assert_eq!(of(&keyed, &id, None, None, &mut made).unwrap().1, first, "it stays");
        let hash = format!("sha256:{}", api_keys::hash(PLAIN));
        for (given, is_used) in
            [(PLAIN, true), ("short", false), ("", false), (&hash, false), ("two keys-of-some-length", false)]
        {
            let shown = of(&keyed, &id, None, Some(given), &mut made).unwrap().1;
            assert_eq!(shown == ClientKey::Known(given.to_owned()), is_used, "{given}");
            assert!(is_used || shown == first, "{given}");
        }
        let open = server(serde_json::json!({"none": {}}));
        assert_eq!(of(&open, &id, None, None, &mut made).unwrap().1, ClientKey::NotNeeded);
    }
}
