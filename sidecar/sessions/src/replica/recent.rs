//! A map that forgets what was put in first when it is full: when it has as many values as it may, or they weigh as
//! much.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

#[derive(Debug)]
pub(super) struct Recent<K, V> {
    limit: usize,
    /// How much all values may weigh together, and how much one of them does.
    most: usize,
    weigh: fn(&V) -> usize,
    weight: usize,
    /// With the number of the insertion, by which an old place in `order` is told from the present one.
    values: HashMap<K, (u64, V)>,
    order: VecDeque<(u64, K)>,
    next: u64,
}

impl<K: Copy + Eq + Hash, V> Recent<K, V> {
    /// One whose values are all small.
    pub(super) fn new(limit: usize) -> Self {
        Self::weighing(limit, usize::MAX, |_| 0)
    }

    /// One whose values may weigh so much.
    pub(super) fn weighing(limit: usize, most: usize, weigh: fn(&V) -> usize) -> Self {
        Self { limit, most, weigh, weight: 0, values: HashMap::new(), order: VecDeque::new(), next: 0 }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.values.get(key).map(|(_, value)| value)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.values.keys()
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        self.remove(&key);
        self.weight += (self.weigh)(&value);
        self.values.insert(key, (self.next, value));
        self.order.push_back((self.next, key));
        self.next += 1;
        if self.order.len() > 2 * self.limit {
            // What has been put in again since, or taken out, is of no use here, and must not cost others their place.
            self.order.retain(|(number, key)| is_present(&self.values, *number, key));
        }
        while self.values.len() > self.limit || self.weight > self.most {
            let Some((number, oldest)) = self.order.pop_front() else { break };
            if is_present(&self.values, number, &oldest) {
                self.remove(&oldest);
            }
        }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let (_, value) = self.values.remove(key)?;
        self.weight -= (self.weigh)(&value);
        Some(value)
    }
}

/// Whether that place in the order is the one of the value that is there now.
fn is_present<K: Eq + Hash, V>(values: &HashMap<K, (u64, V)>, number: u64, key: &K) -> bool {
    values.get(key).is_some_and(|(current, _)| *current == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first() {
        let mut recent = Recent::new(2);
        for key in [1, 2, 1, 3] {
            recent.insert(key, key * 10);
        }
        assert_eq!(recent.get(&2), None, "1 was put in again after it");
        assert_eq!((recent.get(&1), recent.get(&3)), (Some(&10), Some(&30)));
        assert_eq!(recent.remove(&1), Some(10));
        assert_eq!(recent.get(&1), None);
    }

    #[test]
    fn what_is_heavy_takes_the_place_of_much() {
        let mut recent = Recent::weighing(100, 10, |value: &usize| *value);
        for key in 0..5 {
            recent.insert(key, 2);
        }
        recent.insert(9, 5);
        let left: Vec<_> = (0..5).filter(|key| recent.get(key).is_some()).collect();
        assert_eq!((left, recent.weight), (vec![3, 4], 9));
        // The same again is not counted twice, and what is too heavy is not kept at all.
        recent.insert(9, 6);
        recent.insert(8, 11);
        assert_eq!((recent.get(&8), recent.weight, recent.values.len()), (None, 0, 0));
    }

    #[test]
    fn what_is_put_in_again_and_again_takes_the_place_of_nothing_else() {
        let mut recent = Recent::new(2);
        for key in [1, 2, 2, 2, 2, 2, 2] {
            recent.insert(key, key * 10);
        }
        assert_eq!((recent.get(&1), recent.get(&2)), (Some(&10), Some(&20)));
        recent.insert(3, 30);
        assert_eq!(recent.get(&1), None, "it is the oldest still");
        assert_eq!((recent.get(&2), recent.get(&3)), (Some(&20), Some(&30)));
    }

    #[test]
    fn putting_in_and_out_costs_no_memory() {
        let mut recent = Recent::new(4);
        for _ in 0..1_000 {
            recent.insert(1, ());
            recent.remove(&1);
        }
        assert!(recent.order.len() <= 8);
    }
}
