//! Filtering the answers of the four list methods. Entries that stay keep their bytes and their order, and so does
//! everything beside them (`nextCursor` above all).
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/server/tools>

use serde::Deserialize;
use thiserror::Error;

use crate::lossy_json;
use crate::method::List;
use crate::object::{Object, elements};

/// Why an answer cannot be filtered. It is not passed on then: what cannot be read cannot be permitted.
#[derive(Debug, Error)]
pub enum Unreadable {
    /// It is no JSON object, or has a member twice.
    #[error("the answer is not a usable object")]
    Json(#[from] serde_json::Error),
    /// The list is not where it should be.
    #[error("the answer has no list of {0}")]
    NoList(&'static str),
}

/// A list, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filtered {
    /// The whole message with what stays; `None` if everything stays.
    pub rewritten: Option<String>,
    /// How many entries stay.
    pub kept: usize,
    /// How many do not.
    pub hidden: usize,
}

/// Filters a list response; `message` is the whole message and has a `result`. An entry without a readable name does
/// not stay: nobody could ask for it.
pub fn filter(message: &str, list: List, mut keep: impl FnMut(&str) -> bool) -> Result<Filtered, Unreadable> {
    let mut response = Object::read(message)?;
    let mut result = Object::read(response.original("result").ok_or(Unreadable::NoList(list.member()))?)?;
    let entries = result.original(list.member()).ok_or(Unreadable::NoList(list.member()))?;
    let entries = elements(entries).map_err(|_| Unreadable::NoList(list.member()))?;
    let before = entries.len();
    let kept: Vec<&str> =
        entries.into_iter().filter(|entry| name(entry, list).is_some_and(|name| keep(&name))).collect();
    let hidden = before - kept.len();
    let rewritten = (hidden > 0).then(|| {
        result.set(list.member(), format!("[{}]", kept.join(",")));
        response.set("result", result.write());
        response.write()
    });
    Ok(Filtered { rewritten, kept: kept.len(), hidden })
}

/// What a request would name this entry by.
pub fn name(entry: &str, list: List) -> Option<String> {
    let entry = Object::read(entry).ok()?;
    serde_json::from_str(entry.get(list.key())?).ok()
}

/// One page of a list, for those who read it to keep it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The entries as JSON that every reader takes, the members of each object in the order of their names. As values they
    /// would take many times as much memory.
    pub entries: Vec<Box<str>>,
    /// Where the next page begins. The empty string is a cursor like any other.
    pub next_cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cursor {
    #[serde(default)]
    next_cursor: Option<String>,
}

/// Where the next page of a list begins, for those who keep nothing of its entries.
pub fn next_cursor(result: &str) -> Option<String> {
    serde_json::from_str::<Cursor>(result).ok()?.next_cursor
}

/// Reads the result of a list method; `result` is the result alone. An entry that cannot be kept is left out: it is no
/// reason to know nothing of the others.
pub fn page(result: &str, list: List) -> Result<Page, Unreadable> {
    let object = Object::read(result)?;
    let entries = object.get(list.member()).ok_or(Unreadable::NoList(list.member()))?;
    let entries = elements(entries)?.into_iter().filter_map(kept).collect();
    let cursor: Cursor = serde_json::from_str(result)?;
    Ok(Page { entries, next_cursor: cursor.next_cursor })
}

/// An entry as it is kept, if it can be.
fn kept(entry: &str) -> Option<Box<str>> {
    let mut entry = lossy_json::value(entry)?;
    entry.sort_all_objects();
    Some(entry.to_string().into_boxed_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_stay_keep_their_bytes() {
        let message = r#"{"result":{"nextCursor":"","tools":[{"name":"a", "x":1.0},{"name":"b"},{"x":{},"name":"\u0063"},{"name":7},7]},"jsonrpc":"2.0","id":"1"}"#;
        let filtered = filter(message, List::Tools, |name| name != "b").unwrap();
        assert_eq!(
            filtered.rewritten.as_deref(),
            Some(
                r#"{"result":{"nextCursor":"","tools":[{"name":"a", "x":1.0},{"x":{},"name":"\u0063"}]},"jsonrpc":"2.0","id":"1"}"#
            )
        );
        assert_eq!((filtered.kept, filtered.hidden), (2, 3));
        let all = r#"{"result":{"tools":[{"name":"a"}]}}"#;
        assert_eq!(filter(all, List::Tools, |_| true).unwrap().rewritten, None);
    }

    #[test]
    fn each_list_has_its_key() {
        for (list, entry) in [
            (List::Prompts, r#"{"name":"n"}"#),
            (List::Resources, r#"{"name":"other","uri":"n"}"#),
            (List::ResourceTemplates, r#"{"name":"other","uriTemplate":"n"}"#),
        ] {
            assert_eq!(name(entry, list).as_deref(), Some("n"));
        }
        assert_eq!(name(r#"{"name":"a","name":"b"}"#, List::Tools), None);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for message in [r#"{"result":{}}"#, r#"{"result":{"tools":{}}}"#, r#"{"result":[]}"#, r#"{}"#, "7"] {
            assert!(filter(message, List::Tools, |_| true).is_err(), "{message}");
        }
        // Nobody could keep a place for each.
        let many = format!(r#"{{"result":{{"tools":[{}]}}}}"#, vec!["0"; 1 << 19].join(","));
        assert!(filter(&many, List::Tools, |_| true).is_err());
    }

    #[test]
    fn pages_are_read() {
        let read = page(r#"{"tools":[{"name":"a"}],"nextCursor":""}"#, List::Tools).unwrap();
        assert_eq!(read.next_cursor.as_deref(), Some(""));
        assert_eq!(read.entries.len(), 1);
        assert_eq!(page(r#"{"tools":[]}"#, List::Tools).unwrap(), Page::default());
        let odd =
            r#"{"tools":[{"name":"a","description":"\ud83d"},{"name":"b","x":1e400},7],"nextCursor":"n"}"#;
        let read = page(odd, List::Tools).unwrap();
        let entries: Vec<&str> = read.entries.iter().map(|entry| &**entry).collect();
        let half = "{\"description\":\"\u{fffd}\",\"name\":\"a\"}";
        assert_eq!((entries, read.next_cursor.as_deref()), (vec![half, "7"], Some("n")));
        assert_eq!(next_cursor(odd).as_deref(), Some("n"));
        assert_eq!(next_cursor(r#"{"tools":[],"nextCursor":7}"#), None);
        assert!(page(r#"{"tools":{}}"#, List::Tools).is_err());
    }
}
