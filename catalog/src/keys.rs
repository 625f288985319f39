//! Who may log in.

use std::sync::Arc;

use arc_swap::ArcSwap;
use longshore_sidecar_config::ApiKey;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};

use crate::Hosts;

/// How callers prove who they are. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Login {
    /// They need not, where they ask for the catalog by one of its names.
    OpenBy(Hosts),
    /// With an API key. The ring may be exchanged at any time.
    Keys(Arc<ArcSwap<KeyRing>>),
}

/// The API keys that are live, as hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRing {
    keys: Vec<([u8; 32], String)>,
}

impl Login {
    /// With one of these keys.
    pub fn with_keys(ring: KeyRing) -> Self {
        Self::Keys(Arc::new(ArcSwap::from_pointee(ring)))
    }
}

impl KeyRing {
    /// The ring of these keys. What is no SHA-256 is nobody's key.
    pub fn new(keys: &[ApiKey]) -> Self {
        let keys = keys.iter().filter_map(|key| Some((bytes(&key.sha256)?, key.principal.clone()))).collect();
        Self { keys }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether nobody can log in.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whose key this is. Every key is compared in full, so that the time tells nothing.
    pub fn principal(&self, key: &str) -> Option<&str> {
        let hash: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        let mut found = 0_u32;
        let mut any = Choice::from(0);
        for (number, (known, _)) in (0_u32..).zip(&self.keys) {
            let same = known.ct_eq(&hash);
            found.conditional_assign(&number, same);
            any |= same;
        }
        bool::from(any)
            .then(|| self.keys.get(found as usize).map(|(_, principal)| principal.as_str()))
            .flatten()
    }
}

fn bytes(hex: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(principal: &str, plain: &str) -> ApiKey {
        let sha256 = Sha256::digest(plain).iter().map(|byte| format!("{byte:02x}")).collect();
        ApiKey { principal: principal.to_owned(), sha256 }
    }

    #[test]
    fn a_key_is_its_holders_and_nothing_else_is_a_key() {
        let broken = ApiKey { principal: "eve".to_owned(), sha256: "12".to_owned() };
        let ring = KeyRing::new(&[key("ada", "one"), key("bob", "two"), key("ada", "three"), broken]);
        assert_eq!(ring.len(), 3);
        for (plain, expected) in [
            ("one", Some("ada")),
            ("two", Some("bob")),
            ("three", Some("ada")),
            ("four", None),
            ("", None),
            ("12", None),
        ] {
            assert_eq!(ring.principal(plain), expected, "{plain}");
        }
        assert_eq!(KeyRing::default().principal("one"), None);
    }
}
