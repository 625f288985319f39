//! Ids of the sidecar's own, under which the server knows requests. Clients choose their ids as they like, also one that is
//! under way or was a moment ago, and many servers find the response that an answer belongs to by its id alone: it would
//! go unread into the response to another request, and where the server gives no session ids, of another client.
//!
//! What stands for an integer is one, since there are servers that read no other id, and what stands for a string is a
//! string. The integers have a range to themselves: a client's own id in it is replaced like the rest.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use longshore_mcp::envelope::{Id, Outcome, Response};
use longshore_mcp::object;
use longshore_mcp::translate::names;
use parking_lot::Mutex;

use super::Session;
use crate::upstream::random;

/// What all of them begin with that are strings, as JSON.
const PREFIX: &str = "\"longshore-";

/// Where all of them lie that are integers. Some servers read 32 bits, and hardly a client counts so far.
const INTEGERS: Range<i64> = 1 << 30..1 << 31;

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

/// The id of a request at the server: no client's request has it there, and it is not used again before a thousand million
/// others were. The session forgets it when this is dropped.
pub(crate) struct Alias {
    /// None for a handshake.
    session: Option<Arc<Session>>,
    own: Arc<str>,
}

impl Aliases {
    /// What the server calls the request that the client calls so: the last one, where it has not kept them apart.
    pub(super) fn find(&self, client: &Id<'_>) -> Option<Arc<str>> {
        let entries = self.0.lock();
        let entry = entries.iter().rev().find(|entry| Id::from_json(&entry.client).is(client));
        entry.map(|entry| entry.own.clone())
    }

    /// News of progress, as its client knows it. `None`: it is of a call that is over, or another session's.
    pub(super) fn progress<'a>(&self, news: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let text = std::str::from_utf8(news).ok()?;
        let token = Id::from_json(names::reported_token(text)?);
        let entries = self.0.lock();
        let entry = entries.iter().find(|entry| token.answers(&Id::from_json(&entry.own)));
        match entry.map(|entry| entry.token.as_deref()) {
            Some(client) => match names::with_reported_token(text, client?).ok()? {
                Cow::Borrowed(text) => Some(Cow::Borrowed(text.as_bytes())),
                Cow::Owned(text) => Some(Cow::Owned(text.into_bytes())),
            },
            None => (!Alias::may_be(&token)).then_some(Cow::Borrowed(news)),
        }
    }
}

impl Alias {
    /// One for the request that its client calls so, and whose progress it wants to hear of by that token, if the server
    /// is to know that by the alias too. `None`: there are no random numbers.
    pub(super) fn new(session: Arc<Session>, client: &Id<'_>, token: Option<&str>) -> Option<Self> {
        let own = own(client)?;
        let entry = Entry { own: own.clone(), client: client.as_json().into(), token: token.map(Box::from) };
        session.aliases.0.lock().push(entry);
        Some(Self { session: Some(session), own })
    }

    /// One for a handshake that its client calls so, which nobody takes back.
    pub(crate) fn of_handshake(client: &Id<'_>) -> Option<Self> {
        Some(Self { session: None, own: own(client)? })
    }

    /// Whether an id or a token could be one of these, to somebody who takes digits for what they say too.
    pub(crate) fn may_be(id: &Id<'_>) -> bool {
        let is_integer = |integer: i64| INTEGERS.contains(&integer);
        let Some(text) = object::string(id.as_json()) else { return id.integer().is_some_and(is_integer) };
        text.trim().parse().is_ok_and(is_integer)
            || PREFIX.strip_prefix('"').is_some_and(|prefix| text.starts_with(prefix))
    }

    /// As JSON.
    pub(crate) fn as_json(&self) -> &str {
        &self.own
    }
}

/// Whether a server's response is an error under an id of nobody's. Some servers have one id for all that they refuse
/// without reading it: where it is all that they say to a request, it is about no other, unless that could be somebody
/// else's.
pub(crate) fn refuses_unread(response: &Response<'_>) -> bool {
    matches!(response.outcome, Outcome::Error(_)) && response.id.is_some_and(|id| !Alias::may_be(&id))
}

impl Drop for Alias {
    fn drop(&mut self) {
        let Some(session) = &self.session else { return };
        let mut entries = session.aliases.0.lock();
        if let Some(at) = entries.iter().position(|entry| entry.own == self.own) {
            entries.remove(at);
        }
    }
}

/// An id of the same type as the client's.
fn own(client: &Id<'_>) -> Option<Arc<str>> {
    if object::string(client.as_json()).is_none() {
        return Some(integer()?.to_string().into());
    }
    Some(format!("{PREFIX}{:032x}\"", random()?).into())
}

/// An integer for a request that no client's has. `None`: there are no random numbers.
pub(crate) fn integer() -> Option<i64> {
    /// Where they begin, and how far they are apart: they begin anew after all of the range, and who has seen one does not
    /// know the next.
    static FROM: LazyLock<Option<(u32, u32)>> = LazyLock::new(|| {
        let mut bytes = [[0; 4]; 2];
        getrandom::fill(bytes.as_flattened_mut()).ok()?;
        let [start, step] = bytes.map(u32::from_ne_bytes);
        // What is odd has no part in a power of two.
        Some((start, step | 1))
    });
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let (start, step) = (*FROM)?;
    let at = start.wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed).wrapping_mul(step));
    Some(INTEGERS.start + i64::from(at) % (INTEGERS.end - INTEGERS.start))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn one_has_the_type_of_what_it_stands_for() {
        let stands_for = |client| Alias::of_handshake(&Id::from_json(client)).unwrap().as_json().to_owned();
        for client in ["0", "7", "-7", "1073741824", "9007199254740991"] {
            let own: i64 = stands_for(client).parse().unwrap();
            assert!(INTEGERS.contains(&own) && i32::try_from(own).is_ok(), "{client}: {own}");
        }
        for client in ["\"\"", "\"7\"", "\"a\\u0062\""] {
            assert!(stands_for(client).starts_with(PREFIX), "{client}");
        }
        let many: HashSet<_> = (0..1000).map(|_| stands_for("7")).collect();
        assert_eq!(many.len(), 1000);
    }

    #[test]
    fn what_a_client_could_mean_by_one_is_known() {
        for (client, may_be) in [
            ("1", false),
            ("1073741823", false),
            ("1073741824", true),
            ("2147483647", true),
            ("1073741824.0", true),
            ("2147483648", false),
            ("-1073741824", false),
            ("\"1\"", false),
            ("\"1073741824\"", true),
            ("\" 1073741824 \"", true),
            ("\"longshore-1\"", true),
            ("\"l\\u006fngshore-1\"", true),
            ("\"longshor\"", false),
        ] {
            assert_eq!(Alias::may_be(&Id::from_json(client)), may_be, "{client}");
        }
        assert!(Alias::may_be(&Id::from_json(&integer().unwrap().to_string())));
    }
}
