//! Who waits, in turn: principals one after the other, and those of one principal in the order in which they came.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::oneshot;

/// How many wait. Each is a client that holds a connection open.
const MOST: usize = 256;
/// How many of one principal: nobody takes the others' room.
const MOST_OF_ONE: usize = 32;

pub(super) struct Queue<T> {
    /// Whose turn it is, one after the other; each who waits is there once.
    turns: VecDeque<Arc<str>>,
    waiting: HashMap<Arc<str>, VecDeque<T>>,
    count: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { turns: VecDeque::new(), waiting: HashMap::new(), count: 0 }
    }
}

impl<T> Queue<T> {
    /// Whether anybody waits whose principal may have something.
    pub(super) fn has_any(&self, may: impl Fn(&str) -> bool) -> bool {
        self.turns.iter().any(|who| may(who))
    }

    /// Who waits, and how many of each.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.waiting.iter().map(|(who, own)| (who, own.len()))
    }

    /// Whether this one waits.
    pub(super) fn has(&self, who: &str) -> bool {
        self.waiting.contains_key(who)
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Adds one who waits, if there is room: those who do not wait any more are removed first.
    pub(super) fn push(&mut self, who: Arc<str>, waits: T, still: impl Fn(&T) -> bool) -> Result<(), T> {
        let full = |queue: &Self| {
            queue.count >= MOST || queue.waiting.get(&who).is_some_and(|own| own.len() >= MOST_OF_ONE)
        };
        if full(self) {
            self.retain(still);
            if full(self) {
                return Err(waits);
            }
        }
        self.add(who, waits);
        Ok(())
    }

    /// The same, of somebody who is one of few in any case.
    pub(super) fn add(&mut self, who: Arc<str>, waits: T) {
        let own = self.waiting.entry(who.clone()).or_default();
        if own.is_empty() {
            self.turns.push_back(who);
        }
        own.push_back(waits);
        self.count += 1;
    }

    /// Takes the next one out whose principal may have something. Others keep their turn.
    pub(super) fn next(&mut self, may: impl Fn(&str) -> bool) -> Option<(Arc<str>, T)> {
        let index = self.turns.iter().position(|who| may(who))?;
        let who = self.turns.remove(index)?;
        let own = self.waiting.get_mut(&who)?;
        let waits = own.pop_front()?;
        self.count -= 1;
        if own.is_empty() {
            self.waiting.remove(&who);
        } else {
            self.turns.push_back(who.clone());
        }
        Some((who, waits))
    }

    /// Removes all others.
    pub(super) fn retain(&mut self, still: impl Fn(&T) -> bool) {
        self.waiting.retain(|_, own| {
            own.retain(&still);
            !own.is_empty()
        });
        self.turns.retain(|who| self.waiting.contains_key(who));
        self.count = self.waiting.values().map(VecDeque::len).sum();
    }
}

impl<T> Queue<oneshot::Sender<T>> {
    /// Removes those who have gone.
    pub(super) fn tidy(&mut self) {
        self.retain(|grant| !grant.is_closed());
    }
}

/// Waits in a queue for what is granted; dropped, it does not any more.
pub(super) struct Waits<T, L: Fn()> {
    pub(super) granted: oneshot::Receiver<T>,
    /// Has the queue tidied.
    pub(super) leave: L,
}

impl<T, L: Fn()> Drop for Waits<T, L> {
    fn drop(&mut self) {
        // What has come meanwhile is given back after this.
        self.granted.close();
        (self.leave)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(entries: &str) -> Queue<String> {
        let mut queue = Queue::default();
        for entry in entries.split(' ') {
            queue.push(entry[..1].into(), entry.to_owned(), |_| true).unwrap();
        }
        queue
    }

    fn rest(queue: &mut Queue<String>, may: impl Fn(&str) -> bool) -> String {
        let entries: Vec<_> = std::iter::from_fn(|| queue.next(&may).map(|(_, entry)| entry)).collect();
        entries.join(" ")
    }

    #[test]
    fn principals_have_turns_and_each_its_order() {
        for (came, blocked, went) in [
            ("a1 a2 a3 b1 c1", "", "a1 b1 c1 a2 a3"),
            ("a1 a2 a3 b1 b2", "", "a1 b1 a2 b2 a3"),
            ("a1 b1 a2 c1", "a", "b1 c1"),
            ("a1 b1 c1", "abc", ""),
        ] {
            let mut queue = queue(came);
            assert_eq!(rest(&mut queue, |who| !blocked.contains(who)), went, "{came}");
            let left = rest(&mut queue, |_| true);
            assert_eq!(
                left.len() + went.len(),
                came.len() - usize::from(!left.is_empty() && !went.is_empty()),
                "{came}"
            );
            assert!(queue.len() == 0 && queue.turns.is_empty() && queue.waiting.is_empty());
        }
    }

    #[test]
    fn it_is_bounded_for_all_and_for_each() {
        let mut queue = Queue::default();
        for number in 0..MOST_OF_ONE {
            queue.push("a".into(), number, |_| true).unwrap();
        }
        assert_eq!(queue.push("a".into(), 99, |_| true), Err(99));
        queue.push("a".into(), 99, |number| *number > 0).unwrap();
        for number in 0..MOST - MOST_OF_ONE {
            queue.push(number.to_string().into(), number, |_| true).unwrap();
        }
        assert_eq!(queue.push("b".into(), 99, |_| true), Err(99));
        assert_eq!(queue.next(|_| true).unwrap().1, 1, "the first had gone");
    }
}
