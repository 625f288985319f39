//! How many of something each has. Nobody is remembered who has none.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// The numbers of all that have any.
#[derive(Clone, Debug)]
pub(crate) struct Tally<K>(HashMap<K, usize>);

impl<K: Hash + Eq> Tally<K> {
    /// How many this one has.
    pub(crate) fn of<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.0.get(key).copied().unwrap_or(0)
    }

    /// So many more.
    pub(crate) fn more(&mut self, key: K, count: usize) {
        if count > 0 {
            *self.0.entry(key).or_default() += count;
        }
    }

    /// So many fewer, of those that there are.
    pub(crate) fn less<Q: Hash + Eq + ?Sized>(&mut self, key: &Q, count: usize)
    where
        K: Borrow<Q>,
    {
        if let Some(own) = self.0.get_mut(key) {
            *own -= count;
            if *own == 0 {
                self.0.remove(key);
            }
        }
    }

    /// How many have any.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<K> Default for Tally<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_none_is_forgotten() {
        let mut tally = Tally::<String>::default();
        tally.more("a".to_owned(), 2);
        tally.more("a".to_owned(), 1);
        tally.more("b".to_owned(), 0);
        assert_eq!((tally.of("a"), tally.of("b"), tally.len()), (3, 0, 1));
        tally.less("a", 2);
        tally.less("b", 1);
        assert_eq!((tally.of("a"), tally.len()), (1, 1));
        tally.less("a", 1);
        assert_eq!((tally.of("a"), tally.len()), (0, 0));
    }
}
