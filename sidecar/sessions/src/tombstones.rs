//! The sessions that are ended. Each is remembered until its id would be too old anyway; then the age alone refuses it.
//!
//! Where there are too many, one is lost of those who have the most: whoever ends many pushes out their own.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use serde::{Deserialize, Serialize};

use crate::bounds::{MAX_TOMBSTONES, MAX_TOMBSTONES_A_PAGE, SOON};
use crate::identity::SessionKey;

/// One session that is ended. The order of one principal's is that in which they are forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tombstone {
    /// Until when it matters, in seconds since 1970: the session's age limit.
    pub expires: u64,
    /// Which one.
    pub key: SessionKey,
}

/// Tells sets of ended sessions apart. It is no proof against malice: keys are random, and peers are trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// How many there are.
    pub count: u32,
    /// All keys, added up without regard to order.
    pub sum: u64,
}

/// A bounded set of ended sessions. Two replicas that heard of the same ones keep the same ones.
#[derive(Clone, Debug)]
pub struct Tombstones {
    limit: usize,
    by_key: HashMap<SessionKey, u64>,
    /// By what all sessions of one principal have in common.
    by_owner: BTreeMap<u16, BTreeSet<Tombstone>>,
    /// Those that expire later than this are in the digest: of the others each replica may have forgotten some.
    settled: u64,
    digest: Digest,
    lost: u64,
}

impl Default for Tombstones {
    fn default() -> Self {
        Self::new(MAX_TOMBSTONES)
    }
}

impl Tombstones {
    /// A set of at most that many.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            by_key: HashMap::new(),
            by_owner: BTreeMap::new(),
            settled: 0,
            digest: Digest::default(),
            lost: 0,
        }
    }

    /// Remembers one. Says whether it is new. Where there are too many, the one is lost that would be forgotten first of
    /// those of whoever has the most; of several who have as many, that of them all.
    pub fn add(&mut self, tombstone: Tombstone) -> bool {
        match self.by_key.get(&tombstone.key) {
            Some(known) if *known >= tombstone.expires => return false,
            Some(known) => {
                self.remove(Tombstone { expires: *known, key: tombstone.key });
                self.insert(tombstone);
                return false;
            }
            None => {}
        }
        self.insert(tombstone);
        if self.by_key.len() <= self.limit {
            return true;
        }
        self.lost += 1;
        let most = self.by_owner.values().max_by_key(|stones| (stones.len(), Reverse(stones.first())));
        let lost = most.and_then(|stones| stones.first().copied());
        lost.inspect(|lost| self.remove(*lost)) != Some(tombstone)
    }

    /// The tombstone of a session, if it is ended.
    pub fn get(&self, key: &SessionKey) -> Option<Tombstone> {
        self.by_key.get(key).map(|expires| Tombstone { expires: *expires, key: *key })
    }

    /// Forgets those that do not matter any more, `unix` being the time in seconds since 1970.
    pub fn forget(&mut self, unix: u64) {
        let owners: Vec<u16> = self.by_owner.keys().copied().collect();
        for owner in owners {
            while let Some(first) = self.first_of(owner).filter(|first| first.expires <= unix) {
                self.remove(first);
            }
        }
    }

    /// Those that come after one, in an order that is this replica's own, as many as go into one message.
    pub fn page(&self, after: Option<Tombstone>) -> Vec<Tombstone> {
        let from = after.map_or(0, |after| after.key.owner());
        let pages = self.by_owner.range(from..).flat_map(|(owner, stones)| {
            let after = after.filter(|after| after.key.owner() == *owner);
            stones.range((after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded))
        });
        pages.take(MAX_TOMBSTONES_A_PAGE).copied().collect()
    }

    /// All of them, each principal's in their order.
    pub fn iter(&self) -> impl Iterator<Item = Tombstone> {
        self.by_owner.values().flatten().copied()
    }

    /// What tells this set from another, as far as both replicas should know the same.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Leaves out of the digest what is forgotten soon, `unix` being the time in seconds since 1970. Replicas whose clocks
    /// agree but for seconds leave out the same, but for as many seconds in each [`SOON`].
    pub fn settle(&mut self, unix: u64) {
        let settled = (unix / SOON + 1).saturating_mul(SOON);
        if settled <= self.settled {
            return;
        }
        let range = Self::after(self.settled)..Self::after(settled);
        for tombstone in self.by_owner.values().flat_map(|stones| stones.range(range.clone())) {
            self.digest.without(&tombstone.key);
        }
        self.settled = settled;
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// How many were lost because there were too many. A session of which that is true could live again.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn insert(&mut self, tombstone: Tombstone) {
        self.by_key.insert(tombstone.key, tombstone.expires);
        self.by_owner.entry(tombstone.key.owner()).or_default().insert(tombstone);
        if tombstone.expires > self.settled {
            self.digest.with(&tombstone.key);
        }
    }

    fn remove(&mut self, tombstone: Tombstone) {
        if let Entry::Occupied(mut stones) = self.by_owner.entry(tombstone.key.owner()) {
            stones.get_mut().remove(&tombstone);
            if stones.get().is_empty() {
                stones.remove();
            }
        }
        if self.by_key.remove(&tombstone.key).is_some() && tombstone.expires > self.settled {
            self.digest.without(&tombstone.key);
        }
    }

    fn first_of(&self, owner: u16) -> Option<Tombstone> {
        self.by_owner.get(&owner)?.first().copied()
    }

    /// The first that could expire later than that.
    fn after(unix: u64) -> Tombstone {
        Tombstone { expires: unix.saturating_add(1), key: SessionKey::new([0; 16]) }
    }
}

impl Digest {
    fn with(&mut self, key: &SessionKey) {
        self.count = self.count.saturating_add(1);
        self.sum ^= fold(key);
    }

    fn without(&mut self, key: &SessionKey) {
        self.count = self.count.saturating_sub(1);
        self.sum ^= fold(key);
    }
}

fn fold(key: &SessionKey) -> u64 {
    let bits = u128::from_be_bytes(*key.as_bytes());
    (bits >> 64) as u64 ^ bits as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stone(key: u8, expires: u64) -> Tombstone {
        Tombstone { expires, key: SessionKey::new([key; 16]) }
    }

    #[test]
    fn the_order_of_hearing_does_not_matter() {
        let stones = [stone(1, 10), stone(2, 5), stone(3, 7), stone(2, 5), stone(1, 12)];
        let mut forward = Tombstones::new(2);
        let mut backward = Tombstones::new(2);
        for at in 0..stones.len() {
            forward.add(stones[at]);
            backward.add(stones[stones.len() - 1 - at]);
        }
        let kept: Vec<_> = forward.iter().collect();
        assert_eq!(kept, [stone(1, 12), stone(3, 7)]);
        assert_eq!(backward.iter().collect::<Vec<_>>(), kept);
        assert_eq!(forward.digest(), backward.digest());
        assert!(forward.lost() > 0);
    }

    /// Of a principal of this number.
    fn of(owner: u8, number: u8, expires: u64) -> Tombstone {
        let mut bits = [0; 16];
        (bits[0], bits[15]) = (owner, number);
        Tombstone { expires, key: SessionKey::new(bits) }
    }

    #[test]
    fn whoever_has_the_most_loses_its_own() {
        let mut set = Tombstones::new(6);
        let others = [of(1, 1, 5), of(2, 1, 6), of(2, 2, 7)];
        assert!(others.iter().all(|stone| set.add(*stone)));
        assert!((1..=3).all(|number| set.add(of(3, number, 50))));
        assert!(!set.add(of(3, 4, 40)), "it is the first of them");
        assert!(set.add(of(3, 5, 60)));
        assert!(others.iter().all(|stone| set.get(&stone.key).is_some()), "{set:?}");
        let kept: Vec<_> = set.iter().filter(|stone| stone.expires > 7).collect();
        assert_eq!((kept, set.lost()), (vec![of(3, 2, 50), of(3, 3, 50), of(3, 5, 60)], 2));
        assert!(set.add(of(1, 2, 1)), "there is room for others' even so");
        set.forget(7);
        assert_eq!(set.iter().collect::<Vec<_>>(), [of(3, 3, 50), of(3, 5, 60)]);
    }

    proptest! {
        /// Or replicas would never agree, and tell each other all that they know for ever.
        #[test]
        fn replicas_that_heard_of_the_same_ones_keep_the_same_ones(
            mut numbers in proptest::collection::vec((0..5_u8, 0..=255_u8), 0..80),
            turn in 0..80_usize,
        ) {
            let stone = |(owner, number): &(u8, u8)| of(*owner, *number, u64::from(number.wrapping_mul(77)));
            let keep = |numbers: &[(u8, u8)]| {
                let mut set = Tombstones::new(20);
                numbers.iter().for_each(|number| {
                    set.add(stone(number));
                });
                set
            };
            let set = keep(&numbers);
            let turn = turn.min(numbers.len());
            numbers.rotate_left(turn);
            let turned = keep(&numbers);
            numbers.sort_unstable();
            let sorted = keep(&numbers);
            let kept: Vec<_> = set.iter().collect();
            prop_assert_eq!(&turned.iter().collect::<Vec<_>>(), &kept);
            prop_assert_eq!(&sorted.iter().collect::<Vec<_>>(), &kept);
            prop_assert_eq!(set.digest(), sorted.digest());
            // Who hears what another one keeps learns nothing.
            let mut told = set.clone();
            prop_assert!(!set.page(None).into_iter().any(|stone| told.add(stone)));
        }
    }

    #[test]
    fn they_are_forgotten_in_time() {
        let mut set = Tombstones::default();
        assert!(set.add(stone(1, 10)));
        assert!(set.add(stone(2, 20)));
        assert!(!set.add(stone(2, 20)), "known");
        let before = set.digest();
        set.forget(10);
        assert!(set.get(&stone(1, 0).key).is_none());
        assert_eq!(set.get(&stone(2, 0).key), Some(stone(2, 20)));
        assert_ne!(set.digest(), before);
        set.forget(20);
        assert!(set.is_empty());
        assert_eq!(set.digest(), Digest::default());
    }

    /// Replicas forget at moments of their own, and their clocks do not agree.
    #[test]
    fn what_is_forgotten_soon_makes_no_difference() {
        let [mut early, mut late] = [(); 2].map(|()| Tombstones::default());
        for number in 0..1_000_u64 {
            let stone = Tombstone { expires: number, key: SessionKey::new(u128::from(number).to_be_bytes()) };
            assert!(early.add(stone) && late.add(stone));
        }
        let mut differ = 0;
        for unix in 0..900_u64 {
            early.settle(unix + 2);
            early.forget(unix + 2);
            late.settle(unix);
            if unix % 30 == 0 {
                late.forget(unix);
            }
            differ += u64::from(early.digest() != late.digest());
        }
        assert!(differ <= 2 * (900 / SOON + 1), "{differ}");
        // What is added then counts as much as what was there.
        let key = SessionKey::new([9; 16]);
        assert!(early.add(Tombstone { expires: 10_000, key }));
        assert_ne!(early.digest(), late.digest());
        assert!(late.add(Tombstone { expires: 20_000, key }));
        early.settle(950);
        late.settle(950);
        assert_eq!(early.digest(), late.digest());
        assert!(!early.add(Tombstone { expires: 20_000, key }));
        assert_eq!(early.digest(), late.digest());
    }

    #[test]
    fn pages_lead_through_all_of_them() {
        let mut set = Tombstones::default();
        for number in 0..5_000_u128 {
            // Of twenty principals.
            let key = SessionKey::new((number | (number % 20) << 120).to_be_bytes());
            set.add(Tombstone { expires: 1, key });
        }
        let first = set.page(None);
        assert_eq!(first.len(), MAX_TOMBSTONES_A_PAGE);
        let second = set.page(first.last().copied());
        assert_eq!(first.len() + second.len(), 5_000);
        let mut copy = Tombstones::default();
        first.into_iter().chain(second).for_each(|stone| assert!(copy.add(stone)));
        assert_eq!(copy.digest(), set.digest());
    }
}
