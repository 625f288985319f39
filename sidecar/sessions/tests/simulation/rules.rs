//! The rules that no history breaks.

use longshore_sessions::Peer;
use longshore_sessions::bounds::DECIDE;
use longshore_sessions::membership::State;

use super::pods::Pod;
use super::world::{Truth, World};

/// After how long everybody knows that a pod has room, and who was passed by before that has been answered.
const KNOWN: u64 = 6_000;

impl World {
    /// Never do two replicas hold one session.
    pub(super) fn check_holders(&self, session: usize) {
        let key = self.sessions[session].capsule.key;
        let holds = |pod: &&Pod| {
            // One that leaves serves nobody any more.
            pod.process.as_ref().is_some_and(|process| {
                process.replica.state() != State::Leaving && process.replica.held(&key).is_some()
            })
        };
        let holders: Vec<&str> = self.pods.iter().filter(holds).map(|pod| pod.peer.pod.as_str()).collect();
        assert!(holders.len() <= 1, "session {session} is held by {holders:?} at {}", self.now);
    }

    /// An ended session does not serve, as long as a replica lives that knows of its end. (One that just starts may
    /// not have been asked.)
    pub(super) fn check_lives(&self, session: usize) {
        let Truth { capsule, ended: Some(ended), .. } = &self.sessions[session] else { return };
        let knows = |pod: &&Pod| {
            pod.process.as_ref().is_some_and(|process| {
                let since = process.started;
                let knows = process.replica.tombstones().get(&capsule.key).is_some();
                knows && (since < *ended || self.now - since > DECIDE.as_millis() as u64 + 1_000)
            })
        };
        let know: Vec<&str> = self.pods.iter().filter(knows).map(|pod| pod.peer.pod.as_str()).collect();
        assert!(
            know.is_empty(),
            "session {session} is served at {} after its end, of which {know:?} know",
            self.now
        );
    }

    /// Nobody waits for room where somebody else has had some for a while, and a server that stays.
    pub(super) fn check_room(&self, pod: usize, session: usize) {
        if !self.orderly || self.upgrades {
            return;
        }
        let has_room = |(number, other): &(usize, &Pod)| {
            let stays = other.process.as_ref().is_some_and(|process| !process.replica.is_shaken());
            let has_room = self.serves(*number) && stays && !other.crowded;
            *number != pod && has_room && self.now - other.room_since > KNOWN
        };
        let has_room = self.pods.iter().enumerate().find(has_room).map(|(number, _)| number);
        assert!(
            has_room.is_none(),
            "session {session} waits for room at pod {pod} at {}, {has_room:?} has some",
            self.now
        );
    }

    /// What a pod gives away in a rollout goes to one that the last has made, if it knows any with room: others end soon.
    pub(super) fn check_successor(
        &mut self,
        pod: usize,
        session: usize,
        successor: &Peer,
        with_room: &[Peer],
    ) {
        if !self.orderly || self.upgrades {
            return;
        }
        let newest = self.template;
        let stays =
            |peer: &Peer| self.pods.iter().any(|other| other.peer == *peer && other.template == newest);
        let goes_on = stays(successor);
        assert!(
            goes_on || !with_room.iter().any(stays),
            "session {session} goes from pod {pod} to {} at {}, which ends soon too",
            successor.pod,
            self.now
        );
        let template = self.pods[pod].template;
        self.tally.renewed += u64::from(goes_on && template < newest);
        self.tally.overtaken += u64::from(goes_on && template + 1 < newest);
        self.tally.evicted += u64::from(goes_on && template == newest);
    }

    pub(super) fn check_not_found(&self, session: usize) {
        let truth = &self.sessions[session];
        assert!(truth.end_tried || truth.lost, "session {session} is answered 404 at {}", self.now);
    }
}
