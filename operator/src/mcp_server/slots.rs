//! How many servers are reconciled at once, and which is next where more are due.
//!
//! A reconciliation holds memory, and takes long where a webhook hangs. So a few servers at a time have a slot, and no
//! namespace has more slots than it leaves free for others. Beyond these there are some for namespaces that have none:
//! otherwise a few that are held up would keep all others waiting. A server that has to wait is a name in the line of its
//! namespace, and is called in its turn: a reconciliation that waited would keep the manifest of when it began.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::mirror::ServerKey;

/// How many servers are reconciled at once. That mostly waits for the API server.
const SLOTS: usize = 16;
/// The same with those beyond, each of which is the only one of its namespace.
const MOST: usize = 2 * SLOTS;

/// The slots, and who waits for one.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    state: Mutex<State>,
    is_called: Notify,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    /// The namespaces that have a slot or wait for one.
    namespaces: HashMap<String, Line>,
    /// The place of each server that waits.
    places: HashMap<ServerKey, u64>,
    last_place: u64,
    /// Servers that a slot is kept for.
    kept: HashSet<ServerKey>,
    /// Those of the kept ones that nobody has told yet.
    called: VecDeque<ServerKey>,
}

/// What a namespace has, and who waits in it.
#[derive(Debug, Default)]
struct Line {
    slots: usize,
    /// The names of servers by their places: who became due first is first.
    waiting: BTreeMap<u64, String>,
}

/// A slot of a namespace's, given back when this goes.
#[derive(Debug)]
#[must_use]
pub(crate) struct Slot<'a> {
    slots: &'a Slots,
    namespace: String,
}

// === impl Slots ===

impl Slots {
    /// A slot for a server. If there is none now, it waits, and is called in its turn.
    pub(crate) fn take(&self, server: &ServerKey) -> Option<Slot<'_>> {
        let mut state = self.state.lock();
        if !state.kept.contains(server) {
            state.wait(server);
            self.call(&mut state);
        }
        if !state.kept.remove(server) {
            return None;
        }
        // It needs nobody's call any more.
        state.called.retain(|called| called != server);
        Some(Slot { slots: self, namespace: server.namespace.clone() })
    }

    /// Waits until a server is called, which has to come and take what is kept for it, or to be forgotten.
    pub(crate) async fn called(&self) -> ServerKey {
        loop {
            if let Some(server) = self.state.lock().called.pop_front() {
                return server;
            }
            self.is_called.notified().await;
        }
    }

    /// The server has gone, and waits no longer.
    pub(crate) fn forget(&self, server: &ServerKey) {
        let mut state = self.state.lock();
        if let Some(place) = state.places.remove(server)
            && let Some(line) = state.namespaces.get_mut(&server.namespace)
        {
            line.waiting.remove(&place);
        }
        if state.kept.remove(server) {
            state.called.retain(|called| called != server);
            state.give_back(&server.namespace);
        }
        self.call(&mut state);
        state.tidy(&server.namespace);
    }

    /// Keeps slots for those whose turn it is.
    fn call(&self, state: &mut State) {
        while let Some(server) = state.next() {
            state.kept.insert(server.clone());
            state.called.push_back(server);
            self.is_called.notify_one();
        }
    }
}

// === impl State ===

impl State {
    /// Who waits already keeps its place.
    fn wait(&mut self, server: &ServerKey) {
        if self.places.contains_key(server) {
            return;
        }
        self.last_place += 1;
        self.places.insert(server.clone(), self.last_place);
        let line = self.namespaces.entry(server.namespace.clone()).or_default();
        line.waiting.insert(self.last_place, server.name.clone());
    }

    /// Takes a slot for whoever is next: of the namespaces that have the fewest, the one that has waited for longest.
    fn next(&mut self) -> Option<ServerKey> {
        let waiting = self.namespaces.iter_mut().filter(|(_, line)| !line.waiting.is_empty());
        let first = |line: &Line| line.waiting.first_key_value().map(|(place, _)| *place);
        let (namespace, line) = waiting.min_by_key(|(_, line)| (line.slots, first(line)))?;
        // One alone has half of them at most, two a third each: another namespace finds one free at once.
        let is_modest = line.slots < SLOTS.saturating_sub(self.taken);
        if !is_modest && (line.slots > 0 || self.taken >= MOST) {
            return None;
        }
        let (_, name) = line.waiting.pop_first()?;
        line.slots += 1;
        self.taken += 1;
        let server = ServerKey { namespace: namespace.clone(), name };
        self.places.remove(&server);
        Some(server)
    }

    fn give_back(&mut self, namespace: &str) {
        if let Some(line) = self.namespaces.get_mut(namespace) {
            line.slots -= 1;
            self.taken -= 1;
        }
    }

    /// Keeps nothing of a namespace that has nothing and wants nothing.
    fn tidy(&mut self, namespace: &str) {
        if self.namespaces.get(namespace).is_some_and(|line| line.slots == 0 && line.waiting.is_empty()) {
            self.namespaces.remove(namespace);
        }
    }
}

// === impl Slot ===

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut state = self.slots.state.lock();
        state.give_back(&self.namespace);
        self.slots.call(&mut state);
        state.tidy(&self.namespace);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn server(namespace: &str, name: usize) -> ServerKey {
        ServerKey { namespace: namespace.to_owned(), name: name.to_string() }
    }

    fn called(slots: &Slots) -> Option<ServerKey> {
        slots.called().now_or_never()
    }

    #[test]
    fn however_many_are_due_elsewhere_a_server_of_another_namespace_is_looked_after_at_once() {
        let slots = Slots::default();
        let mut taken = Vec::new();
        for namespaces in 1..SLOTS {
            let crowded = format!("t{namespaces}");
            taken.extend((0..200).filter_map(|name| slots.take(&server(&crowded, name))));
            assert!(slots.take(&server("v", 0)).is_some(), "beside {namespaces} that have just come");
            // What hangs is given up, and comes back.
            for name in 0..100 {
                let ended: Slot<'_> = taken.remove(name % taken.len());
                let namespace = ended.namespace.clone();
                drop(ended);
                taken.extend(slots.take(&server(&namespace, name)));
                while let Some(next) = called(&slots) {
                    taken.extend(slots.take(&next));
                }
            }
            assert!(taken.len() < MOST, "{} beside {namespaces}", taken.len());
            assert!(namespaces > 1 || taken.len() == SLOTS / 2, "{} of one alone", taken.len());
            assert!(slots.take(&server("v", 0)).is_some(), "beside {namespaces}");
        }
        for namespace in 0..100 {
            taken.extend((0..2).filter_map(|name| slots.take(&server(&format!("u{namespace}"), name))));
        }
        assert_eq!(taken.len(), MOST);
    }

    #[test]
    fn who_comes_again_and_again_has_its_turn_after_those_that_wait() {
        let slots = Slots::default();
        let mut taken: VecDeque<_> =
            (0..100).filter_map(|name| slots.take(&server("t", name)).map(|slot| (name, slot))).collect();
        assert!(slots.take(&server("t", 1000)).is_none());
        let mut turns = Vec::new();
        while !turns.contains(&1000) {
            // It is due again while it is looked after, and comes as soon as that has ended.
            let (name, ended) = taken.pop_front().unwrap();
            drop(ended);
            assert!(slots.take(&server("t", name)).is_none());
            let next = called(&slots).unwrap();
            assert!(called(&slots).is_none());
            let slot = slots.take(&next).unwrap();
            turns.push(next.name.parse().unwrap());
            taken.push_back((turns[turns.len() - 1], slot));
            assert!(turns.len() <= 100, "{turns:?}");
        }
        assert!(turns.is_sorted(), "{turns:?}");
    }

    #[test]
    fn what_is_kept_for_a_server_that_has_gone_is_the_next_ones() {
        let slots = Slots::default();
        let mut taken: Vec<_> = (0..8).filter_map(|name| slots.take(&server("t", name))).collect();
        assert_eq!(taken.len(), 8);
        for name in [8, 9, 10] {
            assert!(slots.take(&server("t", name)).is_none());
        }
        slots.forget(&server("t", 8));
        taken.pop();
        assert_eq!(called(&slots), Some(server("t", 9)));
        slots.forget(&server("t", 9));
        assert_eq!(called(&slots), Some(server("t", 10)));
        taken.extend(slots.take(&server("t", 10)));
        // One that looks after itself goes on to have its slot.
        slots.forget(&server("t", 10));
        assert!(slots.take(&server("t", 11)).is_none());
        taken.clear();
        taken.extend(slots.take(&server("t", 11)));
        taken.clear();
        let state = slots.state.lock();
        assert_eq!(state.taken, 0);
        assert!(
            state.namespaces.is_empty() && state.places.is_empty() && state.called.is_empty(),
            "{state:?}"
        );
    }
}
