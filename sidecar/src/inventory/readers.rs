//! Who may read the inventory: bearers of a ServiceAccount token, checked offline against the cluster's keys.

use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, JwkSet};
use jsonwebtoken::{DecodingKey, Validation, decode, decode_header};
use longshore_sidecar_config::{INVENTORY_AUDIENCE, InventoryAccess};
use serde::Deserialize;
use thiserror::Error;

/// How far the clocks of the cluster may be apart, in seconds.
const LEEWAY: u64 = 30;

/// Who may read.
pub(crate) struct Readers {
    subjects: Vec<String>,
    keys: Vec<Key>,
}

struct Key {
    id: Option<String>,
    key: DecodingKey,
    validation: Validation,
}

/// The configuration names readers that cannot be checked.
#[derive(Debug, Error)]
pub(crate) enum ReadersError {
    #[error("\"jwks\" is not a JSON Web Key Set")]
    NotKeySet(#[source] serde_json::Error),
}

/// A token that is not accepted.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum NotReader {
    #[error("a ServiceAccount token of audience {INVENTORY_AUDIENCE} is needed")]
    Invalid,
    #[error("this ServiceAccount may not read the inventory")]
    Subject,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
}

impl Readers {
    pub(crate) fn compile(access: &InventoryAccess) -> Result<Self, ReadersError> {
        let InventoryAccess { issuer, subjects, jwks } = access;
        // Keys are read one by one: a cluster may publish a kind that is not known here beside those that are. A key
        // that is left out accepts nothing.
        #[derive(Deserialize)]
        struct Keys {
            keys: Vec<serde_json::Value>,
        }
        let Keys { keys } = serde_json::from_value(jwks.clone()).map_err(ReadersError::NotKeySet)?;
        let keys: Vec<Jwk> = keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).collect();
        let JwkSet { keys } = JwkSet { keys };
        let keys = keys.iter().filter_map(|jwk| Key::compile(jwk, issuer)).collect();
        Ok(Self { subjects: subjects.clone(), keys })
    }

    /// Whether the bearer of this token may read.
    pub(crate) fn check(&self, token: &[u8]) -> Result<(), NotReader> {
        let id = decode_header(token).map_err(|_| NotReader::Invalid)?.kid;
        let candidates = self.keys.iter().filter(|key| id.is_none() || key.id.is_none() || key.id == id);
        for key in candidates {
            if let Ok(token) = decode::<Claims>(token, &key.key, &key.validation) {
                let known = self.subjects.contains(&token.claims.sub);
                return if known { Ok(()) } else { Err(NotReader::Subject) };
            }
        }
        Err(NotReader::Invalid)
    }
}

impl Key {
    fn compile(jwk: &Jwk, issuer: &str) -> Option<Self> {
        if matches!(jwk.algorithm, AlgorithmParameters::OctetKey(_)) {
            // A shared secret in a published set would let every reader sign.
            return None;
        }
        let key = DecodingKey::from_jwk(jwk).ok()?;
        // The key decides which algorithms there are, never the token.
        let mut validation = Validation::new_for_family(key.family());
        validation.set_audience(&[INVENTORY_AUDIENCE]);
        validation.set_issuer(&[issuer]);
        validation.set_required_spec_claims(&["exp", "aud", "iss", "sub"]);
        validation.validate_nbf = true;
        validation.leeway = LEEWAY;
        Some(Self { id: jwk.common.key_id.clone(), key, validation })
    }
}
