//! The room for what all servers say, and who has how much of it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::limits;
use crate::record::ServerKey;

/// So much of the room one namespace may have, as a divisor: no tenant takes what the others need.
const NAMESPACES: usize = 2;
/// While a list is replaced, both are in memory: so much room there is beside, as a divisor.
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
    of: Option<(Arc<Room>, ServerKey)>,
    has: Amount,
    /// What the offer has whose place it takes: so much is there for it, however full the room is.
    before: Amount,
    /// The length of the shortest tool that found no room.
    missing: Option<usize>,
}

#[derive(Debug, Default)]
struct Taken {
    all: Amount,
    namespaces: HashMap<String, Amount>,
    servers: HashMap<ServerKey, Server>,
}

/// The offers of one server: the one that is shown, the next, and those of its other pods.
#[derive(Debug, Default)]
struct Server {
    offers: usize,
    has: Amount,
    /// What the last that was read to its end has.
    last: Amount,
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

    /// Whether there is room for more of a namespace once `before` is no longer there.
    fn has(&self, taken: &Taken, namespace: &str, more: Amount, before: Amount) -> bool {
        let of_namespace = taken.of(namespace).and(more).without(before);
        taken.all.and(more).without(before).fits(self.all) && of_namespace.fits(self.all.part(NAMESPACES))
    }

    /// Whether there is room as long as it still is.
    fn has_spare(&self, taken: &Taken, namespace: &str, more: Amount) -> bool {
        let all = self.all.and(self.all.part(SPARE));
        taken.all.and(more).fits(all) && taken.of(namespace).and(more).fits(all.part(NAMESPACES))
    }
}

// === impl Share ===

impl Share {
    /// The share of a server's next offer.
    pub(super) fn of(room: &Arc<Room>, server: &ServerKey) -> Self {
        let before = {
            let mut taken = room.taken.lock();
            let server = taken.servers.entry(server.clone()).or_default();
            server.offers += 1;
            server.last.at_most(server.has)
        };
        Self { of: Some((room.clone(), server.clone())), has: Amount::default(), before, missing: None }
    }

    /// Of what takes none of the room.
    pub(super) fn none() -> Self {
        Self { of: None, has: Amount::default(), before: Amount::default(), missing: None }
    }

    /// Takes room for a tool of this length, if there is any.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let more = Amount { bytes, tools: 1 };
        let has = self.has.and(more);
        if !has.fits(Amount { bytes: limits::SERVER_TEXT, tools: limits::TOOLS }) {
            return false;
        }
        if let Some((room, server)) = &self.of {
            let mut taken = room.taken.lock();
            let replaces = has.fits(self.before);
            let is_room = room.has_spare(&taken, &server.namespace, more)
                && (replaces || room.has(&taken, &server.namespace, more, self.before));
            if !is_room {
                self.missing = Some(self.missing.map_or(bytes, |missing| missing.min(bytes)));
                return false;
            }
            taken.add(server, more);
        }
        self.has = has;
        true
    }

    /// The offer is read to its end: the next one takes its place.
    pub(super) fn whole(self) -> Self {
        if let Some((room, server)) = &self.of
            && let Some(server) = room.taken.lock().servers.get_mut(server)
        {
            server.last = self.has;
        }
        self
    }

    /// Whether there is room by now for a tool that found none.
    pub(super) fn may_grow(&self) -> bool {
        let (Some((room, server)), Some(bytes)) = (&self.of, self.missing) else { return false };
        room.has(&room.taken.lock(), &server.namespace, Amount { bytes, tools: 1 }, Amount::default())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let Some((room, key)) = &self.of else { return };
        room.taken.lock().give_back(key, self.has);
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
    fn of(&self, namespace: &str) -> Amount {
        self.namespaces.get(namespace).copied().unwrap_or_default()
    }

    fn add(&mut self, key: &ServerKey, more: Amount) {
        self.all = self.all.and(more);
        let namespace = self.namespaces.entry(key.namespace.clone()).or_default();
        *namespace = namespace.and(more);
        if let Some(server) = self.servers.get_mut(key) {
            server.has = server.has.and(more);
        }
    }

    /// Of an offer that goes.
    fn give_back(&mut self, key: &ServerKey, less: Amount) {
        self.all = self.all.without(less);
        if let Some(namespace) = self.namespaces.get_mut(&key.namespace) {
            *namespace = namespace.without(less);
            if namespace.tools == 0 {
                self.namespaces.remove(&key.namespace);
            }
        }
        if let Some(server) = self.servers.get_mut(key) {
            server.has = server.has.without(less);
            server.offers -= 1;
            if server.offers == 0 {
                self.servers.remove(key);
            }
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

    fn at_most(self, most: Self) -> Self {
        Self { bytes: self.bytes.min(most.bytes), tools: self.tools.min(most.tools) }
    }

    fn fits(self, room: Self) -> bool {
        self.bytes <= room.bytes && self.tools <= room.tools
    }
}
