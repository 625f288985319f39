//! What a client brings back as `requestState`: whether it may go on with the call that this names.

use std::time::SystemTime;

use longshore_sessions::capsule::PrincipalDigest;
use longshore_sessions::{Peer, RequestState};
use tokio::time::Duration;

/// What is wrong with the state that a client brought back. Nobody learns which of somebody else's calls there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadState {
    #[error("\"requestState\" is none that this server gave you: make the call again without it")]
    Foreign,
    #[error("\"requestState\" belongs to another request: repeat the one that it came for")]
    OtherRequest,
    #[error("\"requestState\" has expired: make the call again without it")]
    Expired,
    #[error(
        "the call that \"requestState\" belongs to was lost with the replica that held it: make it again without it"
    )]
    Lost,
    #[error(
        "the call that \"requestState\" belongs to does not wait any more, since it was answered or is over: make it \
         again without it"
    )]
    Over,
}

/// Who comes back with a state, with which request, and where.
pub(super) struct Bearer<'a> {
    pub(super) principal: PrincipalDigest,
    pub(super) request: [u8; 32],
    pub(super) at: &'a Peer,
}

impl Bearer<'_> {
    /// Whether the call may be gone on with.
    pub(super) fn may_use(&self, state: &RequestState, now: SystemTime) -> Result<(), BadState> {
        if state.principal != self.principal {
            return Err(BadState::Foreign);
        }
        if state.request != self.request {
            return Err(BadState::OtherRequest);
        }
        if state.expires <= since_1970(now).as_secs() {
            return Err(BadState::Expired);
        }
        if state.owner != *self.at {
            // It would be there if that one were, and had the call.
            return Err(BadState::Lost);
        }
        Ok(())
    }
}

/// Until when a state is worth something, in whole seconds since 1970: never earlier than its call is given up.
pub(super) fn expiry(now: SystemTime, patience: Duration) -> u64 {
    let until = since_1970(now).saturating_add(patience);
    until.as_secs().saturating_add(u64::from(until.subsec_nanos() > 0))
}

fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use longshore_sessions::PodId;
    use longshore_sessions::keys::{Keyring, Secret};
    use longshore_sessions::request_state::CallNumber;

    use super::*;

    fn peer(name: &str) -> Peer {
        Peer { pod: PodId::new(name).unwrap(), address: IpAddr::V4(Ipv4Addr::LOCALHOST) }
    }

    #[test]
    fn r044_a_state_is_good_for_one_request_of_one_principal_in_time() {
        const PATIENCE: Duration = Duration::from_millis(2_300);
        let began = SystemTime::UNIX_EPOCH + Duration::from_millis(1_000_900);
        let keyring = Keyring::new("uid", [Secret { id: 1, bytes: [1; 32] }], 1).unwrap();
        let (alice, bob) = (PrincipalDigest::of("alice"), PrincipalDigest::of("bob"));
        let (here, there) = (peer("here"), peer("there"));
        let state = RequestState {
            owner: here.clone(),
            call: CallNumber([7; 16]),
            principal: alice,
            request: [1; 32],
            expires: expiry(began, PATIENCE),
        };
        // As it comes back.
        let sealed = keyring.seal_request_state(&state, [0; 12]).unwrap();
        let state = keyring.open_request_state(&sealed).unwrap();
        for (principal, request, at, after, expected) in [
            (alice, 1, &here, Duration::ZERO, Ok(())),
            (alice, 1, &here, PATIENCE, Ok(())),
            (alice, 1, &here, PATIENCE + Duration::from_secs(1), Err(BadState::Expired)),
            (alice, 1, &here, Duration::from_secs(3_600), Err(BadState::Expired)),
            // Who it is and what for comes first: nobody else learns of it.
            (bob, 1, &here, Duration::from_secs(3_600), Err(BadState::Foreign)),
            (alice, 2, &here, Duration::from_secs(3_600), Err(BadState::OtherRequest)),
            (bob, 1, &here, Duration::ZERO, Err(BadState::Foreign)),
            (alice, 2, &here, Duration::ZERO, Err(BadState::OtherRequest)),
            (alice, 1, &there, Duration::ZERO, Err(BadState::Lost)),
        ] {
            let bearer = Bearer { principal, request: [request; 32], at };
            assert_eq!(bearer.may_use(&state, began + after), expected, "{request} {after:?}");
        }
        // A whole second is none more.
        assert_eq!(expiry(began, Duration::from_millis(100)), 1_001);
        assert_eq!(expiry(began, Duration::from_millis(101)), 1_002);
    }
}
