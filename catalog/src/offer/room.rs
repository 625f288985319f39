//! The room for what all servers say, and who has how much of it.
//!
//! A server has as much of it as its longest list that is in memory: what it has listed is there for its next list, however
//! full the room is, and whoever keeps old ones takes nothing from the others.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::limits;
use crate::record::ServerKey;

/// So much of the room one namespace may have, as a divisor: no tenant takes what the others need.
const NAMESPACES: usize = 2;
/// So many lists of a server may be in memory at once: the one that is shown, the next, and one that comes meanwhile.
const LISTS: usize = 3;
/// Those that come later, such as of several pods, have a part of their own beside the room, as a divisor: who keeps as many
/// as there may be takes nothing of that.
const SPARE: usize = 5;

/// The room, and what is taken of it.
#[derive(Debug)]
pub(super) struct Room {
    all: Amount,
    taken: Mutex<Taken>,
}

/// What one offer has of a [`Room`]. It goes back when the offer goes.
#[derive(Debug)]
pub(super) struct Share {
    of: Option<(Arc<Room>, ServerKey, Number)>,
    has: Amount,
    /// The length of the shortest tool that found no room.
    missing: Option<usize>,
}

/// Which list it is.
type Number = u64;

#[derive(Debug, Default)]
struct Taken {
    /// By the longest list of each server.
    listed: Sum,
    /// By the lists of each server beyond the first [`LISTS`].
    beyond: Sum,
    /// The lists of each server: the one that is shown, the next, and those of its other pods.
    servers: HashMap<ServerKey, BTreeMap<Number, Amount>>,
    next: Number,
}

#[derive(Debug, Default)]
struct Sum {
    all: Amount,
    namespaces: HashMap<String, Amount>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Amount {
    bytes: usize,
    tools: usize,
}

// === impl Room ===

impl Room {
    pub(super) fn new(bytes: usize, tools: usize) -> Self {
        Self { all: Amount { bytes, tools }, taken: Mutex::default() }
    }

    /// Whether a list of a server may be so long.
    fn has(&self, taken: &Taken, server: &ServerKey, list: Number, length: Amount) -> bool {
        let Some(lists) = taken.servers.get(server) else { return false };
        let mut then = lists.clone();
        then.insert(list, length);
        let longer = longest(&then).without(longest(lists));
        let more = beyond(&then).without(beyond(lists));
        taken.listed.fits_with(&server.namespace, longer, self.all)
            && taken.beyond.fits_with(&server.namespace, more, self.all.part(SPARE))
    }
}

fn longest(lists: &BTreeMap<Number, Amount>) -> Amount {
    lists.values().fold(Amount::default(), |longest, list| longest.at_least(*list))
}

/// What a server's lists have beyond the first [`LISTS`].
fn beyond(lists: &BTreeMap<Number, Amount>) -> Amount {
    let later = lists.values().filter(|list| list.tools > 0).skip(LISTS);
    later.fold(Amount::default(), |sum, list| sum.and(*list))
}

// === impl Share ===

impl Share {
    /// The share of a server's next offer.
    pub(super) fn of(room: &Arc<Room>, server: &ServerKey) -> Self {
        let list = room.taken.lock().begin(server);
        Self { of: Some((room.clone(), server.clone(), list)), has: Amount::default(), missing: None }
    }

    /// Of what takes none of the room.
    pub(super) fn none() -> Self {
        Self { of: None, has: Amount::default(), missing: None }
    }

    /// Takes room for a tool of this length, if there is any.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let has = self.with(bytes);
        if !has.fits(Amount { bytes: limits::SERVER_TEXT, tools: limits::TOOLS }) {
            return false;
        }
        if let Some((room, server, list)) = &self.of {
            let mut taken = room.taken.lock();
            if !room.has(&taken, server, *list, has) {
                self.missing = Some(self.missing.map_or(bytes, |missing| missing.min(bytes)));
                return false;
            }
            taken.put(server, *list, Some(has));
        }
        self.has = has;
        true
    }

    /// Whether there is room by now for a tool that found none, in the list that takes the place of this.
    pub(super) fn may_grow(&self) -> bool {
        let (Some((room, server, _)), Some(bytes)) = (&self.of, self.missing) else { return false };
        let taken = room.taken.lock();
        room.has(&taken, server, taken.next, self.with(bytes))
    }

    fn with(&self, bytes: usize) -> Amount {
        self.has.and(Amount { bytes, tools: 1 })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let Some((room, server, list)) = &self.of else { return };
        room.taken.lock().put(server, *list, None);
    }
}

impl PartialEq for Share {
    /// What an offer costs says nothing about what it is.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

// === impl Taken ===

impl Taken {
    /// A list of a server, with nothing in it.
    fn begin(&mut self, server: &ServerKey) -> Number {
        let number = self.next;
        self.next += 1;
        self.servers.entry(server.clone()).or_default().insert(number, Amount::default());
        number
    }

    /// From now on a list is so long, or no more.
    fn put(&mut self, server: &ServerKey, list: Number, length: Option<Amount>) {
        let Some(lists) = self.servers.get_mut(server) else { return };
        let (longest_before, beyond_before) = (longest(lists), beyond(lists));
        match length {
            Some(length) => lists.insert(list, length),
            None => lists.remove(&list),
        };
        let (longest_now, beyond_now) = (longest(lists), beyond(lists));
        if lists.is_empty() {
            self.servers.remove(server);
        }
        self.listed.exchange(&server.namespace, longest_before, longest_now);
        self.beyond.exchange(&server.namespace, beyond_before, beyond_now);
    }
}

// === impl Sum ===

impl Sum {
    /// Whether it is within this with more of a namespace.
    fn fits_with(&self, namespace: &str, more: Amount, room: Amount) -> bool {
        let of_namespace = self.namespaces.get(namespace).copied().unwrap_or_default();
        self.all.and(more).fits(room) && of_namespace.and(more).fits(room.part(NAMESPACES))
    }

    fn exchange(&mut self, namespace: &str, before: Amount, now: Amount) {
        self.all = self.all.without(before).and(now);
        let of_namespace = self.namespaces.entry(namespace.to_owned()).or_default();
        *of_namespace = of_namespace.without(before).and(now);
        if of_namespace.tools == 0 {
            self.namespaces.remove(namespace);
        }
    }
}

// === impl Amount ===

impl Amount {
    fn and(self, more: Self) -> Self {
        Self { bytes: self.bytes + more.bytes, tools: self.tools + more.tools }
    }

    fn without(self, less: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(less.bytes), tools: self.tools.saturating_sub(less.tools) }
    }

    fn part(self, parts: usize) -> Self {
        Self { bytes: self.bytes / parts, tools: self.tools / parts }
    }

    fn at_least(self, least: Self) -> Self {
        Self { bytes: self.bytes.max(least.bytes), tools: self.tools.max(least.tools) }
    }

    fn fits(self, room: Self) -> bool {
        self.bytes <= room.bytes && self.tools <= room.tools
    }
}
