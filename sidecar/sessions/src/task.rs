//! The id by which a client knows a task: the server's own, sealed with whose it is. Whoever knows the id of a task can
//! read what came of it, so one that is guessed, or was heard from somebody else, is worth nothing.
//!
//! Any replica opens it, and learns which of them the server is beside that began the task.

use thiserror::Error;

use crate::capsule::codec::{put_peer, take, take_peer, take_text, text};
use crate::capsule::{NonceBytes, PrincipalDigest};
use crate::identity::Peer;
use crate::keys::Keyring;

/// The longest id of a server, and the longest name of a tool, that fit: those of others are far shorter, and all of it
/// goes into a header.
const MAX_ID: usize = 512;
const MAX_TOOL: usize = 256;
/// The longest text that is opened: more than any sealed id has.
const MAX_TEXT: usize = 1536;

/// What is known of a task, wherever its client asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskId {
    /// The replica whose server began it.
    pub owner: Peer,
    /// Whose it is.
    pub principal: PrincipalDigest,
    /// The tool that was called: who may not call it any more may not see what came of it either.
    pub tool: String,
    /// What the server calls it.
    pub id: String,
}

/// Why there is no id for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotNamed {
    /// The server's own, or the name of the tool, is too long.
    #[error("ids of tasks may have {MAX_ID} bytes, and names of tools that begin them {MAX_TOOL}")]
    TooLong,
    /// The library would not seal.
    #[error("cannot seal the id of a task")]
    NotSealed,
}

// === impl Keyring ===

impl Keyring {
    /// A task's id as its client knows it: letters, digits, `-` and `_`.
    pub fn seal_task(&self, task: &TaskId, nonce: NonceBytes) -> Result<String, NotNamed> {
        let TaskId { owner, principal, tool, id } = task;
        if id.len() > MAX_ID || tool.len() > MAX_TOOL {
            return Err(NotNamed::TooLong);
        }
        let mut plain = Vec::with_capacity(256);
        plain.extend_from_slice(&principal.0);
        put_peer(owner, &mut plain);
        text(tool, &mut plain);
        text(id, &mut plain);
        self.seal_bytes(|key| &key.tasks, plain, nonce).map_err(|_| NotNamed::NotSealed)
    }

    /// The task of such an id. `None`, and nothing more is said: it is the id of no task of this server.
    pub fn open_task(&self, text: &str) -> Option<TaskId> {
        read(&self.open_bytes(|key| &key.tasks, text, MAX_TEXT)?)
    }
}

fn read(mut rest: &[u8]) -> Option<TaskId> {
    let rest = &mut rest;
    let principal = PrincipalDigest(take(rest)?);
    let owner = take_peer(rest)?;
    let tool = take_text(rest)?.to_owned();
    let id = take_text(rest)?.to_owned();
    rest.is_empty().then_some(TaskId { owner, principal, tool, id })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;
    use crate::identity::PodId;
    use crate::keys::ring;

    fn tasks() -> impl Strategy<Value = TaskId> {
        let owner = ("[a-zA-Z0-9-]{1,64}", any::<IpAddr>())
            .prop_map(|(pod, address)| Peer { pod: PodId::new(&pod).unwrap(), address });
        (owner, any::<[u8; 32]>(), "[a-z]{0,256}", ".{0,128}").prop_map(|(owner, principal, tool, id)| {
            TaskId { owner, principal: PrincipalDigest(principal), tool, id }
        })
    }

    proptest! {
        #[test]
        fn r047_what_is_sealed_opens_the_same_and_nothing_else_opens(
            task in tasks(), nonce: NonceBytes, at: prop::sample::Index, noise: String
        ) {
            let here = ring("uid", &[1, 2], 2);
            let sealed = here.seal_task(&task, nonce).unwrap();
            prop_assert!(sealed.len() <= MAX_TEXT);
            prop_assert!(sealed.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
            // A replica that seals with another key by now opens it too.
            prop_assert_eq!(ring("uid", &[2, 3], 3).open_task(&sealed), Some(task));
            let mut changed = sealed.clone().into_bytes();
            let at = at.index(changed.len());
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            for text in [&changed, &sealed[1..].to_owned(), &format!("{sealed}A"), &noise] {
                prop_assert_eq!(here.open_task(text), None);
            }
            // Another server, and another use of the same key.
            prop_assert!(ring("other", &[1, 2], 2).open_task(&sealed).is_none());
            prop_assert!(here.open(&sealed).is_none() && here.open_request_state(&sealed).is_none());
        }
    }

    /// What is written here was sealed by a release: if it does not open, no client finds its task after an upgrade.
    #[test]
    fn ids_of_earlier_releases_open() {
        let task = TaskId {
            owner: Peer { pod: PodId::new("pod-1").unwrap(), address: IpAddr::from([10, 244, 1, 17]) },
            principal: PrincipalDigest::of("team-a"),
            tool: "search".to_owned(),
            id: "0b1f6b0e-5a0f-4d5e-8d3b-3f8a1a0f0f0f".to_owned(),
        };
        let id = "AQEDAwMDAwMDAwMDAwMKZGS5Ve_LvzxPyUs7uyPwvTFv5bZbKTfByyE7OQUIh48FeUxLb_ji9bouEXxV6RDyo0DMh8MXI9QhUHYcvfMm-iR1uiNLDByIVpVD_qpwodMQQ69uLUrpmNsPdy3Q_9jeZBEMbihz1sQA";
        let ring = ring("7a3b5c1e-0000-4000-8000-000000000001", &[1], 1);
        assert_eq!(
            ring.open_task(id).as_ref(),
            Some(&task),
            "now it is {:?}",
            ring.seal_task(&task, [3; 12])
        );
        assert_eq!(ring.seal_task(&task, [3; 12]).as_deref(), Ok(id));
    }

    #[test]
    fn what_does_not_fit_has_no_name() {
        let owner = Peer { pod: PodId::new("p").unwrap(), address: IpAddr::from([10, 0, 0, 1]) };
        let task = |id: usize, tool: usize| TaskId {
            owner: owner.clone(),
            principal: PrincipalDigest::of("ann"),
            tool: "t".repeat(tool),
            id: "i".repeat(id),
        };
        let ring = ring("uid", &[1], 1);
        assert!(
            ring.seal_task(&task(MAX_ID, MAX_TOOL), [0; 12])
                .is_ok_and(|text| ring.open_task(&text).is_some())
        );
        assert_eq!(ring.seal_task(&task(MAX_ID + 1, 1), [0; 12]), Err(NotNamed::TooLong));
        assert_eq!(ring.seal_task(&task(1, MAX_TOOL + 1), [0; 12]), Err(NotNamed::TooLong));
    }
}
