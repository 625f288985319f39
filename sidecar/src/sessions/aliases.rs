//! Ids of the sidecar's own, under which the server knows requests whose answers are not everybody's to read. Clients
//! choose their ids as they like, also one that is under way or was a moment ago, and many servers find the response that
//! an answer belongs to by its id alone: it would go unread into the response to another request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_mcp::envelope::Id;

use super::Session;

/// The requests of one session that are under way under such ids.
#[derive(Default)]
pub(super) struct Aliases(Mutex<Vec<Entry>>);

/// One of them, by both of its ids, as JSON.
struct Entry {
    own: Arc<str>,
    client: Box<str>,
}

/// The id of a request at the server: nobody can guess it, and it is never used again. The session forgets it when this
/// is dropped.
pub(crate) struct Alias {
    session: Arc<Session>,
    own: Arc<str>,
}

impl Aliases {
    /// What the server calls the request that the client calls so: the last one, where it has not kept them apart.
    pub(super) fn find(&self, client: &Id<'_>) -> Option<Arc<str>> {
        let entries = self.lock();
        let entry = entries.iter().rev().find(|entry| Id::from_json(&entry.client).is(client));
        entry.map(|entry| entry.own.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        // Nothing that holds the lock can leave them half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Alias {
    /// One for the request that its client calls so. `None`: there are no random numbers.
    pub(super) fn new(session: Arc<Session>, client: &Id<'_>) -> Option<Self> {
        let mut number = [0; 16];
        getrandom::fill(&mut number).ok()?;
        let own = Arc::from(format!("\"longshore-{:032x}\"", u128::from_ne_bytes(number)));
        session.aliases.lock().push(Entry { own: Arc::clone(&own), client: client.as_json().into() });
        Some(Self { session, own })
    }

    /// As JSON.
    pub(crate) fn as_json(&self) -> &str {
        &self.own
    }
}

impl Drop for Alias {
    fn drop(&mut self) {
        let mut entries = self.session.aliases.lock();
        if let Some(at) = entries.iter().position(|entry| entry.own == self.own) {
            entries.swap_remove(at);
        }
    }
}
