//! Ids of the sidecar's own, under which the server knows requests. Clients choose their ids as they like, also one that is
//! under way or was a moment ago, and many servers find the response that an answer belongs to by its id alone: it would
//! go unread into the response to another request, and where the server gives no session ids, of another client.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_mcp::envelope::Id;
use longshore_mcp::object;
use longshore_mcp::translate::names;

use super::Session;

/// What all of them begin with, as JSON.
const PREFIX: &str = "\"longshore-";

/// The requests of one session that are under way under such ids.
#[derive(Default)]
pub(super) struct Aliases(Mutex<Vec<Entry>>);

/// One of them, by both of its ids, as JSON.
struct Entry {
    own: Arc<str>,
    client: Box<str>,
    /// What the client wants to hear of its progress by, if the server knows that under the id of the sidecar's own.
    token: Option<Box<str>>,
}

/// The id of a request at the server: nobody can guess it, and it is never used again. The session forgets it when this
/// is dropped.
pub(crate) struct Alias {
    /// None for a handshake.
    session: Option<Arc<Session>>,
    own: Arc<str>,
}

impl Aliases {
    /// What the server calls the request that the client calls so: the last one, where it has not kept them apart.
    pub(super) fn find(&self, client: &Id<'_>) -> Option<Arc<str>> {
        let entries = self.lock();
        let entry = entries.iter().rev().find(|entry| Id::from_json(&entry.client).is(client));
        entry.map(|entry| entry.own.clone())
    }

    /// News of progress, as its client knows it. `None`: it is of a call that is over, or another session's.
    pub(super) fn progress<'a>(&self, news: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let text = std::str::from_utf8(news).ok()?;
        let token = names::reported_token(text)?;
        let entries = self.lock();
        let entry = entries.iter().find(|entry| Id::from_json(&entry.own).is(&Id::from_json(token)));
        match entry.map(|entry| entry.token.as_deref()) {
            Some(client) => match names::with_reported_token(text, client?).ok()? {
                Cow::Borrowed(text) => Some(Cow::Borrowed(text.as_bytes())),
                Cow::Owned(text) => Some(Cow::Owned(text.into_bytes())),
            },
            None => (!token.starts_with(PREFIX)).then_some(Cow::Borrowed(news)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        // Nothing that holds the lock can leave them half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Alias {
    /// One for the request that its client calls so, and whose progress it wants to hear of by that token, if the server
    /// is to know that by the alias too. `None`: there are no random numbers.
    pub(super) fn new(session: Arc<Session>, client: &Id<'_>, token: Option<&str>) -> Option<Self> {
        let own = random()?;
        let entry = Entry { own: own.clone(), client: client.as_json().into(), token: token.map(Box::from) };
        session.aliases.lock().push(entry);
        Some(Self { session: Some(session), own })
    }

    /// One for a handshake, which nobody takes back.
    pub(crate) fn of_handshake() -> Option<Self> {
        Some(Self { session: None, own: random()? })
    }

    /// Whether an id that a client has chosen could be one of these.
    pub(crate) fn may_be(client: &Id<'_>) -> bool {
        let Some(text) = object::string(client.as_json()) else { return false };
        PREFIX.strip_prefix('"').is_some_and(|prefix| text.starts_with(prefix))
    }

    /// As JSON.
    pub(crate) fn as_json(&self) -> &str {
        &self.own
    }
}

impl Drop for Alias {
    fn drop(&mut self) {
        let Some(session) = &self.session else { return };
        let mut entries = session.aliases.lock();
        if let Some(at) = entries.iter().position(|entry| entry.own == self.own) {
            entries.remove(at);
        }
    }
}

fn random() -> Option<Arc<str>> {
    let mut number = [0; 16];
    getrandom::fill(&mut number).ok()?;
    Some(format!("{PREFIX}{:032x}\"", u128::from_ne_bytes(number)).into())
}
