//! What a session id holds. An id is a capsule, sealed: any replica opens it and knows whose session it is, where it
//! lives and how to begin it again, and nobody else learns or changes anything.
//!
//! The text is base64url of: the version of the format, the number of the key, the nonce (12 bytes), the sealed capsule
//! and its tag. Version, number and the server's UID are authenticated too.

pub(crate) mod codec;

use std::sync::Arc;

use aws_lc_rs::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce};
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use longshore_mcp::revision::Revision;
use serde_json::Value;
use thiserror::Error;

use crate::bounds::MAX_ID;
use crate::identity::{Peer, PodId, SessionKey};
use crate::keys::{Key, Keyring};

/// The version of the format, of session ids and of all else that is sealed. What was sealed before an upgrade, or by a
/// replica that has yet to be replaced, has to open after it: so a release that reads another format comes before the one
/// that writes it, and what one has ever written is read for as long as sessions may live.
const VERSION: u8 = 1;
/// Version and key number, in front of the nonce.
const PREFIX: usize = 2;
/// How many bytes of overhead sealing adds.
const OVERHEAD: usize = PREFIX + NONCE_LEN + TAG;
const TAG: usize = 16;
/// The largest capsule that fits into an id.
const MAX_PLAIN: usize = MAX_ID * 3 / 4 - OVERHEAD;

/// The random bytes that each sealing needs. The cipher survives it if two are alike.
pub type NonceBytes = [u8; NONCE_LEN];

/// What is known of a session wherever its id comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capsule {
    /// The replica that opened it.
    pub owner: Peer,
    /// Its identity.
    pub key: SessionKey,
    /// Whose it is.
    pub principal: PrincipalDigest,
    /// The revision that the client speaks.
    pub revision: Revision,
    /// The revision that the server spoke when the session was opened.
    pub server_revision: Revision,
    /// What the server knows of it.
    pub server: ServerSession,
    /// What the client can do, as canonical JSON. `None`: it did not fit.
    pub capabilities: Option<Arc<str>>,
    /// When it was opened, in seconds since 1970.
    pub issued: u64,
    /// When it ends whatever is configured later, in seconds since 1970. That it was ended is remembered as long.
    pub expires: u64,
}

/// A principal, told from others by SHA-256 of its name: names have no useful bound, and ids have.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PrincipalDigest(pub [u8; 32]);

/// What a server knows of a session, which is what is lost with the replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerSession {
    /// Nothing: it gave no session id of its own. Any replica can go on.
    None,
    /// It gave this id.
    Id(Arc<str>),
    /// It gave an id that does not fit.
    Unfit,
    /// It has no sessions: the sidecar keeps what there is of one, which is all in the capsule and in the copy of
    /// another replica.
    KeptHere,
}

/// The library would not seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("cannot seal a session id")]
pub struct NotSealed;

// === impl Keyring ===

impl Keyring {
    /// The id of a session, which is visible ASCII of less than 1 KiB.
    ///
    /// What does not fit is left out: the client's capabilities first, then the server's own id. What is left is also
    /// what [`Keyring::open`] gives.
    pub fn seal(&self, capsule: &Capsule, nonce: NonceBytes) -> Result<String, NotSealed> {
        let mut plain = Vec::with_capacity(MAX_PLAIN + OVERHEAD);
        codec::write(capsule, MAX_PLAIN, &mut plain);
        self.seal_bytes(|key| &key.session_ids, plain, nonce)
    }

    /// What is in an id. `None`, and nothing more is said: it is no id of this server's sessions.
    pub fn open(&self, id: &str) -> Option<Capsule> {
        codec::read(&self.open_bytes(|key| &key.session_ids, id, MAX_ID)?)
    }

    /// Seals bytes with a key for one use, as text.
    pub(crate) fn seal_bytes(
        &self,
        of_use: impl Fn(&Key) -> &LessSafeKey,
        mut sealed: Vec<u8>,
        nonce: NonceBytes,
    ) -> Result<String, NotSealed> {
        let key = self.sealing();
        let prefix = [VERSION, key.id];
        let aad = self.aad(prefix);
        let nonce_value = Nonce::assume_unique_for_key(nonce);
        of_use(key)
            .seal_in_place_append_tag(nonce_value, Aad::from(&aad), &mut sealed)
            .map_err(|_| NotSealed)?;
        let mut whole = Vec::with_capacity(sealed.len() + PREFIX + NONCE_LEN);
        whole.extend_from_slice(&prefix);
        whole.extend_from_slice(&nonce);
        whole.extend_from_slice(&sealed);
        Ok(URL_SAFE_NO_PAD.encode(whole))
    }

    /// The bytes in such a text of at most so many, if this server's key for this use sealed them.
    pub(crate) fn open_bytes(
        &self,
        of_use: impl Fn(&Key) -> &LessSafeKey,
        text: &str,
        most: usize,
    ) -> Option<Vec<u8>> {
        if text.len() > most {
            return None;
        }
        let mut whole = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (prefix, rest) = whole.split_first_chunk_mut::<PREFIX>()?;
        let (nonce, sealed) = rest.split_first_chunk_mut::<NONCE_LEN>()?;
        if prefix[0] != VERSION {
            return None;
        }
        let aad = self.aad(*prefix);
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = of_use(self.key(prefix[1])?).open_in_place(nonce, Aad::from(&aad), sealed).ok()?;
        Some(plain.to_vec())
    }

    fn aad(&self, prefix: [u8; PREFIX]) -> Vec<u8> {
        [prefix.as_slice(), self.server.as_bytes()].concat()
    }
}

// === impl Capsule ===

impl Capsule {
    /// What is sealed. It is never sent as it is.
    pub fn plain(&self) -> Vec<u8> {
        let mut plain = Vec::new();
        codec::write(self, MAX_PLAIN, &mut plain);
        plain
    }

    /// What [`Capsule::plain`] wrote.
    pub fn of_plain(plain: &[u8]) -> Option<Self> {
        codec::read(plain)
    }

    /// Whether it is that principal's.
    pub fn is_of(&self, principal: &str) -> bool {
        self.principal == PrincipalDigest::of(principal)
    }

    /// The moment from which on it is too old, in seconds since 1970, at the age that sessions may have now. No session
    /// becomes older than it was to when it was opened: one that was ended could live again.
    pub fn ends(&self, max_age_seconds: u64) -> u64 {
        self.issued.saturating_add(max_age_seconds).min(self.expires)
    }

    /// Whether its id says what the client can do. What does not fit is known to the replica that opened it alone.
    pub fn fits(&self) -> bool {
        codec::read(&self.plain()).is_some_and(|sealed| sealed.capabilities == self.capabilities)
    }

    /// Whether another replica can begin it again with its server: it knows what the client can do.
    pub fn can_begin_again(&self) -> bool {
        self.capabilities.is_some()
    }
}

impl PrincipalDigest {
    /// The digest of a principal's name.
    pub fn of(principal: &str) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, principal.as_bytes()).as_ref());
        Self(bytes)
    }
}

impl std::fmt::Debug for PrincipalDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PrincipalDigest(..)")
    }
}

impl ServerSession {
    /// Whether the server has state that is lost if it is begun again.
    pub fn has_state(&self) -> bool {
        !matches!(self, Self::None | Self::KeptHere)
    }
}

/// The longest JSON that is brought into one spelling, in bytes. All of it is read for that, and what the shortest values
/// become then takes a hundred times their bytes.
const MAX_SPELLED: usize = 64 * 1024;

/// JSON in one spelling: without white space, members in the order of their names. `None` if it is no JSON object, or a
/// long one: who needs to know that again has to go by its bytes.
pub fn canonical(json: &str) -> Option<Arc<str>> {
    if json.len() > MAX_SPELLED {
        return None;
    }
    let mut value: Value = serde_json::from_str(json).ok()?;
    value.as_object()?;
    value.sort_all_objects();
    Some(value.to_string().into())
}

/// A pod's UID that came in a capsule.
pub(crate) fn pod(text: &str) -> Option<PodId> {
    PodId::new(text).ok()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use longshore_mcp::headers::is_session_id;
    use proptest::prelude::*;

    use super::*;
    use crate::keys::{Secret, ring};

    fn texts(most: usize) -> impl Strategy<Value = Arc<str>> {
        proptest::collection::vec(any::<char>(), 0..most)
            .prop_map(|text| text.into_iter().collect::<String>().into())
    }

    fn capsules() -> impl Strategy<Value = Capsule> {
        let revision = || (0..Revision::ALL.len()).prop_map(|at| Revision::ALL[at]);
        let server = prop_oneof![
            Just(ServerSession::None),
            Just(ServerSession::Unfit),
            Just(ServerSession::KeptHere),
            texts(300).prop_map(ServerSession::Id),
            texts(2_000).prop_map(ServerSession::Id),
        ];
        let capabilities =
            prop_oneof![Just(None), texts(300).prop_map(Some), Just(Some(Arc::from("x".repeat(70_000)))),];
        let owner = ("[a-zA-Z0-9-]{1,64}", any::<IpAddr>())
            .prop_map(|(pod, address)| Peer { pod: PodId::new(&pod).unwrap(), address });
        let rest = (any::<[u8; 16]>(), any::<[u8; 32]>(), any::<u64>());
        (owner, rest, revision(), revision(), server, capabilities).prop_map(
            |(owner, (key, principal, issued), revision, server_revision, server, capabilities)| Capsule {
                owner,
                key: SessionKey::new(key),
                principal: PrincipalDigest(principal),
                revision,
                server_revision,
                server,
                capabilities,
                issued,
                expires: issued.saturating_add(86_400),
            },
        )
    }

    #[test]
    fn no_session_becomes_older_than_it_was_to() {
        let capsule = Capsule { issued: 1_000, expires: 1_100, ..sample() };
        for (max_age, ends) in [(50, 1_050), (100, 1_100), (5_000, 1_100)] {
            assert_eq!(capsule.ends(max_age), ends);
        }
    }

    proptest! {
        #[test]
        fn what_is_sealed_opens_the_same_but_for_what_does_not_fit(capsule in capsules(), nonce: NonceBytes) {
            let ring = ring("uid", &[1, 2], 2);
            let id = ring.seal(&capsule, nonce).unwrap();
            prop_assert!(id.len() <= MAX_ID && is_session_id(&id), "{} bytes", id.len());
            let opened = ring.open(&id).unwrap();
            let mut expected = capsule.clone();
            if opened.server != expected.server {
                prop_assert_eq!(&opened.server, &ServerSession::Unfit);
                let ServerSession::Id(long) = &capsule.server else { panic!("only an id can be unfit") };
                prop_assert!(long.len() > 550);
                expected.server = ServerSession::Unfit;
            }
            prop_assert_eq!(capsule.fits(), opened.capabilities == capsule.capabilities);
            if opened.capabilities.is_none() {
                expected.capabilities = None;
            }
            prop_assert_eq!(&opened, &expected);
            prop_assert_eq!(ring.open(&ring.seal(&opened, nonce).unwrap()).unwrap(), opened);
        }

        #[test]
        fn ids_of_capabilities_that_clients_have_are_whole(size in 0_usize..400) {
            let capsule = Capsule { capabilities: Some("x".repeat(size).into()), ..sample() };
            let ring = ring("uid", &[1], 1);
            prop_assert_eq!(ring.open(&ring.seal(&capsule, [0; 12]).unwrap()).unwrap(), capsule);
        }

        #[test]
        fn what_is_no_id_does_not_open(text in "[A-Za-z0-9_-]{0,1100}", any in ".{0,64}") {
            let ring = ring("uid", &[1], 1);
            prop_assert!(ring.open(&text).is_none());
            prop_assert!(ring.open(&any).is_none());
        }

        #[test]
        fn bytes_that_are_no_capsule_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            // What opens was sealed here, so this only has to end well.
            let _ = codec::read(&bytes);
        }
    }

    fn sample() -> Capsule {
        Capsule {
            owner: Peer {
                pod: PodId::new("7cf31c2e-2b0a-4c43-9d0d-0f1f3a6f2f1a").unwrap(),
                address: IpAddr::from([10, 244, 1, 17]),
            },
            key: SessionKey::new([7; 16]),
            principal: PrincipalDigest::of("team-a"),
            revision: Revision::V2025_11_25,
            server_revision: Revision::V2025_06_18,
            server: ServerSession::Id("0b1f6b0e-5a0f-4d5e-8d3b-3f8a1a0f0f0f".into()),
            capabilities: canonical(r#"{ "sampling": {}, "roots": {"listChanged": true} }"#),
            issued: 1_800_000_000,
            expires: 1_800_086_400,
        }
    }

    #[test]
    fn every_altered_character_is_refused() {
        let ring = ring("uid", &[1, 2], 1);
        let id = ring.seal(&sample(), [9; 12]).unwrap();
        assert!(ring.open(&id).is_some());
        for at in 0..id.len() {
            for other in [b'A', b'B', b'z', b'0', b'-', b'='] {
                let mut altered = id.clone().into_bytes();
                if altered[at] == other {
                    continue;
                }
                altered[at] = other;
                assert_eq!(ring.open(std::str::from_utf8(&altered).unwrap()), None, "at {at}");
            }
            assert_eq!(ring.open(&id[..at]), None, "cut at {at}");
        }
        assert_eq!(ring.open(&format!("{id}A")), None);
    }

    #[test]
    fn an_id_opens_with_every_accepted_key_of_its_server_alone() {
        let id = ring("uid", &[1], 1).seal(&sample(), [0; 12]).unwrap();
        for (ring, opens) in [
            (ring("uid", &[1], 1), true),
            (ring("uid", &[1, 2], 1), true),
            (ring("uid", &[2, 1], 2), true),
            (ring("uid", &[2], 2), false),
            (ring("other", &[1], 1), false),
        ] {
            assert_eq!(ring.open(&id).is_some(), opens, "{ring:?}");
        }
        // Another secret under the number of a former one.
        let reused = Keyring::new("uid", [Secret { id: 1, bytes: [9; 32] }], 1).unwrap();
        assert_eq!(reused.open(&id), None);
    }

    #[test]
    fn r048_a_usual_id_is_short_and_nothing_in_it_can_be_read() {
        let ring = ring("uid", &[1], 1);
        let id = ring.seal(&sample(), [0; 12]).unwrap();
        assert!(id.len() < 380, "{} bytes", id.len());
        assert_ne!(id, ring.seal(&sample(), [1; 12]).unwrap());
        let bytes = URL_SAFE_NO_PAD.decode(&id).unwrap();
        let Capsule { owner, key, principal, server: ServerSession::Id(server), capabilities, .. } = sample()
        else {
            panic!("the server gave an id")
        };
        let IpAddr::V4(address) = owner.address else { panic!("it is a short one") };
        for (what, secret) in [
            ("the address of the pod", address.octets().as_slice()),
            ("its name", owner.pod.as_str().as_bytes()),
            ("the session's key", key.as_bytes().as_slice()),
            ("whose it is", principal.0.as_slice()),
            ("the id at the server", server.as_bytes()),
            ("what the client can do", capabilities.unwrap().as_bytes()),
        ] {
            let stands_in = |bytes: &[u8]| bytes.windows(secret.len()).any(|window| window == secret);
            assert!(stands_in(&sample().plain()), "{what} is sealed");
            assert!(!stands_in(&bytes) && !stands_in(id.as_bytes()), "{what} can be read");
        }
        assert!(sample().is_of("team-a") && !sample().is_of("team-b"));
        assert!(!format!("{:?}", sample()).contains("team-a"));
    }

    /// What is written here was sealed by a release: if it does not open, all sessions end with an upgrade.
    #[test]
    fn ids_of_earlier_releases_open() {
        let alone = Capsule {
            owner: Peer { pod: PodId::new("pod-1").unwrap(), address: "fd00::1:17".parse().unwrap() },
            server_revision: Revision::V2026_07_28,
            server: ServerSession::KeptHere,
            capabilities: None,
            ..sample()
        };
        let unfit = Capsule { server: ServerSession::Unfit, ..alone.clone() };
        let none = Capsule { server: ServerSession::None, revision: Revision::V2025_03_26, ..alone.clone() };
        let ring = ring("7a3b5c1e-0000-4000-8000-000000000001", &[1, 2], 2);
        let table = [
            (
                sample(),
                "AQIDAwMDAwMDAwMDAwMiz0kKIDl8vtIecHz-ZhlzupPowMR7sEuuyM5IpYZT15Wf4aoKn3HYarTafpAxx4aH0feeHd8dRvMauzdsCtY1a6ECC7DgUodAN3nG7u7TPZBjQAfwqKmIAEnsly8UUMps-OUejvggHqD4EiVPkA3em19_Z9jfaChI44v22gVjwOczdVSBFm0V0nRlzBat5qieusPs3Si28MOuUkAMxqwGj_ALHga4szUx0F5jomuSoIEV-nwUWXHgQnc1MinOkULHrguTXMEp-d1_EgmHLxZ_TQ",
            ),
            (
                alone,
                "AQIDAwMDAwMDAwMDAwP4cPCduYyRWhunj-RCEzkKSKbIl91hFMSc5uu4aFREJFoB1f450l9GAAcMFBygYPyr6RUyrnA1zkZ3StgG4GVSyTud8ru8R-wuzHNniIWmHDVQArUa1k79_3emjQtjfqEKQ-b2L1jsfVl6",
            ),
            (
                unfit,
                "AQIDAwMDAwMDAwMDAwPAKX-Be3G5EuL-poH1loZHmbGtMZ8Y_ly9voalQDolu6MjcccResSnWjVe9c8_9iRJ8Rp2_55wNYPMd8jqXzlaKIT2H8pySFHL5vPpvYwdK0NIczKkBzq4EMdmsDFUpc5Kryhwct9D8-B7",
            ),
            (
                none,
                "AQIDAwMDAwMDAwMDAwNH_lPDehqx4qYdADiIymls_ln5DaRwja7OmtkvIsZex6eiSWH-oS9wJmhtC0il8zM_JimrxV1T1XnWo20pG9LcsAcpbjkLqzXJZLTS12_S6sUCUWBRpd_ChCe9tCT2-e7l3ob1W1onJT1A",
            ),
        ];
        for (capsule, id) in table {
            assert_eq!(
                ring.open(id).as_ref(),
                Some(&capsule),
                "now it is {:?}",
                ring.seal(&capsule, [3; 12])
            );
            assert_eq!(ring.seal(&capsule, [3; 12]).as_deref(), Ok(id));
        }
    }

    #[test]
    fn capabilities_have_one_spelling() {
        let text = canonical(r#"{ "b": [1, {"z": 1, "a": 2}], "a": {} }"#).unwrap();
        assert_eq!(&*text, r#"{"a":{},"b":[1,{"a":2,"z":1}]}"#);
        assert_eq!(canonical("[]"), None);
        assert_eq!(canonical("{"), None);
        let long = |size: usize| format!(r#"{{"a":"{}"}}"#, "x".repeat(size - 8));
        assert_eq!(canonical(&long(MAX_SPELLED)).as_deref(), Some(&*long(MAX_SPELLED)));
        assert_eq!(canonical(&long(MAX_SPELLED + 1)), None);
    }
}
