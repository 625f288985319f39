//! One session, as all lanes see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// How many processes are remembered that served a session; the rest is only more of the same trouble.
const MAX_INSTANCES: usize = 64;

/// What was seen of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its number in the load.
    pub number: usize,
    /// Which processes of the server answered in it, in the order of their first answers.
    pub instances: Vec<Arc<str>>,
    /// Which of them answered last.
    pub last: Option<Arc<str>>,
    /// How often it was gone (404).
    pub lost: u32,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) number: usize,
    pub(super) principal: usize,
    /// The name that it gives the server.
    pub(super) name: String,
    next_id: AtomicU64,
    state: Mutex<State>,
    /// Held by whoever opens it.
    pub(super) opening: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    id: Option<Id>,
    seen: Seen,
}

/// A session's id, if the server gives one: an open session without an id is one too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Id(pub(super) Option<Arc<str>>);

// === impl Session ===

impl Session {
    pub(super) fn new(number: usize, principal: usize) -> Self {
        let seen = Seen { number, ..Seen::default() };
        Self {
            number,
            principal,
            name: format!("{}{number}", Self::prefix(principal)),
            next_id: AtomicU64::new(1),
            state: Mutex::new(State { id: None, seen }),
            opening: tokio::sync::Mutex::new(()),
        }
    }

    /// What the names of a principal's sessions begin with.
    pub(super) fn prefix(principal: usize) -> String {
        format!("load-{principal}-")
    }

    /// A number that no other request of this session has.
    pub(super) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn id(&self) -> Option<Id> {
        self.state.lock().id.clone()
    }

    pub(super) fn opened(&self, id: Id) {
        self.state.lock().id = Some(id);
    }

    /// It is gone, as the request with this id was told. Several may be told of the same end.
    pub(super) fn gone(&self, id: &Id) -> bool {
        let mut state = self.state.lock();
        let first = state.id.as_ref() == Some(id);
        if first {
            state.id = None;
            state.seen.lost += 1;
        }
        first
    }

    pub(super) fn answered_by(&self, instance: &str) {
        let seen = &mut self.state.lock().seen;
        if seen.last.as_deref() == Some(instance) {
            return;
        }
        let known = seen.instances.iter().find(|known| &***known == instance).cloned();
        let instance = known.unwrap_or_else(|| {
            let new: Arc<str> = instance.into();
            if seen.instances.len() < MAX_INSTANCES {
                seen.instances.push(new.clone());
            }
            new
        });
        seen.last = Some(instance);
    }

    pub(super) fn forget_instances(&self) {
        let seen = &mut self.state.lock().seen;
        (seen.instances, seen.last) = (Vec::new(), None);
    }

    pub(super) fn seen(&self) -> Seen {
        self.state.lock().seen.clone()
    }
}
