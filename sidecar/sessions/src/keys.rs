//! The keys of one server's sessions, derived from the secrets in its configuration. Each use has a key of its own, so
//! that what is made for one is worth nothing for another; the server's UID goes into all of them.

use aws_lc_rs::aead::{AES_256_GCM_SIV, LessSafeKey, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use thiserror::Error;

/// What keys for session ids are derived with.
const SESSION_IDS: &[u8] = b"longshore/1/session-ids";
/// What keys for the states of parked calls are derived with.
const REQUEST_STATES: &[u8] = b"longshore/1/request-states";
/// What keys for the ids of tasks are derived with.
const TASKS: &[u8] = b"longshore/1/tasks";
/// What keys for what clients have set are derived with, as it is written down.
const NOTES: &[u8] = b"longshore/1/notes";
/// What the identities of replicas towards each other are derived with.
const PEERS: &[u8] = b"longshore/1/peers";
/// The length of secrets and of all that is derived.
const LENGTH: usize = 32;

/// One secret of the configuration.
#[derive(Clone)]
pub struct Secret {
    /// Its number, by which session ids name it.
    pub id: u8,
    /// 32 random bytes.
    pub bytes: [u8; LENGTH],
}

/// The keys of one server: one to seal with, all of them to open with.
pub struct Keyring {
    /// The `McpServer`'s UID, without which nothing opens.
    pub(crate) server: Box<str>,
    keys: Vec<Key>,
    sealing: usize,
}

/// What is derived from one secret.
pub(crate) struct Key {
    pub(crate) id: u8,
    pub(crate) session_ids: LessSafeKey,
    pub(crate) request_states: LessSafeKey,
    pub(crate) tasks: LessSafeKey,
    pub(crate) notes: LessSafeKey,
    peers: [u8; LENGTH],
}

/// Secrets that make no keyring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyringError {
    /// Ids would not say which of two to open them with.
    #[error("two session keys have the number {0}")]
    Twice(u8),
    /// There would be nothing to seal with.
    #[error("there is no session key of number {0}, which is to be sealed with")]
    Missing(u8),
    /// The library refused.
    #[error("no keys can be derived from session key {0}")]
    Derive(u8),
}

/// A server's keys of these numbers, which tests know.
#[cfg(test)]
pub(crate) fn ring(server: &str, keys: &[u8], seal_with: u8) -> Keyring {
    let secrets = keys.iter().map(|id| Secret { id: *id, bytes: [*id; LENGTH] });
    Keyring::new(server, secrets, seal_with).unwrap()
}

// === impl Keyring ===

impl Keyring {
    /// Derives the keys of the server with that UID.
    pub fn new(
        server: &str,
        secrets: impl IntoIterator<Item = Secret>,
        seal_with: u8,
    ) -> Result<Self, KeyringError> {
        let mut keys: Vec<Key> = Vec::new();
        for secret in secrets {
            if keys.iter().any(|key| key.id == secret.id) {
                return Err(KeyringError::Twice(secret.id));
            }
            keys.push(Key::derive(server, &secret).ok_or(KeyringError::Derive(secret.id))?);
        }
        let sealing =
            keys.iter().position(|key| key.id == seal_with).ok_or(KeyringError::Missing(seal_with))?;
        Ok(Self { server: server.into(), keys, sealing })
    }

    /// The seed of the Ed25519 key by which this replica shows its peers who it is: that of the key it seals with.
    pub fn peer_seed(&self) -> &[u8; LENGTH] {
        &self.sealing().peers
    }

    /// The seeds of all Ed25519 keys that a peer may show, this replica's own among them.
    pub fn peer_seeds(&self) -> impl Iterator<Item = &[u8; LENGTH]> {
        self.keys.iter().map(|key| &key.peers)
    }

    /// Whether anything that one of the two has sealed opens with the other, or can be made to.
    pub fn shares_keys_with(&self, other: &Self) -> bool {
        self.peer_seeds().any(|seed| other.peer_seeds().any(|theirs| theirs == seed))
    }

    /// What new ids are sealed with.
    pub(crate) fn sealing(&self) -> &Key {
        &self.keys[self.sealing]
    }

    /// The key of that number.
    pub(crate) fn key(&self, id: u8) -> Option<&Key> {
        self.keys.iter().find(|key| key.id == id)
    }
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids: Vec<u8> = self.keys.iter().map(|key| key.id).collect();
        f.debug_struct("Keyring").field("server", &self.server).field("keys", &ids).finish_non_exhaustive()
    }
}

// === impl Key ===

impl Key {
    fn derive(server: &str, secret: &Secret) -> Option<Self> {
        let root = Salt::new(HKDF_SHA256, server.as_bytes()).extract(&secret.bytes);
        let cipher =
            |label| UnboundKey::new(&AES_256_GCM_SIV, &expand(&root, label)?).ok().map(LessSafeKey::new);
        Some(Self {
            id: secret.id,
            session_ids: cipher(SESSION_IDS)?,
            request_states: cipher(REQUEST_STATES)?,
            tasks: cipher(TASKS)?,
            notes: cipher(NOTES)?,
            peers: expand(&root, PEERS)?,
        })
    }
}

struct Length;

impl KeyType for Length {
    fn len(&self) -> usize {
        LENGTH
    }
}

fn expand(root: &Prk, label: &[u8]) -> Option<[u8; LENGTH]> {
    let mut out = [0; LENGTH];
    root.expand(&[label], Length).ok()?.fill(&mut out).ok()?;
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(id: u8) -> Secret {
        Secret { id, bytes: [id; LENGTH] }
    }

    #[test]
    fn every_secret_server_and_use_has_a_key_of_its_own() {
        let ring = Keyring::new("uid", [secret(1), secret(2)], 2).unwrap();
        let other = Keyring::new("other", [secret(1), secret(2)], 2).unwrap();
        let seeds: Vec<_> = ring.peer_seeds().chain(other.peer_seeds()).collect();
        for (at, seed) in seeds.iter().enumerate() {
            assert!(seeds.iter().skip(at + 1).all(|later| later != seed));
        }
        assert_eq!(ring.peer_seed(), seeds[1], "the one that is sealed with");
        let again = Keyring::new("uid", [secret(2)], 2).unwrap();
        assert_eq!(again.peer_seed(), ring.peer_seed(), "replicas derive the same");
        let root = Salt::new(HKDF_SHA256, b"uid").extract(&[1; LENGTH]);
        assert_ne!(expand(&root, SESSION_IDS), expand(&root, PEERS));
    }

    /// Replicas of two releases know each other by it during a rollout.
    #[test]
    fn peers_of_earlier_releases_are_known() {
        let ring = ring("7a3b5c1e-0000-4000-8000-000000000001", &[1], 1);
        let seed: String = ring.peer_seed().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(seed, "7a2205f5dc819fc5401cd90933d40ab476e98c57a5ddabc50427b7fca8c04368");
    }

    #[test]
    fn keyrings_share_keys_by_their_secrets_and_not_by_their_numbers() {
        let ring =
            |server: &str, secrets: &[Secret]| Keyring::new(server, secrets.to_vec(), secrets[0].id).unwrap();
        let one = ring("uid", &[secret(1)]);
        assert!(one.shares_keys_with(&ring("uid", &[secret(2), secret(1)])));
        for other in [
            ring("uid", &[secret(2)]),
            ring("uid", &[Secret { id: 1, bytes: [9; LENGTH] }]),
            ring("other", &[secret(1)]),
        ] {
            assert!(!one.shares_keys_with(&other) && !other.shares_keys_with(&one));
        }
    }

    #[test]
    fn bad_keyrings_are_refused() {
        let error = |secrets: &[u8], with| {
            Keyring::new("uid", secrets.iter().map(|id| secret(*id)), with).unwrap_err()
        };
        assert_eq!(error(&[], 1), KeyringError::Missing(1));
        assert_eq!(error(&[1, 2], 3), KeyringError::Missing(3));
        assert_eq!(error(&[1, 1], 1), KeyringError::Twice(1));
    }

    #[test]
    fn nothing_of_a_keyring_is_shown() {
        let shown = format!("{:?}", Keyring::new("uid", [secret(7)], 7).unwrap());
        assert_eq!(shown, "Keyring { server: \"uid\", keys: [7], .. }");
    }
}
