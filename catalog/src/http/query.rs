//! What a list is asked for: parameters, and the cursor that goes on where a page ended.

use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use utoipa::IntoParams;

use super::problem::LONGEST_URI;
use crate::model::{Problem, State};
use crate::view::{Page, Position};
use crate::{ServerKey, limits};

const DEFAULT_LIMIT: usize = 50;
const LONGEST_LIMIT: usize = 200;
/// The longest text to look for, in bytes.
const LONGEST_QUERY: usize = 512;
/// The longest value of a filter, in bytes. An owner's has the length of what manifests may say.
const LONGEST_FILTER: usize = 256;
const MOST_TAGS: usize = 16;
/// The longest path of a list, with the mark before its query.
const LONGEST_PATH: &str = "/v1/servers?";

/// What a list may be asked for. This is what `/openapi.json` says; [`page`] reads it.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes what is read below")]
pub(super) struct ListParameters {
    /// Words to look for in names, titles, parameters and the first 160 words of descriptions: the first 16 count. The best
    /// come first; the last word may be the beginning of one. A word that nothing has of what the filters leave may be one,
    /// too, or have one letter wrong. What a server has only just listed is found a little later.
    #[param(max_length = 512)]
    q: Option<String>,
    /// Only servers of this namespace.
    namespace: Option<String>,
    /// Only servers of this name.
    server: Option<String>,
    /// Only servers of this owner, as written in their manifests or as shown here.
    owner: Option<String>,
    /// Only servers with this tag. May be given several times: with all of them.
    tag: Option<Vec<String>>,
    /// Only servers in this state.
    #[param(inline)]
    health: Option<State>,
    /// How many entries a page has. One that would be longer than 256 KiB has fewer.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<usize>,
    /// `nextCursor` of the page before, with the same parameters otherwise. It stays valid while the catalog changes:
    /// without `q` nothing that was there all along is left out or comes twice; with `q` what changes its rank may.
    cursor: Option<String>,
}

/// What a list of tools may be asked for besides.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes what is read below")]
pub(super) struct ToolListParameters {
    /// `true`: only tools of which their servers say that they change nothing. Nobody has checked that. `false`: all.
    #[param(rename = "readOnly")]
    read_only: Option<bool>,
    /// `false`: only tools of which their servers say that they destroy nothing, or change nothing. Nobody has checked that.
    /// `true`: all.
    destructive: Option<bool>,
    /// `schemas`: each tool has its schemas, and what is omitted of it, as where it is asked for alone.
    #[param(pattern = "^schemas$")]
    include: Option<String>,
}

/// Why a list cannot be given.
#[derive(Debug, PartialEq, Eq, Error)]
pub(super) enum Refusal {
    #[error(
        "there is no parameter {0:?}: a list knows q, namespace, server, owner, tag, health, limit and cursor, and one of \
         tools also readOnly, destructive and include"
    )]
    Unknown(String),
    #[error("an entry has no parameters, and {0:?} is one")]
    OfAnEntry(String),
    #[error("{0} is given twice")]
    Twice(&'static str),
    #[error("{name} has {length} bytes, and may have {longest}")]
    TooLong { name: &'static str, length: usize, longest: usize },
    #[error("more than {MOST_TAGS} tags are given")]
    TooManyTags,
    #[error("health is one of Up, Down and Unknown")]
    Health,
    #[error("limit is a number from 1 to {LONGEST_LIMIT}")]
    Limit,
    #[error("{0} is true or false")]
    NoFlag(&'static str),
    #[error("include is schemas, or is not given")]
    Include,
    #[error("this cursor is not one that the catalog gave for these parameters: begin again without one")]
    Cursor,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        Problem::new(StatusCode::BAD_REQUEST, self.to_string()).into_response()
    }
}

/// Which list a cursor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Servers,
    Tools,
}

/// A position, sealed against mistakes and not against anybody: it holds nothing that its holder may not know.
#[derive(Serialize, Deserialize)]
struct Cursor {
    /// Of the parameters that it goes with.
    of: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    score: Option<u32>,
    namespace: String,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
}

/// Reads a query string.
pub(super) fn page(list: List, query: Option<&str>) -> Result<Page, Refusal> {
    let mut page = Page { limit: DEFAULT_LIMIT, ..Page::default() };
    let (mut limit, mut cursor, mut health) = (None, None, None);
    let (mut read_only, mut destructive, mut include) = (None, None, None);
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let value = value.into_owned();
        match &*name {
            "q" => once("q", &mut page.query, value, LONGEST_QUERY)?,
            "namespace" => once("namespace", &mut page.namespace, value, LONGEST_FILTER)?,
            "server" => once("server", &mut page.server, value, LONGEST_FILTER)?,
            "owner" => once("owner", &mut page.owner, value, limits::OWN_LINE)?,
            "health" => once("health", &mut health, value, LONGEST_FILTER)?,
            "readOnly" if list == List::Tools => once("readOnly", &mut read_only, value, LONGEST_FILTER)?,
            "destructive" if list == List::Tools => {
                once("destructive", &mut destructive, value, LONGEST_FILTER)?;
            }
            "include" if list == List::Tools => once("include", &mut include, value, LONGEST_FILTER)?,
            "limit" => once("limit", &mut limit, value, LONGEST_FILTER)?,
            "cursor" => once("cursor", &mut cursor, value, 2 * LONGEST_QUERY)?,
            "tag" => {
                short("tag", &value, LONGEST_FILTER)?;
                page.tags.push(value);
            }
            other => return Err(Refusal::Unknown(other.chars().take(64).collect())),
        }
    }
    if page.tags.len() > MOST_TAGS {
        return Err(Refusal::TooManyTags);
    }
    if let Some(limit) = limit {
        page.limit =
            limit.parse().ok().filter(|limit| (1..=LONGEST_LIMIT).contains(limit)).ok_or(Refusal::Limit)?;
    }
    page.read_only = flag("readOnly", read_only)? == Some(true);
    page.destroys_nothing = flag("destructive", destructive)? == Some(false);
    if let Some(include) = include {
        if include != "schemas" {
            return Err(Refusal::Include);
        }
        page.schemas = true;
    }
    if let Some(health) = health {
        page.health = Some(match health.to_ascii_lowercase().as_str() {
            "up" => State::Up,
            "down" => State::Down,
            "unknown" => State::Unknown,
            _ => return Err(Refusal::Health),
        });
    }
    if page.query.as_ref().is_some_and(|query| query.trim().is_empty()) {
        page.query = None;
    }
    if let Some(cursor) = cursor {
        page.after = Some(read_cursor(list, &page, &cursor).ok_or(Refusal::Cursor)?);
    }
    Ok(page)
}

/// An entry takes no parameters: whoever gives one expects something of it.
pub(super) fn none(query: Option<&str>) -> Result<(), Refusal> {
    match form_urlencoded::parse(query.unwrap_or_default().as_bytes()).next() {
        Some((name, _)) => Err(Refusal::OfAnEntry(name.chars().take(64).collect())),
        None => Ok(()),
    }
}

/// Where the next page begins, as text.
pub(super) fn cursor(list: List, page: &Page, next: &Position) -> Option<String> {
    let cursor = Cursor {
        of: fingerprint(list, page),
        score: next.score.map(f32::to_bits),
        namespace: next.server.namespace.clone(),
        name: next.server.name.clone(),
        tool: next.tool.clone(),
    };
    Some(URL_SAFE_NO_PAD.encode(serde_json::to_vec(&cursor).ok()?))
}

/// Where the next page is, as RFC 8288 has it: at the same path, which whoever is in front may call something else.
pub(super) fn next_page(query: Option<&str>, cursor: &str) -> Option<HeaderValue> {
    let asked = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let mut next = form_urlencoded::Serializer::new(String::new());
    next.extend_pairs(asked.filter(|(name, _)| name != "cursor")).append_pair("cursor", cursor);
    // Nobody could ask for it otherwise, and a proxy may refuse the whole answer.
    let next = Some(next.finish()).filter(|next| LONGEST_PATH.len() + next.len() <= LONGEST_URI)?;
    HeaderValue::from_str(&format!("<?{next}>; rel=\"next\"")).ok()
}

fn read_cursor(list: List, page: &Page, text: &str) -> Option<Position> {
    let cursor: Cursor = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    let fits = cursor.of == fingerprint(list, page)
        && cursor.score.is_some() == page.query.is_some()
        && cursor.tool.is_some() == (list == List::Tools);
    fits.then(|| Position {
        score: cursor.score.map(f32::from_bits),
        server: ServerKey { namespace: cursor.namespace, name: cursor.name },
        tool: cursor.tool,
    })
}

/// Of everything that decides which entries a list has, and in which order.
fn fingerprint(list: List, page: &Page) -> String {
    let Page {
        query,
        namespace,
        server,
        owner,
        tags,
        health,
        read_only,
        destroys_nothing,
        schemas: _,
        limit: _,
        after: _,
    } = page;
    let text = format!(
        "{list:?} {query:?} {namespace:?} {server:?} {owner:?} {tags:?} {health:?} {read_only:?} {destroys_nothing:?}"
    );
    URL_SAFE_NO_PAD.encode(&Sha256::digest(text.as_bytes())[..9])
}

fn once(
    name: &'static str,
    place: &mut Option<String>,
    value: String,
    longest: usize,
) -> Result<(), Refusal> {
    short(name, &value, longest)?;
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Refusal::Twice(name)),
    }
}

fn flag(name: &'static str, value: Option<String>) -> Result<Option<bool>, Refusal> {
    value.map(|value| value.parse::<bool>()).transpose().map_err(|_| Refusal::NoFlag(name))
}

fn short(name: &'static str, value: &str, longest: usize) -> Result<(), Refusal> {
    match value.len() {
        length if length > longest => Err(Refusal::TooLong { name, length, longest }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_a_list_knows() {
        let given = concat!(
            "q=open+issue&namespace=a&server=b&owner=Team%20A&tag=x&tag=y&health=down",
            "&readOnly=true&destructive=false&include=schemas&limit=7",
        );
        let expected = Page {
            query: Some("open issue".to_owned()),
            namespace: Some("a".to_owned()),
            server: Some("b".to_owned()),
            owner: Some("Team A".to_owned()),
            tags: vec!["x".to_owned(), "y".to_owned()],
            health: Some(State::Down),
            read_only: true,
            destroys_nothing: true,
            schemas: true,
            limit: 7,
            after: None,
        };
        assert_eq!(page(List::Tools, Some(given)), Ok(expected));
        assert_eq!(page(List::Tools, None), Ok(Page { limit: DEFAULT_LIMIT, ..Page::default() }));
        assert_eq!(page(List::Tools, Some("q=%20")).unwrap().query, None);
        assert_eq!(page(List::Tools, Some("readOnly=false&destructive=true")), page(List::Tools, None));
    }

    #[test]
    fn refuses_the_rest() {
        let long = "x".repeat(LONGEST_QUERY + 1);
        for (given, expected) in [
            ("query=x", Refusal::Unknown("query".to_owned())),
            ("q=a&q=b", Refusal::Twice("q")),
            (&format!("q={long}"), Refusal::TooLong { name: "q", length: 513, longest: 512 }),
            (&"tag=x&".repeat(17), Refusal::TooManyTags),
            ("health=well", Refusal::Health),
            ("limit=0", Refusal::Limit),
            ("limit=201", Refusal::Limit),
            ("limit=-1", Refusal::Limit),
            ("include=schemas", Refusal::Unknown("include".to_owned())),
            ("destructive=false", Refusal::Unknown("destructive".to_owned())),
            ("cursor=", Refusal::Cursor),
            ("cursor=%00", Refusal::Cursor),
            ("cursor=e30", Refusal::Cursor),
        ] {
            assert_eq!(page(List::Servers, Some(given)), Err(expected), "{given}");
        }
        assert_eq!(page(List::Tools, Some("include=all")), Err(Refusal::Include));
        for name in ["readOnly", "destructive"] {
            assert_eq!(page(List::Tools, Some(&format!("{name}=1"))), Err(Refusal::NoFlag(name)));
        }
        assert_eq!(none(Some("q=x")), Err(Refusal::OfAnEntry("q".to_owned())));
    }

    #[test]
    fn a_page_that_is_too_long_to_ask_for_has_no_link() {
        for (length, is_there) in [(4071, true), (4072, false)] {
            let asked = format!("tag={}", "x".repeat(length));
            assert_eq!(next_page(Some(&asked), "c").is_some(), is_there, "{length}");
        }
    }

    #[test]
    fn a_cursor_goes_on_with_its_own_list_only() {
        let searched = Position {
            score: Some(1.25),
            server: ServerKey { namespace: "a".to_owned(), name: "b".to_owned() },
            tool: Some("日本".to_owned()),
        };
        let listed = Position { score: None, ..searched.clone() };
        for (asked, position, others) in [
            ("q=x&tag=a", searched, &["q=y&tag=a", "tag=a", "q=x", "q=x&tag=a&tag=b"][..]),
            ("readOnly=true", listed.clone(), &["", "readOnly=false", "destructive=false"]),
            ("server=b", listed.clone(), &["", "server=c", "namespace=b"]),
            ("namespace=a&owner=o&health=Up", listed, &["namespace=a&owner=o", "namespace=a&health=Up"]),
        ] {
            let text = cursor(List::Tools, &page(List::Tools, Some(asked)).unwrap(), &position).unwrap();
            let with = |list, query: &str| page(list, Some(&format!("{query}&cursor={text}")));
            let next = with(List::Tools, &format!("{asked}&limit=3&include=schemas")).unwrap();
            assert_eq!(next.after, Some(position), "{asked}");
            for query in others {
                assert_eq!(with(List::Tools, query), Err(Refusal::Cursor), "{query} after {asked}");
            }
            if !asked.contains("readOnly") {
                assert_eq!(with(List::Servers, asked), Err(Refusal::Cursor), "{asked}");
            }
        }
    }
}
