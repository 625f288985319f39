//! What others say of a session, being asked.

use std::net::IpAddr;

use super::Outcome;
use crate::identity::{Moment, Peer, SessionKey};
use crate::membership::State;
use crate::message::{Answer, Holding};
use crate::replica::Replica;

/// What somebody said of the session.
pub(super) struct Said {
    pub(super) address: IpAddr,
    pub(super) from: Peer,
    pub(super) state: State,
    pub(super) holding: Holding,
}

/// Notes what answers say of the peers themselves, and keeps their copies.
pub(super) fn note<T>(
    key: &SessionKey,
    outcomes: Vec<(IpAddr, Outcome)>,
    replica: &mut Replica<T>,
    now: Moment,
) -> Vec<Said> {
    let mut all = Vec::new();
    for (address, outcome) in outcomes {
        match outcome {
            Outcome::Said(message) => {
                replica.view.heard(&message.from, now);
                let Answer::Holding(holding, copy) = message.body else { continue };
                if let Some(copy) = copy {
                    replica.keep(*key, copy);
                }
                let from = Peer { pod: message.from.pod, address: message.from.address };
                all.push(Said { address, from, state: message.from.state, holding });
            }
            Outcome::Refused => replica.view.refused(address, now),
            Outcome::Silent => replica.view.silent(address, now),
            Outcome::Declined => {}
        }
    }
    all
}

pub(super) fn refusing(outcomes: &[(IpAddr, Outcome)]) -> Vec<IpAddr> {
    let refused = outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Refused));
    refused.map(|(address, _)| *address).collect()
}
