//! `requestState`, sealed: what a client of 2026-07-28 brings back to a call that waits for its answers. It says which
//! call it is, where that waits, whose it is, and which request alone may go on with it. There is no more in it: what
//! the call has come to so far is with the replica that holds it.
//!
//! The text is made like a session id, with a key of its own, so that neither of the two is ever taken for the other.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr>

use crate::capsule::codec::{put_peer, take, take_peer};
use crate::capsule::{NonceBytes, NotSealed, PrincipalDigest};
use crate::identity::Peer;
use crate::keys::Keyring;

/// The longest text that is opened: more than any state has.
const MAX_TEXT: usize = 512;

/// What is known of a call that waits, wherever its client comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestState {
    /// The replica that holds it.
    pub owner: Peer,
    /// Its number there: 128 random bits, another one each time that the client is asked.
    pub call: CallNumber,
    /// Whose it is.
    pub principal: PrincipalDigest,
    /// The request that it goes on with: a digest of everything in it that has to stay the same.
    pub request: [u8; 32],
    /// Until when, in seconds since 1970.
    pub expires: u64,
}

/// The number of a call that waits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallNumber(pub [u8; 16]);

// === impl Keyring ===

impl Keyring {
    /// A state as text.
    pub fn seal_request_state(&self, state: &RequestState, nonce: NonceBytes) -> Result<String, NotSealed> {
        let RequestState { owner, call, principal, request, expires } = state;
        let mut plain = Vec::with_capacity(192);
        plain.extend_from_slice(&expires.to_be_bytes());
        plain.extend_from_slice(&call.0);
        plain.extend_from_slice(&principal.0);
        plain.extend_from_slice(request);
        put_peer(owner, &mut plain);
        self.seal_bytes(|key| &key.request_states, plain, nonce)
    }

    /// The state in a text. `None`, and nothing more is said: it is no state of this server's.
    pub fn open_request_state(&self, text: &str) -> Option<RequestState> {
        read(&self.open_bytes(|key| &key.request_states, text, MAX_TEXT)?)
    }
}

fn read(mut rest: &[u8]) -> Option<RequestState> {
    let rest = &mut rest;
    let expires = u64::from_be_bytes(take(rest)?);
    let call = CallNumber(take(rest)?);
    let principal = PrincipalDigest(take(rest)?);
    let request = take(rest)?;
    let owner = take_peer(rest)?;
    rest.is_empty().then_some(RequestState { owner, call, principal, request, expires })
}

impl std::fmt::Debug for CallNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not in a log, not even by accident.
        f.write_str("CallNumber(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;
    use crate::identity::PodId;
    use crate::keys::{Secret, ring};

    fn states() -> impl Strategy<Value = RequestState> {
        let owner = ("[a-zA-Z0-9-]{1,64}", any::<IpAddr>())
            .prop_map(|(pod, address)| Peer { pod: PodId::new(&pod).unwrap(), address });
        (owner, any::<[u8; 16]>(), any::<[u8; 32]>(), any::<[u8; 32]>(), any::<u64>()).prop_map(
            |(owner, call, principal, request, expires)| RequestState {
                owner,
                call: CallNumber(call),
                principal: PrincipalDigest(principal),
                request,
                expires,
            },
        )
    }

    /// What is written here was sealed by a release: if it does not open, no client goes on with a call
    /// by way of a replica of the next one.
    #[test]
    fn states_of_earlier_releases_open() {
        let state = RequestState {
            owner: Peer { pod: PodId::new("pod-1").unwrap(), address: IpAddr::from([10, 244, 1, 17]) },
            call: CallNumber([7; 16]),
            principal: PrincipalDigest::of("team-a"),
            request: [5; 32],
            expires: 1_800_000_000,
        };
        let sealed = "AQEDAwMDAwMDAwMDAwPbhVy6OmKsahS-igYNqlC6zp_g930RU-ZbUlHP31rXFBOQkZWRkP5fGc_0DpmvkffYka5KkQyBK1sea7Uda0hhf2uXdvNPd4YAMPR0A04UUKSQ2z8qI_Ts9RdlP7beF7sTzgsECABkIs382SQOAjOBdk3vRg";
        let ring = ring("7a3b5c1e-0000-4000-8000-000000000001", &[1], 1);
        assert_eq!(
            ring.open_request_state(sealed).as_ref(),
            Some(&state),
            "now it is {:?}",
            ring.seal_request_state(&state, [3; 12])
        );
        assert_eq!(ring.seal_request_state(&state, [3; 12]).as_deref(), Ok(sealed));
    }

    proptest! {
        #[test]
        fn what_is_sealed_opens_the_same(state in states(), nonce: NonceBytes) {
            let sealed = ring("uid", &[1, 2], 2).seal_request_state(&state, nonce).unwrap();
            prop_assert!(sealed.len() <= MAX_TEXT);
            // A replica that seals with another key by now opens it too.
            prop_assert_eq!(ring("uid", &[2, 3], 3).open_request_state(&sealed), Some(state));
        }

        #[test]
        fn nothing_else_opens(state in states(), nonce: NonceBytes, at: prop::sample::Index, noise: String) {
            let here = ring("uid", &[1], 1);
            let sealed = here.seal_request_state(&state, nonce).unwrap();
            let mut changed = sealed.clone().into_bytes();
            let at = at.index(changed.len());
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            for text in [&changed, &sealed[1..].to_owned(), &format!("{sealed}A"), &noise] {
                prop_assert_eq!(here.open_request_state(text), None);
            }
            // Another server, another key under the same number, and another use of the same key.
            prop_assert!(ring("other", &[1], 1).open_request_state(&sealed).is_none());
            let other = Keyring::new("uid", [Secret { id: 1, bytes: [9; 32] }], 1).unwrap();
            prop_assert!(other.open_request_state(&sealed).is_none());
            prop_assert!(here.open(&sealed).is_none());
        }
    }
}
