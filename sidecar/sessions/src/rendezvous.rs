//! Rendezvous hashing: of several pods, which one a session belongs to. Every replica that knows the same pods comes to
//! the same one, and a pod that comes or goes changes that for its own sessions only.

use aws_lc_rs::digest::{Context, SHA256};

use crate::identity::{Peer, SessionKey};

/// The pod that a session belongs to. `None` if there is no pod.
pub fn winner(key: &SessionKey, pods: impl IntoIterator<Item = Peer>) -> Option<Peer> {
    pods.into_iter().max_by_key(|peer| (weight(key, peer), peer.pod.clone()))
}

/// The same of pods of which some are shaken, as each is told with: those have it where there is no other.
pub(crate) fn preferred<I>(key: &SessionKey, pods: I) -> Option<Peer>
where
    I: IntoIterator<Item = (Peer, bool)>,
{
    let (shaken, good): (Vec<_>, Vec<_>) = pods.into_iter().partition(|(_, shaken)| *shaken);
    let winner_of = |pods: Vec<(Peer, bool)>| winner(key, pods.into_iter().map(|(peer, _)| peer));
    winner_of(good).or_else(|| winner_of(shaken))
}

fn weight(key: &SessionKey, peer: &Peer) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    context.update(key.as_bytes());
    context.update(peer.pod.as_str().as_bytes());
    let mut weight = [0; 32];
    weight.copy_from_slice(context.finish().as_ref());
    weight
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::identity::PodId;

    fn pod(number: u8) -> Peer {
        Peer {
            pod: PodId::new(&format!("pod-{number}")).unwrap(),
            address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, number)),
        }
    }

    fn key(number: u128) -> SessionKey {
        SessionKey::new(number.to_be_bytes())
    }

    #[test]
    fn the_order_of_pods_does_not_matter_and_one_that_goes_moves_only_its_own() {
        let mut counts = [0; 3];
        for number in 0..3_000 {
            let key = key(number);
            let won = winner(&key, [pod(0), pod(1), pod(2)]).unwrap();
            assert_eq!(won, winner(&key, [pod(2), pod(0), pod(1)]).unwrap());
            let without = winner(&key, [pod(0), pod(1)]).unwrap();
            assert!(won == pod(2) || won == without);
            counts[usize::from(won.pod.as_str().as_bytes()[4] - b'0')] += 1;
        }
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
        assert_eq!(winner(&key(1), []), None);
    }
}
