//! A map that forgets what was put in first when it is full.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

#[derive(Debug)]
pub(super) struct Recent<K, V> {
    limit: usize,
    /// With the number of the insertion, by which an old place in `order` is told from the present one.
    values: HashMap<K, (u64, V)>,
    order: VecDeque<(u64, K)>,
    next: u64,
}

impl<K: Copy + Eq + Hash, V> Recent<K, V> {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, values: HashMap::new(), order: VecDeque::new(), next: 0 }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.values.get(key).map(|(_, value)| value)
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        self.values.insert(key, (self.next, value));
        self.order.push_back((self.next, key));
        self.next += 1;
        while self.values.len() > self.limit || self.order.len() > 2 * self.limit {
            let Some((number, oldest)) = self.order.pop_front() else { break };
            if self.values.get(&oldest).is_some_and(|(current, _)| *current == number) {
                self.values.remove(&oldest);
            }
        }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        self.values.remove(key).map(|(_, value)| value)
    }
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
    fn putting_in_and_out_costs_no_memory() {
        let mut recent = Recent::new(4);
        for _ in 0..1_000 {
            recent.insert(1, ());
            recent.remove(&1);
        }
        assert!(recent.order.len() <= 8);
    }
}
