//! What happened in histories, so that it is seen whether they show anything.

use std::ops::AddAssign;

/// What happened in histories.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) served: u64,
    pub(super) forwarded: u64,
    pub(super) adopted: u64,
    pub(super) taken_up: u64,
    pub(super) handed_over: u64,
    pub(super) failed_to_take: u64,
    pub(super) broken_off: u64,
    pub(super) ended: u64,
    pub(super) not_found: u64,
    pub(super) unavailable: u64,
    pub(super) set: u64,
    pub(super) set_again: u64,
    /// Servers that did not stay.
    pub(super) shaken: u64,
    /// Sessions that one of theirs would have taken otherwise.
    pub(super) spared: u64,
    /// Pods that had no room for more.
    pub(super) crowded: u64,
    /// Requests that went on to somebody else therefore, and sessions.
    pub(super) passed_on: u64,
    pub(super) handed_on: u64,
    /// Those for which nobody had any.
    pub(super) had_no_room: u64,
    /// Sessions that a rollout has brought to a pod that it has made.
    pub(super) renewed: u64,
    /// Those of them that came from a pod that two rollouts were to end.
    pub(super) overtaken: u64,
    /// Sessions of a pod that a rollout has made that went to another of these.
    pub(super) evicted: u64,
    /// Sessions that a request has had taken where they waited for their turn.
    pub(super) before_turn: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        let Self {
            served,
            forwarded,
            adopted,
            taken_up,
            handed_over,
            failed_to_take,
            broken_off,
            ended,
            not_found,
            unavailable,
            set,
            set_again,
            shaken,
            spared,
            crowded,
            passed_on,
            handed_on,
            had_no_room,
            renewed,
            overtaken,
            evicted,
            before_turn,
        } = other;
        self.failed_to_take += failed_to_take;
        self.broken_off += broken_off;
        self.served += served;
        self.forwarded += forwarded;
        self.adopted += adopted;
        self.taken_up += taken_up;
        self.handed_over += handed_over;
        self.ended += ended;
        self.not_found += not_found;
        self.unavailable += unavailable;
        self.set += set;
        self.set_again += set_again;
        self.shaken += shaken;
        self.spared += spared;
        self.crowded += crowded;
        self.passed_on += passed_on;
        self.handed_on += handed_on;
        self.had_no_room += had_no_room;
        self.renewed += renewed;
        self.overtaken += overtaken;
        self.evicted += evicted;
        self.before_turn += before_turn;
    }
}
