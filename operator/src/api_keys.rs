//! API keys: how one is made. What a Secret with keys holds is [`longshore_crds::api_keys`], which the catalog reads too.

use thiserror::Error;

use crate::digest;

pub(crate) use longshore_crds::api_keys::ParsedKeys;

/// A key that was just made. Shown once; Longshore keeps the hash only.
pub(crate) struct NewKey {
    /// The key itself.
    pub key: String,
    /// `sha256:<64 hex digits>`: the line for the Secret.
    pub line: String,
}

/// The system gave no random numbers.
#[derive(Debug, Error)]
#[error("the system gave no random numbers")]
pub(crate) struct NoRandomness;

impl NewKey {
    /// Makes a key of 256 random bits.
    pub(crate) fn generate() -> Result<Self, NoRandomness> {
        use base64::Engine as _;
        let mut bits = [0_u8; 32];
        aws_lc_rs::rand::fill(&mut bits).map_err(|_| NoRandomness)?;
        let key = format!("lsk_{}", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bits));
        let line = digest::prefixed(key.as_bytes());
        Ok(Self { key, line })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;
    use longshore_crds::api_keys;

    use super::*;

    #[test]
    fn a_new_key_matches_its_own_line() {
        let new = NewKey::generate().unwrap();
        assert!(new.key.starts_with("lsk_") && new.key.len() == 4 + 43, "{}", new.key.len());
        let data = BTreeMap::from([("ada".to_owned(), ByteString(new.line.clone().into_bytes()))]);
        let parsed = ParsedKeys::from_data(&data);
        assert_eq!(parsed.keys.len(), 1);
        assert_eq!(parsed.keys[0].sha256, api_keys::hash(&new.key));
        assert_ne!(new.key, NewKey::generate().unwrap().key);
    }
}
