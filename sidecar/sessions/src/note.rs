//! What a client has set in its session, as a replica writes it down for the process that comes after it. It is sealed,
//! with a key of its own, since a file lies where others in the pod may read.

use serde::{Deserialize, Serialize};

use crate::capsule::{NonceBytes, NotSealed};
use crate::identity::SessionKey;
use crate::keys::Keyring;
use crate::message::Copy;

/// The longest text that is opened: more than as many subscriptions have as are kept of a session.
const MAX_TEXT: usize = 1 << 20;

/// What the client of one session had set at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The session.
    pub key: SessionKey,
    /// When it ends whatever happens, in seconds since 1970.
    pub expires: u64,
    /// What was set.
    pub copy: Copy,
}

// === impl Keyring ===

impl Keyring {
    /// A note as text: letters, digits, `-` and `_`.
    pub fn seal_note(&self, note: &Note, nonce: NonceBytes) -> Result<String, NotSealed> {
        let plain = serde_json::to_vec(note).map_err(|_| NotSealed)?;
        self.seal_bytes(|key| &key.notes, plain, nonce)
    }

    /// The note in a text. `None`, and nothing more is said: it is no note of this server's.
    pub fn open_note(&self, text: &str) -> Option<Note> {
        let plain = self.open_bytes(|key| &key.notes, text, MAX_TEXT)?;
        serde_json::from_slice(&plain).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::bounds::{MAX_SUBSCRIPTION, MAX_SUBSCRIPTIONS};
    use crate::keys::ring;

    /// Also the longest, with characters that take more bytes in JSON than others.
    #[test]
    fn what_is_sealed_opens_the_same_and_nothing_else_opens() {
        let uri = |number: usize| -> Arc<str> {
            format!("{number:0>2}{}", "\u{1}".repeat(MAX_SUBSCRIPTION - 2)).into()
        };
        let subscriptions = (0..MAX_SUBSCRIPTIONS).map(uri).collect();
        let key = SessionKey::new([7; 16]);
        for copy in [Copy { version: 3, subscriptions, ..Copy::default() }, Copy::default()] {
            let note = Note { key, expires: 5, copy };
            let sealed = ring("uid", &[1, 2], 2).seal_note(&note, [3; 12]).unwrap();
            assert!(sealed.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
            // Another server, half a text, and another use of the same key.
            assert_eq!(ring("other", &[2], 2).open_note(&sealed), None);
            assert_eq!(ring("uid", &[2], 2).open_note(&sealed[..sealed.len() / 2]), None);
            assert_eq!(ring("uid", &[2], 2).open_task(&sealed), None);
            // A process that seals with another key by now opens it too.
            assert_eq!(ring("uid", &[2, 3], 3).open_note(&sealed), Some(note));
        }
    }
}
