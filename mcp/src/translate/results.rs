//! Results: what each kind says of itself, and what clients of another revision get in its place.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching>

use std::borrow::Cow;

use super::{Untranslatable, Way, content, tools};
use crate::meta::SERVER_INFO;
use crate::method::{List, Method};
use crate::object::{Object, array, edit_elements, quote, string};
use crate::revision::{Era, Structured};

/// Who may keep a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Whoever asked for it.
    #[default]
    Private,
    /// Everybody.
    Public,
}

/// What a result of an older server does not say, and a modern one has to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints<'a> {
    /// Who the server is: a JSON object.
    pub server_info: Option<&'a str>,
    /// How long the result may be kept, in milliseconds.
    pub ttl_ms: u64,
    /// By whom.
    pub scope: Scope,
    /// Whether the tool that was called has its results wrapped ([`tools::is_wrapped`]), if its definition is known.
    pub wrapped: Option<bool>,
}

/// What a result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The answer.
    Complete,
    /// Questions that have to be answered first. See [`crate::rounds`].
    InputRequired,
    /// The answer comes later.
    Task,
    /// Something that nobody knows: no valid answer.
    Unknown,
}

/// What a modern server's result is. Without a word on it, it is the answer.
pub fn kind(result: &str) -> Kind {
    Object::read(result).map_or(Kind::Unknown, |result| kind_of(&result))
}

/// What a result is that has been read.
pub(crate) fn kind_of(result: &Object<'_>) -> Kind {
    match result.present("resultType") {
        None => Kind::Complete,
        Some(kind) => match string(kind).as_deref() {
            Some("complete") => Kind::Complete,
            Some("input_required") => Kind::InputRequired,
            Some("task") => Kind::Task,
            _ => Kind::Unknown,
        },
    }
}

/// A server's result for its client. `method` is what was asked for, if it is known.
pub fn result<'a>(
    way: Way,
    method: Option<Method>,
    json: &'a str,
    hints: &Hints<'_>,
) -> Result<Cow<'a, str>, Untranslatable> {
    if way.is_same() {
        return Ok(Cow::Borrowed(json));
    }
    edit(way, method, way.object("a result", json)?, hints)
}

/// The same for a result that has been read, between two revisions.
pub(crate) fn edit<'a>(
    way: Way,
    method: Option<Method>,
    mut result: Object<'a>,
    hints: &Hints<'_>,
) -> Result<Cow<'a, str>, Untranslatable> {
    if way.from.features().result_type {
        match kind_of(&result) {
            Kind::Complete => {}
            Kind::InputRequired => return Err(way.unknown("a result that asks for more input")),
            Kind::Task => return Err(way.unknown("a task")),
            Kind::Unknown => return Err(way.unreadable("the type of a result")),
        }
    }
    // What is not there some servers write as `null`, which clients that go by the schema refuse with all the rest.
    result.remove_null("_meta");
    if method.and_then(Method::list).is_some() {
        result.remove_null("nextCursor");
    }
    match method {
        Some(Method::ToolsList) => result.edit(List::Tools.member(), |list| tools::definitions(way, list))?,
        Some(Method::PromptsGet) => result.edit("messages", |messages| prompt_messages(way, messages))?,
        Some(Method::ToolsCall) => called(way, &mut result, hints)?,
        _ => {}
    }
    match way.to.era() {
        Era::Modern => complete(way, method, &mut result, hints)?,
        Era::Legacy => {
            for of_modern_results in ["resultType", "ttlMs", "cacheScope"] {
                result.remove(of_modern_results);
            }
        }
    }
    Ok(result.into_text())
}

/// Says what each modern result says.
fn complete(
    way: Way,
    method: Option<Method>,
    result: &mut Object<'_>,
    hints: &Hints<'_>,
) -> Result<(), Untranslatable> {
    result.set("resultType", "\"complete\"".to_owned());
    if method.is_some_and(Method::is_cacheable) {
        result.set("ttlMs", hints.ttl_ms.to_string());
        result.set("cacheScope", quote(hints.scope.as_str()));
    }
    if let Some(info) = hints.server_info {
        stamp(way, result, info)?;
    }
    Ok(())
}

/// Says who the server is.
pub(crate) fn stamp(way: Way, result: &mut Object<'_>, info: &str) -> Result<(), Untranslatable> {
    let mut meta = way.object("\"_meta\" of a result", result.map("_meta").unwrap_or("{}"))?;
    meta.set(SERVER_INFO, info.to_owned());
    let meta = meta.write();
    result.set("_meta", meta);
    Ok(())
}

/// What a tool returned.
fn called(way: Way, result: &mut Object<'_>, hints: &Hints<'_>) -> Result<(), Untranslatable> {
    if result.present("content").is_some() {
        result.edit("content", |blocks| content::blocks(way, blocks))?;
    }
    if way.from.features().structured != Structured::Any {
        // There is nothing then: only a newer server can mean `null` itself.
        result.remove_null("structuredContent");
    }
    let knows = way.to.features().structured;
    let structured = result.original("structuredContent");
    let mut needs_words = knows == Structured::None;
    if knows == Structured::Object
        && let Some(value) = structured
        && (hints.wrapped == Some(true) || !value.starts_with('{'))
    {
        result.set("structuredContent", tools::wrap(value));
        needs_words = true;
    }
    // Content may never be missing. Where structured results are changed or not known, it has to say the same.
    let is_missing = match result.get("content") {
        None | Some("null") => true,
        Some(blocks) => needs_words && blocks.trim_start_matches('[').trim_start() == "]",
    };
    if is_missing {
        let text = structured.map(|value| format!(r#"{{"type":"text","text":{}}}"#, quote(value)));
        result.set("content", array(text.as_slice().iter().map(String::as_str)));
    }
    Ok(())
}

fn prompt_messages(way: Way, messages: &str) -> Result<Cow<'_, str>, Untranslatable> {
    if content::all_pass(way) {
        return Ok(Cow::Borrowed(messages));
    }
    edit_elements(
        messages,
        |_| way.unreadable("the messages of a prompt"),
        |message| {
            let mut message = way.object("a message of a prompt", message)?;
            message.edit("content", |block| content::block(way, block))?;
            Ok(vec![message.into_text()])
        },
    )
}

impl Scope {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Public => "public",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::revision::Revision::{self, V2024_11_05, V2025_06_18, V2025_11_25, V2026_07_28};

    fn made(from: Revision, to: Revision, method: Method, json: &str, hints: &Hints<'_>) -> String {
        match result(Way { from, to }, Some(method), json, hints) {
            Ok(text) => text.into_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn results_say_what_their_reader_needs() {
        let server =
            Hints { server_info: Some(r#"{"name":"s","version":"1"}"#), ttl_ms: 5, ..Hints::default() };
        let none = Hints::default();
        let wrapped = Hints { wrapped: Some(true), ..none };
        for (from, to, method, json, hints, expected) in [
            (
                V2025_11_25,
                V2026_07_28,
                Method::ToolsList,
                r#"{"tools":[ ],"nextCursor":"","_meta":{"a":1.0}}"#,
                &server,
                r#"{"tools":[ ],"nextCursor":"","_meta":{"a":1.0,"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}},"resultType":"complete","ttlMs":5,"cacheScope":"private"}"#,
            ),
            (
                V2025_11_25,
                V2026_07_28,
                Method::ToolsCall,
                r#"{"content":[ ],"_meta":[]}"#,
                &server,
                r#"{"content":[ ],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}},"resultType":"complete"}"#,
            ),
            (
                V2024_11_05,
                V2026_07_28,
                Method::ToolsCall,
                r#"{"content":[],"isError":true}"#,
                &none,
                r#"{"content":[],"isError":true,"resultType":"complete"}"#,
            ),
            (
                V2026_07_28,
                V2025_11_25,
                Method::ResourcesRead,
                r#"{"resultType":"complete","contents":[],"ttlMs":0,"cacheScope":"public","x":1}"#,
                &none,
                r#"{"contents":[],"x":1}"#,
            ),
            (
                V2026_07_28,
                V2025_06_18,
                Method::ToolsCall,
                r#"{"resultType":null,"content":[]}"#,
                &none,
                r#"{"content":[]}"#,
            ),
            (
                V2025_11_25,
                V2026_07_28,
                Method::ToolsCall,
                r#"{"content":null,"structuredContent":{"a":1}}"#,
                &none,
                r#"{"content":[{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a":1},"resultType":"complete"}"#,
            ),
            (
                V2025_11_25,
                V2026_07_28,
                Method::ToolsCall,
                r#"{"content":[ ],"structuredContent":null}"#,
                &none,
                r#"{"content":[ ],"resultType":"complete"}"#,
            ),
            // The last page, as some write it.
            (
                V2026_07_28,
                V2025_06_18,
                Method::PromptsList,
                r#"{"resultType":"complete","prompts":[ ],"nextCursor":null,"_meta":null}"#,
                &none,
                r#"{"prompts":[ ]}"#,
            ),
            (
                V2024_11_05,
                V2025_11_25,
                Method::ResourcesList,
                r#"{"resources":[ ],"nextCursor":null,"x":null}"#,
                &none,
                r#"{"resources":[ ],"x":null}"#,
            ),
            (
                V2025_06_18,
                V2025_11_25,
                Method::ToolsCall,
                r#"{"content":[ ],"structuredContent":null}"#,
                &none,
                r#"{"content":[ ]}"#,
            ),
            (
                V2026_07_28,
                V2025_11_25,
                Method::ToolsCall,
                r#"{"content":[ ],"structuredContent":null}"#,
                &none,
                r#"{"content":[{"type":"text","text":"null"}],"structuredContent":{"result":null}}"#,
            ),
            (
                V2026_07_28,
                V2025_06_18,
                Method::ToolsCall,
                r#"{"resultType":"complete","content":[ ],"structuredContent":[1, 2]}"#,
                &none,
                r#"{"content":[{"type":"text","text":"[1, 2]"}],"structuredContent":{"result":[1, 2]}}"#,
            ),
            (
                V2026_07_28,
                V2025_06_18,
                Method::ToolsCall,
                r#"{"content":[{"type":"text","text":"t"}],"structuredContent":{"a":1}}"#,
                &wrapped,
                r#"{"content":[{"type":"text","text":"t"}],"structuredContent":{"result":{"a":1}}}"#,
            ),
            (
                V2025_06_18,
                V2024_11_05,
                Method::ToolsCall,
                r#"{"content":[],"structuredContent":{"a":"\u0061"}}"#,
                &none,
                r#"{"content":[{"type":"text","text":"{\"a\":\"\\u0061\"}"}],"structuredContent":{"a":"\u0061"}}"#,
            ),
            (
                V2025_06_18,
                V2024_11_05,
                Method::PromptsGet,
                r#"{"messages":[{"role":"user","content":{"type":"resource_link","uri":"a:b","name":"n"}}]}"#,
                &none,
                r#"{"messages":[{"role":"user","content":{"type":"text","text":"n: a:b"}}]}"#,
            ),
            (
                V2026_07_28,
                V2025_06_18,
                Method::ToolsCall,
                r#"{"resultType":"input_required","requestState":"x"}"#,
                &none,
                "a result that asks for more input cannot be passed on from revision 2026-07-28 to revision 2025-06-18 of MCP",
            ),
            (
                V2026_07_28,
                V2025_06_18,
                Method::ToolsCall,
                r#"{"resultType":7}"#,
                &none,
                "the type of a result is not usable in revision 2026-07-28, and was to be passed on to revision 2025-06-18 of MCP",
            ),
        ] {
            assert_eq!(made(from, to, method, json, hints), expected, "{from} {to} {json}");
        }
        for revision in Revision::ALL {
            let json = r#"{ "content" : [] , "x":1.0e5 }"#;
            let way = Way { from: revision, to: revision };
            let text = result(way, Some(Method::ToolsCall), json, &server).unwrap();
            assert!(matches!(text, Cow::Borrowed(same) if same == json));
        }
    }
}
