//! Bytes that are held for clients, counted: in all, and of each principal, so that one of them does not take up the
//! room of the others.
//!
//! A message has to be whole before it is read, and an answer is until its client has read it, which may never be.

mod coming;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::counts_by_owner::Tally;
pub(crate) use coming::{Came, Coming, MOST, Turn};

/// Up to this size, in bytes, a message is not counted: every connection has buffers of about that size anyway.
const FEW: usize = 8 * 1024;
/// Up to this size what a client says of itself is not counted: that is so of nearly all of them.
const SAID: usize = 1024;
/// What one holds beside its URI.
const SUBSCRIPTION: usize = 64;

/// How many bytes may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) total: usize,
    /// Of one principal.
    pub(crate) per_principal: usize,
}

/// What is held.
pub(crate) struct Shares {
    bounds: Bounds,
    held: Mutex<Held>,
    /// Who may take more than there is room for: one at a time.
    turns: Arc<Semaphore>,
    /// How many messages have come to their end or been read, whose room others wait for.
    ended: AtomicU64,
}

#[derive(Default)]
struct Held {
    total: usize,
    by_principal: Tally<Arc<str>>,
}

impl Held {
    /// Whether a principal may hold so many more.
    fn fits(&self, Bounds { total, per_principal }: Bounds, principal: &Arc<str>, bytes: usize) -> bool {
        self.total.saturating_add(bytes) <= total
            && self.by_principal.of(principal).saturating_add(bytes) <= per_principal
    }

    /// So many more are a principal's, if they fit.
    fn take(&mut self, bounds: Bounds, principal: &Arc<str>, bytes: usize) -> bool {
        let fits = self.fits(bounds, principal, bytes);
        if fits {
            self.total += bytes;
            self.by_principal.more(principal.clone(), bytes);
        }
        fits
    }
}

/// Bytes that are held. They are given back when this is dropped.
pub(crate) struct Share {
    shares: Arc<Shares>,
    principal: Arc<str>,
    bytes: usize,
}

/// What a subscription holds.
pub(crate) fn subscription(uri: &str) -> usize {
    SUBSCRIPTION + uri.len()
}

/// Bytes, and their share.
struct Shared<T> {
    bytes: T,
    share: Share,
}

impl Shares {
    pub(crate) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self {
            bounds,
            held: Mutex::default(),
            turns: Arc::new(Semaphore::new(1)),
            ended: AtomicU64::new(0),
        })
    }

    /// The most that a message may be of a principal that holds nothing else: for more there is never room.
    pub(crate) fn largest(&self) -> usize {
        self.bounds.total.min(self.bounds.per_principal).max(FEW)
    }

    /// Room for so many bytes of a principal, if there is any.
    pub(crate) fn take(self: &Arc<Self>, principal: &Arc<str>, bytes: usize) -> Option<Share> {
        let mut share = self.nothing(principal);
        share.add(bytes).then_some(share)
    }

    /// The same, where one who holds nothing may take more than its bound: one thing has to be possible.
    pub(crate) fn take_first(self: &Arc<Self>, principal: &Arc<str>, bytes: usize) -> Option<Share> {
        let mut share = self.nothing(principal);
        share.add_alone(bytes, bytes).then_some(share)
    }

    /// Bytes that are held whole from now on, if there is room for them. Few are not counted.
    pub(crate) fn hold(self: &Arc<Self>, principal: &Arc<str>, bytes: Bytes) -> Option<Bytes> {
        if bytes.len() <= FEW {
            return Some(bytes);
        }
        Some(self.take(principal, bytes.len())?.keep(bytes))
    }

    /// Room for what a client says of itself, if there is any. Little is not counted.
    pub(crate) fn take_said(self: &Arc<Self>, principal: &Arc<str>, bytes: usize) -> Option<Share> {
        if bytes > SAID { self.take(principal, bytes) } else { Some(self.nothing(principal)) }
    }

    /// A share that holds nothing yet.
    pub(crate) fn nothing(self: &Arc<Self>, principal: &Arc<str>) -> Share {
        Share { shares: self.clone(), principal: principal.clone(), bytes: 0 }
    }

    /// A message has come to its end, or been read.
    fn one_ended(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }
}

impl Share {
    /// Holds more. If there is no room for it nothing changes, and it says so.
    pub(crate) fn add(&mut self, bytes: usize) -> bool {
        self.add_within(self.shares.bounds, bytes)
    }

    /// The same where most of the room is left to others.
    fn add_to_few(&mut self, bytes: usize) -> bool {
        let Bounds { total, per_principal } = self.shares.bounds;
        self.add_within(Bounds { total: total / 4, per_principal: per_principal / 4 }, bytes)
    }

    /// The same where what is all that there is of its principal may be as much as all may hold together, and what is all
    /// that there is as much as `most`: one thing has to be possible.
    pub(crate) fn add_alone(&mut self, bytes: usize, most: usize) -> bool {
        let Bounds { mut total, mut per_principal } = self.shares.bounds;
        let mut held = self.shares.held.lock();
        if held.total == self.bytes {
            total = total.max(most);
        }
        if held.by_principal.of(&self.principal) == self.bytes {
            per_principal = total;
        }
        let fits = held.take(Bounds { total, per_principal }, &self.principal, bytes);
        self.bytes += if fits { bytes } else { 0 };
        fits
    }

    /// Holds so many in all, within the same.
    pub(crate) fn reach_alone(&mut self, bytes: usize, most: usize) -> bool {
        self.add_alone(bytes.saturating_sub(self.bytes), most)
    }

    fn add_within(&mut self, bounds: Bounds, bytes: usize) -> bool {
        let fits = self.shares.held.lock().take(bounds, &self.principal, bytes);
        self.bytes += if fits { bytes } else { 0 };
        fits
    }

    /// Whether there is room for more.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.shares.held.lock().fits(self.shares.bounds, &self.principal, bytes)
    }

    /// Holds so many in all, if there is room for them. Few are not counted.
    pub(crate) fn reach(&mut self, bytes: usize) -> bool {
        bytes <= FEW || self.reach_wholly(bytes)
    }

    /// The same where few are counted too.
    fn reach_wholly(&mut self, bytes: usize) -> bool {
        self.add(bytes.saturating_sub(self.bytes))
    }

    /// So many of the bytes, or all of them, as a share of their own.
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { shares: self.shares.clone(), principal: self.principal.clone(), bytes }
    }

    /// Adds the bytes of another share, whoever's they were. They are held already, so there is room for them.
    pub(crate) fn merge(&mut self, mut other: Self) {
        let bytes = std::mem::take(&mut other.bytes);
        if bytes > 0 && other.principal != self.principal {
            let mut held = self.shares.held.lock();
            held.by_principal.less(&other.principal, bytes);
            held.by_principal.more(self.principal.clone(), bytes);
        }
        self.bytes += bytes;
    }

    /// Gives back what is more than this.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        if bytes < self.bytes {
            drop(self.split(self.bytes - bytes));
        }
    }

    /// Whose it is.
    pub(crate) fn principal(&self) -> &Arc<str> {
        &self.principal
    }

    /// Bytes that are counted in this share until nobody needs them any more.
    pub(crate) fn keep(self, bytes: Bytes) -> Bytes {
        if self.bytes == 0 { bytes } else { self.of(bytes) }
    }

    /// The same of anything that holds bytes.
    pub(crate) fn of(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(Shared { bytes, share: self })
    }
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Shared<T> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        self.share.shares.one_ended();
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut held = self.shares.held.lock();
        held.total -= self.bytes;
        held.by_principal.less(&self.principal, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_alone_may_be_larger() {
        let shares = Shares::new(Bounds { total: 100, per_principal: 50 });
        let (mut one, mut other) = (shares.nothing(&"a".into()), shares.nothing(&"b".into()));
        assert!(one.add_alone(150, 200) && !one.reach_alone(201, 200));
        assert!(one.reach_alone(200, 200) && !other.add_alone(1, 200));
        one.shrink(60);
        assert!(other.add_alone(1, 200));
        assert!(
            one.reach_alone(99, 200) && !one.reach_alone(100, 200),
            "it is all of its principal, and not of all"
        );
        one.shrink(60);
        let mut second = shares.nothing(&"a".into());
        assert!(!second.add_alone(1, 200), "its principal has more than its part");
    }

    #[test]
    fn nobody_takes_the_room_of_others() {
        let shares = Shares::new(Bounds { total: 100, per_principal: 40 });
        let take = |who: &str, bytes| shares.take(&who.into(), bytes);
        let first = take("a", 30).unwrap();
        assert!(take("a", 11).is_none());
        let mut second = take("a", 10).unwrap();
        assert!(!second.add(1));
        let other = take("b", 40).unwrap();
        // There is as much as there is.
        assert!(take("c", 21).is_none());
        let mut third = take("c", 0).unwrap();
        assert!(third.add(20) && !third.add(1));
        drop(first);
        assert!(third.add(1));
        assert!(shares.take_first(&"c".into(), 20).is_none(), "it is not the first");
        let mut part = third.split(15);
        part.shrink(5);
        assert_eq!((third.bytes, part.bytes, third.split(99).bytes), (6, 5, 6));
        third.merge(part);
        let mut fourth = take("d", 0).unwrap();
        fourth.merge(third.split(6));
        assert!(take("c", 40).is_some() && !fourth.has_room(36), "they are the other's now");
        third.merge(fourth);
        let bytes = third.of("text");
        assert_eq!((&bytes[..], take("c", 36).is_none()), (&b"text"[..], true));
        drop((second, other, bytes));
        let large = shares.take_first(&"a".into(), 1000).unwrap();
        assert!(take("b", 1).is_none() && shares.take_first(&"b".into(), 1).is_none());
        drop(large);
        let held = shares.held.lock();
        assert_eq!((held.total, held.by_principal.len()), (0, 0));
    }
}
