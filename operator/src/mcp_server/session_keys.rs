//! The keys that a server's session ids are sealed with. Pure: time and randomness are arguments.
//!
//! They live in Longshore's own Secret of the server, and nowhere else: what that Secret holds is in force, and when it
//! has gone, so have they.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use k8s_openapi::ByteString;
use longshore_sidecar_config::{Keys, SessionKey, paths};
use thiserror::Error;

/// How many bytes a key has.
const SECRET_BYTES: usize = 32;

/// The keys of one server, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionKeys {
    held: Vec<SessionKey>,
    seal_with: u8,
}

/// What a new key is made of.
#[derive(Clone)]
pub struct Material {
    /// The number of a server's very first key: another one than that of a key which was lost, most likely.
    pub first_id: u8,
    /// The key.
    pub secret: [u8; SECRET_BYTES],
}

/// Why the keys in a Secret cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Broken {
    /// The file is none.
    #[error("its {file} cannot be read", file = paths::KEYS_FILE)]
    Unreadable,
    /// Two keys have one number, or one is too short, or there is none.
    #[error("its session keys are not what Longshore wrote")]
    Altered,
}

// === impl SessionKeys ===

impl SessionKeys {
    /// The first key of a server.
    pub fn first(material: &Material) -> Self {
        let id = material.first_id.max(1);
        Self { held: vec![material.key(id)], seal_with: id }
    }

    /// The keys that a Secret holds. `None`: it is of a release that had none.
    pub fn read(data: &BTreeMap<String, ByteString>) -> Result<Option<Self>, Broken> {
        let Some(file) = data.get(paths::KEYS_FILE) else { return Err(Broken::Unreadable) };
        let value: serde_json::Value = serde_json::from_slice(&file.0).map_err(|_| Broken::Unreadable)?;
        if value.get("sessions").is_none() {
            return Ok(None);
        }
        let Keys { sessions: held, keys: _ } = serde_json::from_value(value).map_err(|_| Broken::Altered)?;
        let ids: BTreeSet<u8> = held.iter().map(|key| key.id).collect();
        if ids.len() != held.len() || !held.iter().all(is_whole) {
            return Err(Broken::Altered);
        }
        // Of those that are there every replica knows the oldest for sure.
        let seal_with = held.first().ok_or(Broken::Altered)?.id;
        Ok(Some(Self { held, seal_with }))
    }

    /// One key of a number and of bytes that tests know.
    #[cfg(test)]
    pub(crate) fn of_tests() -> Self {
        Self::first(&Material { first_id: 1, secret: [0x11; SECRET_BYTES] })
    }

    /// All that are accepted.
    pub fn held(&self) -> &[SessionKey] {
        &self.held
    }

    /// The number of the one that new ids are sealed with.
    pub fn seal_with(&self) -> u8 {
        self.seal_with
    }
}

fn is_whole(key: &SessionKey) -> bool {
    key.secret.len() == 2 * SECRET_BYTES
        && key.secret.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

// === impl Material ===

impl Material {
    fn key(&self, id: u8) -> SessionKey {
        let secret = self.secret.iter().fold(String::with_capacity(2 * SECRET_BYTES), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        SessionKey { id, secret }
    }
}
