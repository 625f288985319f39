//! What is remembered of the server's tools: which of their arguments a call repeats as headers, and how their results
//! look to clients that know only objects. Every list that passes is looked at; the sidecar's own lists keep it fresh.

use std::collections::{BTreeSet, HashMap};

use longshore_mcp::headers::argument::{MAX_OF_SERVER, Marked};
use longshore_mcp::listing;
use longshore_mcp::meta::Outline;
use longshore_mcp::method::Method;
use longshore_mcp::object::{self, quote};
use longshore_mcp::translate::requests::{self, Client};
use longshore_mcp::translate::tools::{self, Called};
use parking_lot::Mutex;
use tokio::time::{Duration, Instant, timeout};

use super::way::{OWN_ID, Way, repeat};
use crate::upstream::Failure as Any;

/// How many tools are remembered, with names of which length: as many as the sidecar lists.
const MAX_TOOLS: usize = 10_000;
const MAX_NAME: usize = 1_024;
/// How many pages of a list are read.
const MAX_PAGES: usize = 200;
/// How long reading all of it may take.
const READ: Duration = Duration::from_secs(5);
/// How often at most the list is read because of a tool that is not in it.
const AGAIN: Duration = Duration::from_secs(10);

/// The tools of a server.
#[derive(Default)]
pub(super) struct Tools {
    known: Mutex<Known>,
    /// One reads the list for all who need it.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    tools: HashMap<String, Called>,
    /// What their marks take up, in bytes.
    marks: usize,
    /// When the list was read last: the beginning of that, since what changes meanwhile may be missed.
    read: Option<Instant>,
}

impl Tools {
    /// Notes the tools in a result of `tools/list`. Says which of them no call can be right for.
    pub(super) fn note(&self, result: &str) -> BTreeSet<String> {
        let mut unusable = BTreeSet::new();
        let mut known = self.known.lock();
        for (name, called) in tools::called(result) {
            if called.marked.is_none() {
                unusable.insert(name.clone());
            }
            known.keep(name, called);
        }
        unusable
    }

    /// The list has changed.
    pub(super) fn forget(&self) {
        *self.known.lock() = Known::default();
    }

    /// What is known of a tool; the server's list is read if nothing is. Without an answer, nothing is known.
    pub(super) async fn get(&self, way: &Way, name: &str) -> Option<Called> {
        let is_settled = || {
            self.has_been_read(|read| read.elapsed() < AGAIN) || self.known.lock().tools.contains_key(name)
        };
        // Nobody waits for others for whom nothing is to be read.
        if !is_settled() {
            let _one = self.reading.lock().await;
            if !is_settled() {
                self.read(way).await;
            }
        }
        self.find(name)
    }

    /// Reads the list anew, since what was known of a tool when it was called, at that time, was wrong. Whoever has read
    /// the list since then has read it for this call too.
    pub(super) async fn get_anew(&self, way: &Way, name: &str, called: Instant) -> Option<Called> {
        let _one = self.reading.lock().await;
        if !self.has_been_read(|read| read > called) {
            self.read(way).await;
        }
        self.find(name)
    }

    fn has_been_read(&self, when: impl FnOnce(Instant) -> bool) -> bool {
        self.known.lock().read.is_some_and(when)
    }

    async fn read(&self, way: &Way) {
        let begun = Instant::now();
        // Others wait for this. A server that does not answer is called without.
        if timeout(READ, self.read_all(way)).await.is_err() {
            tracing::debug!("the server took too long to list its tools");
        }
        self.known.lock().read = Some(begun);
    }

    async fn read_all(&self, way: &Way) {
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let page = match page(way, cursor.as_deref()).await {
                Ok(Some(page)) => page,
                // The call itself will say what is wrong with the server.
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(%error, "the server's tools could not be read");
                    break;
                }
            };
            self.note(&page);
            match listing::next_cursor(&page) {
                Some(next) if cursor.as_ref() != Some(&next) => cursor = Some(next),
                Some(_) | None => break,
            }
        }
    }

    /// What is known of a tool now.
    pub(super) fn find(&self, name: &str) -> Option<Called> {
        self.known.lock().tools.get(name).cloned()
    }
}

impl Known {
    /// Keeps what is known of a tool now, if there is room for it.
    fn keep(&mut self, name: String, called: Called) {
        let size = |called: &Called| called.marked.as_deref().map_or(0, Marked::size);
        self.marks -= self.tools.remove(&name).as_ref().map_or(0, size);
        let marks = self.marks + size(&called);
        if name.len() <= MAX_NAME && self.tools.len() < MAX_TOOLS && marks <= MAX_OF_SERVER {
            self.marks = marks;
            self.tools.insert(name, called);
        }
    }
}

/// One page of the list: the result alone.
async fn page(way: &Way, cursor: Option<&str>) -> Result<Option<String>, Any> {
    let method = Method::ToolsList;
    let params =
        cursor.map(|cursor| format!(r#","params":{{"cursor":{}}}"#, quote(cursor))).unwrap_or_default();
    let request = format!(r#"{{"jsonrpc":"2.0","id":{OWN_ID},"method":"{}"{params}}}"#, method.as_str());
    let client = Client { level: None, ..way.session.client() };
    let Ok(request) = requests::request(way.session.pair, Some(method), &request, &client) else {
        return Ok(None);
    };
    let repeated = repeat(method, &Outline::default(), None);
    let mut source = way.call(request.into_owned().into(), &repeated).await?;
    let answer = source.answer(OWN_ID).await?;
    source.finish();
    Ok(answer.and_then(|answer| object::at(&answer, &["result"]).map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_marks_are_kept_than_there_is_room_for() {
        let mut known = Known::default();
        let half = MAX_OF_SERVER / 2;
        for (name, length, is_kept) in [
            ("a", half, true),
            ("b", half, false),
            ("b", half - 100, true),
            // In the place that it had.
            ("a", half, true),
            ("a", half + 100, false),
            ("b", half + 100, true),
        ] {
            let marked = vec![Marked { header: "x".repeat(length), path: vec![] }];
            known.keep(name.to_owned(), Called { wrapped: false, marked: Some(marked) });
            assert_eq!(known.tools.contains_key(name), is_kept, "{name} {length}");
        }
    }
}
