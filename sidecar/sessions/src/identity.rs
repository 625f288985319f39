//! What replicas and sessions are known by, and what a moment is.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::bounds::MAX_POD_ID;
use crate::capsule::PrincipalDigest;

/// A pod's UID. It tells a pod from another one that has its name, or its address, later.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Arc<str>", into = "Arc<str>")]
pub struct PodId(Arc<str>);

/// Text that is no pod's UID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the UID of a pod is 1 to {MAX_POD_ID} letters, digits and dashes")]
pub struct NotAPodId;

/// The identity of a session everywhere: 128 bits, of which the first 16 tell whose it is, and the others are random. (Earlier
/// releases have all of them random.) A client never sees it, since ids are sealed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "&str", into = "String")]
pub struct SessionKey([u8; 16]);

/// Text that is no session's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the key of a session is 32 lower-case hexadecimal digits")]
pub struct NotASessionKey;

/// A replica, and where it can be reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Peer {
    /// Which one.
    pub pod: PodId,
    /// Where.
    pub address: IpAddr,
}

/// A moment of a clock that never goes back: milliseconds since a beginning that one process chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

// === impl PodId ===

impl PodId {
    /// The pod of that UID.
    pub fn new(uid: &str) -> Result<Self, NotAPodId> {
        Self::try_from(Arc::from(uid))
    }

    /// The UID.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<Arc<str>> for PodId {
    type Error = NotAPodId;

    fn try_from(uid: Arc<str>) -> Result<Self, NotAPodId> {
        let good = (1..=MAX_POD_ID).contains(&uid.len())
            && uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if good { Ok(Self(uid)) } else { Err(NotAPodId) }
    }
}

impl From<PodId> for Arc<str> {
    fn from(pod: PodId) -> Self {
        pod.0
    }
}

impl fmt::Display for PodId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl SessionKey ===

impl SessionKey {
    /// The session of these bits.
    pub fn new(bits: [u8; 16]) -> Self {
        Self(bits)
    }

    /// A session of a principal, of random bits.
    pub fn of(principal: &PrincipalDigest, mut bits: [u8; 16]) -> Self {
        bits[..2].copy_from_slice(&principal.0[..2]);
        Self(bits)
    }

    /// What all sessions of one principal have in common, and those of few others: a number of 12 bits.
    pub(crate) fn owner(&self) -> u16 {
        u16::from_be_bytes([self.0[0], self.0[1]]) >> 4
    }

    /// The bits.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The key as text: 32 hexadecimal digits.
    pub fn to_hex(self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
        self.0.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
    }
}

impl TryFrom<&str> for SessionKey {
    type Error = NotASessionKey;

    fn try_from(text: &str) -> Result<Self, NotASessionKey> {
        let digits = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let bits = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten().ok_or(NotASessionKey)?;
        Ok(Self(bits.to_be_bytes()))
    }
}

impl From<SessionKey> for String {
    fn from(key: SessionKey) -> Self {
        key.to_hex()
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not in a log, not even by accident.
        f.write_str("SessionKey(..)")
    }
}

// === impl Moment ===

impl Moment {
    /// The moment that much later.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; nothing if it is yet to come.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_hexadecimal_text_and_never_shown() {
        let key = SessionKey::new([0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff]);
        let text = serde_json::to_string(&key).unwrap();
        assert_eq!(text, "\"a00102030405060708090a0b0c0d0eff\"");
        assert_eq!(serde_json::from_str::<SessionKey>(&text).unwrap(), key);
        assert_eq!(format!("{key:?}"), "SessionKey(..)");
        for bad in ["", "a0", "+00102030405060708090a0b0c0d0eff", "A00102030405060708090a0b0c0d0eff"] {
            assert_eq!(SessionKey::try_from(bad), Err(NotASessionKey), "{bad}");
        }
    }

    #[test]
    fn uids_are_bounded() {
        assert!(PodId::new("7cf31c2e-2b0a-4c43-9d0d-0f1f3a6f2f1a").is_ok());
        for bad in ["", "a b", "a/b", "ä", &"a".repeat(65)] {
            assert_eq!(PodId::new(bad), Err(NotAPodId), "{bad}");
        }
    }
}
