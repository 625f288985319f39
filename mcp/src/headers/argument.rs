//! `Mcp-Param-*`: arguments of a tool that its input schema marks with `x-mcp-header`, repeated as headers.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#custom-headers-from-tool-parameters>

use std::borrow::Cow;

use serde_json::Value;
use thiserror::Error;

use super::fields::{Field, Fields};
use super::standard::Mismatch;
use super::{ARGUMENT_PREFIX, sentinel};
use crate::batch::is_array;
use crate::envelope::{is_json, is_object, whole};
use crate::lossy_json;
use crate::object::{Object, edit_elements, string};
use crate::scan::MAX_DEPTH;

/// The keyword that marks a property.
pub(crate) const KEYWORD: &str = "x-mcp-header";

/// The largest integer that goes into a header: all readers agree up to it.
const MAX_INTEGER: f64 = 9_007_199_254_740_991.0;

/// The most marks of one tool: a request has no more than some hundred headers in all.
pub(crate) const MAX_MARKS: usize = 64;
/// About how many bytes of memory one mark may take, and all marks of a tool together. Each is kept with all names of the
/// properties that lead to its own, and many marks may stand within the same long names.
const MAX_MARK: usize = 1024;
const MAX_OF_TOOL: usize = 8 * 1024;
/// The same for the marks of all tools of a server, for whoever keeps them.
pub const MAX_OF_SERVER: usize = 4 * 1024 * 1024;
/// What each of those names takes besides.
const NAME: usize = 32;

/// A property that is repeated as a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// X of `Mcp-Param-X`.
    pub header: String,
    /// Where the argument stands: the names of the properties from the outside in.
    pub path: Vec<String>,
}

impl Marked {
    /// About how many bytes of memory these take.
    pub fn size(all: &[Self]) -> usize {
        all.iter().map(|mark| size(&mark.header, &mark.path)).sum()
    }
}

fn size(header: &str, path: &[String]) -> usize {
    NAME + header.len() + path.iter().map(|name| NAME + name.len()).sum::<usize>()
}

/// Why a tool's marks cannot be used. A client over HTTP does not offer such a tool.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadMark {
    /// The schema cannot be read.
    #[error("the input schema is not usable")]
    Schema,
    /// The name is no token.
    #[error("the header name {0:?} is no token")]
    Name(String),
    /// More properties are marked than a request has headers for.
    #[error("more than {MAX_MARKS} properties are marked")]
    Many,
    /// A name of a header is too long, or the names of the properties around it are; or they are all together.
    #[error("the names of the headers, or of the properties around them, are too long")]
    Long,
    /// Two properties have the same header.
    #[error("the header name {0:?} is used twice")]
    Twice(String),
    /// The property is not of a type that fits into a header.
    #[error("the property of the header {0:?} is neither string nor integer nor boolean")]
    Type(String),
    /// A mark stands where no argument can be found by name alone.
    #[error("a mark stands somewhere else than on a property")]
    Place,
}

/// The marked properties of an input schema.
pub fn marked(input_schema: &str) -> Result<Vec<Marked>, BadMark> {
    if !may_hold_mark(input_schema) {
        return Ok(Vec::new());
    }
    let schema: Value = lossy_json::value(input_schema).ok_or(BadMark::Schema)?;
    let mut found = Vec::new();
    walk(&schema, &mut Vec::new(), &mut found)?;
    if Marked::size(&found) > MAX_OF_TOOL {
        return Err(BadMark::Long);
    }
    if marks(&schema) == found.len() { Ok(found) } else { Err(BadMark::Place) }
}

fn walk(schema: &Value, path: &mut Vec<String>, found: &mut Vec<Marked>) -> Result<(), BadMark> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Ok(()) };
    for (name, property) in properties {
        path.push(name.clone());
        if let Some(mark) = property.get(KEYWORD) {
            let header = mark.as_str().ok_or_else(|| BadMark::Name(mark.to_string()))?.to_owned();
            if !is_token(&header) {
                return Err(BadMark::Name(header));
            }
            if found.len() == MAX_MARKS {
                return Err(BadMark::Many);
            }
            if size(&header, path) > MAX_MARK {
                return Err(BadMark::Long);
            }
            if found.iter().any(|earlier| earlier.header.eq_ignore_ascii_case(&header)) {
                return Err(BadMark::Twice(header));
            }
            if !matches!(property.get("type").and_then(Value::as_str), Some("string" | "integer" | "boolean"))
            {
                return Err(BadMark::Type(header));
            }
            found.push(Marked { header, path: path.clone() });
        }
        walk(property, path, found)?;
        path.pop();
    }
    Ok(())
}

/// How many marks there are anywhere in a schema. Values that only look like schemas do not count.
fn marks(schema: &Value) -> usize {
    match schema {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| match name.as_str() {
                "const" | "enum" | "default" | "examples" => 0,
                // The names in it are those of arguments, whatever they look like.
                "properties" => value.as_object().map_or(0, |all| all.values().map(marks).sum()),
                KEYWORD => 1,
                _ => marks(value),
            })
            .sum(),
        Value::Array(elements) => elements.iter().map(marks).sum(),
        _ => 0,
    }
}

/// The schema without any mark; what stays keeps its bytes.
pub fn without_marks(input_schema: &str) -> Result<Cow<'_, str>, BadMark> {
    if is_json(input_schema) { unmarked(input_schema, MAX_DEPTH) } else { Err(BadMark::Schema) }
}

/// A part of a schema, which may be nested so deep, without any mark.
fn unmarked(schema: &str, depth: usize) -> Result<Cow<'_, str>, BadMark> {
    let (is_object, is_array) = (is_object(schema), is_array(schema.as_bytes()));
    if !may_hold_mark(schema) || !is_object && !is_array {
        return Ok(Cow::Borrowed(schema));
    }
    let depth = depth.checked_sub(1).ok_or(BadMark::Schema)?;
    if is_array {
        return edit_elements(schema, |_| BadMark::Schema, |element| Ok(vec![unmarked(element, depth)?]));
    }
    let mut members = Object::read(schema).map_err(|_| BadMark::Schema)?;
    members.remove(KEYWORD);
    members.edit_each(|name, value| match name {
        "const" | "enum" | "default" | "examples" => Ok(Cow::Borrowed(value)),
        // The names in it are those of arguments, whatever they look like.
        "properties" if is_object_with_mark(value) => {
            let depth = depth.checked_sub(1).ok_or(BadMark::Schema)?;
            let mut properties = Object::read(value).map_err(|_| BadMark::Schema)?;
            properties.edit_all(|property| unmarked(property, depth))?;
            Ok(properties.into_text())
        }
        "properties" => Ok(Cow::Borrowed(value)),
        _ => unmarked(value, depth),
    })?;
    Ok(members.into_text())
}

fn is_object_with_mark(json: &str) -> bool {
    is_object(json) && may_hold_mark(json)
}

/// Whether there may be a mark in a text: its letters may be escaped.
fn may_hold_mark(json: &str) -> bool {
    json.contains(KEYWORD) || json.contains("\\u")
}

/// Checks the headers of a call's arguments; `arguments` is the member of that name. What the schema does not mark
/// is nobody's business.
pub fn check(marked: &[Marked], arguments: Option<&str>, fields: &Fields<'_>) -> Result<(), Mismatch> {
    for mark in marked {
        let name = || Cow::Owned(format!("Mcp-Param-{}", mark.header));
        let argument = argument(arguments, &mark.path).map_err(|Unclear| Mismatch::Unclear(name()))?;
        match (fields.argument(&mark.header), argument) {
            (Field::Absent, None) => {}
            // What fits into no header clients leave out, and the server says what is wrong with it.
            (Field::Absent, Some(argument)) if !fits(argument) => {}
            (Field::Absent, Some(_)) => return Err(Mismatch::Missing(name())),
            (Field::Twice, _) => return Err(Mismatch::Twice(name())),
            (Field::Unreadable, _) => return Err(Mismatch::Malformed(name())),
            (Field::One(_), None) => return Err(Mismatch::Unfounded(name())),
            (Field::One(value), Some(argument)) => {
                let value = sentinel::decode(value).map_err(|_| Mismatch::Malformed(name()))?;
                if !says(&value, argument) {
                    return Err(Mismatch::Different(name()));
                }
            }
        }
    }
    Ok(())
}

/// The headers that a call is sent with. Arguments that do not fit into a header are left to the server to refuse.
pub fn headers(marked: &[Marked], arguments: Option<&str>) -> Vec<(String, String)> {
    let header = |mark: &Marked| {
        let argument = argument(arguments, &mark.path).ok()??;
        let value = match argument.as_bytes().first()? {
            b'"' => sentinel::encode(&string(argument)?).into_owned(),
            b'{' | b'[' => return None,
            // Many compare what has an exponent as a text.
            _ if argument.contains(['e', 'E']) => {
                whole(argument).map_or_else(|| argument.to_owned(), |number| number.to_string())
            }
            _ => argument.to_owned(),
        };
        Some((format!("{ARGUMENT_PREFIX}{}", mark.header), value))
    };
    marked.iter().filter_map(header).collect()
}

/// Readers differ in what an object holds: it has a member twice, or more members than anybody reads.
struct Unclear;

/// The argument at a path; none if it is null, or if what should hold it is no object.
fn argument<'a>(arguments: Option<&'a str>, path: &[String]) -> Result<Option<&'a str>, Unclear> {
    let mut value = arguments;
    for name in path {
        let Some(object) = value.filter(|value| is_object(value)) else { return Ok(None) };
        value = Object::read(object).map_err(|_| Unclear)?.original(name);
    }
    Ok(value.filter(|value| *value != "null"))
}

/// Whether an argument fits into a header: it is none of those that hold others, and no number that readers differ in.
fn fits(argument: &str) -> bool {
    match argument.as_bytes().first() {
        Some(b'{' | b'[') | None => false,
        Some(b'-' | b'0'..=b'9') => number(argument).is_some_and(|number| number.abs() <= MAX_INTEGER),
        Some(_) => true,
    }
}

fn number(text: &str) -> Option<f64> {
    serde_json::from_str(text).ok()
}

/// Whether a header says what an argument is. Numbers are compared as numbers.
fn says(header: &str, argument: &str) -> bool {
    match argument.as_bytes().first() {
        Some(b'"') => string(argument).is_some_and(|argument| argument.as_str() == header),
        Some(b't' | b'f') => header == argument,
        Some(b'{' | b'[') | None => false,
        Some(_) => header == argument || fits(argument) && number(header) == number(argument),
    }
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{"type":"object","properties":{
        "region":{"type":"string","x-mcp-header":"Region"},
        "deep":{"type":"object","properties":{"count":{"type":"integer","x-mcp-header":"Count"}}},
        "dry":{"type":"boolean","x-mcp-header":"Dry"},
        "x-mcp-header":{"type":"string","default":{"x-mcp-header":1}}}}"#;

    #[test]
    fn marks_are_found() {
        let found = marked(SCHEMA).unwrap();
        let found: Vec<_> = found.iter().map(|mark| (mark.header.as_str(), mark.path.join("."))).collect();
        assert_eq!(
            found,
            [("Count", "deep.count".into()), ("Dry", "dry".into()), ("Region", "region".into())]
        );
        for (schema, expected) in [
            (r#"{"properties":{"a":{"type":"string","x-mcp-header":"a b"}}}"#, BadMark::Name("a b".into())),
            (r#"{"properties":{"a":{"type":"string","x-mcp-header":7}}}"#, BadMark::Name("7".into())),
            (r#"{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}"#, BadMark::Type("A".into())),
            (
                r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}"#,
                BadMark::Twice("a".into()),
            ),
            (r#"{"items":{"type":"string","x-mcp-header":"A"}}"#, BadMark::Place),
            (r#"{"items":{"type":"string","x-mcp-h\u0065ader":"A"}}"#, BadMark::Place),
            ("x-mcp-header", BadMark::Schema),
        ] {
            assert_eq!(marked(schema), Err(expected), "{schema}");
        }
        let many = |count: usize| {
            let property = |number| format!(r#""p{number}":{{"type":"string","x-mcp-header":"H{number}"}}"#);
            let properties: Vec<String> = (0..count).map(property).collect();
            marked(&format!(r#"{{"properties":{{{}}}}}"#, properties.join(","))).map(|found| found.len())
        };
        assert_eq!(many(MAX_MARKS), Ok(MAX_MARKS));
        assert_eq!(many(MAX_MARKS + 1), Err(BadMark::Many));
        let long = |around: &str, depth: usize, marks: usize| {
            let begin = format!(r#"{{"properties":{{"{around}":"#).repeat(depth);
            let mark = |number| format!(r#""{number}":{{"type":"string","x-mcp-header":"{number}"}}"#);
            let marks: Vec<String> = (10..10 + marks).map(mark).collect();
            let marks = format!(r#"{{"properties":{{{}}}}}"#, marks.join(","));
            marked(&format!("{begin}{marks}{}", "}}".repeat(depth))).map(|found| found.len())
        };
        for (around, depth, marks, expected) in [
            ("p".repeat(924), 1, 1, Ok(1)),
            ("p".repeat(925), 1, 1, Err(BadMark::Long)),
            ("p".to_owned(), 28, 1, Ok(1)),
            ("p".to_owned(), 29, 1, Err(BadMark::Long)),
            ("p".repeat(28), 1, MAX_MARKS, Ok(MAX_MARKS)),
            ("p".repeat(29), 1, MAX_MARKS, Err(BadMark::Long)),
        ] {
            assert_eq!(long(&around, depth, marks), expected, "{around:.9} {depth} {marks}");
        }
        let clean = without_marks(SCHEMA).unwrap();
        assert_eq!(marked(&clean), Ok(Vec::new()));
        assert!(clean.contains(r#""x-mcp-header":{"type":"string","default":{"x-mcp-header":1}}"#));
    }

    #[test]
    fn marks_are_taken_out_and_nothing_else() {
        for (schema, expected) in [
            (
                r#"{ "z":[ 1.0e2, {"x-mcp-header":7,"b" : 9007199254740993, "a":"\u0041"} ],"x-mcp-header":"A","y":{ } }"#,
                r#"{"z":[1.0e2,{"b":9007199254740993,"a":"\u0041"}],"y":{ }}"#,
            ),
            (r#"{"a":{"x-mcp-h\u0065ader":"A","b":1}}"#, r#"{"a":{"b":1}}"#),
            // What only looks like a mark.
            (
                r#"{ "enum":[{"x-mcp-header":1}],"properties":{"x-mcp-header":{ }},"title":"x-mcp-header" }"#,
                r#"{ "enum":[{"x-mcp-header":1}],"properties":{"x-mcp-header":{ }},"title":"x-mcp-header" }"#,
            ),
            (r#"{ "properties":["x-mcp-header"] }"#, r#"{ "properties":["x-mcp-header"] }"#),
            ("7", "7"),
        ] {
            assert_eq!(without_marks(schema).unwrap(), expected, "{schema}");
        }
        let deep = |begin: &str, end: &str, depth: usize| {
            format!("{}{{\"x-mcp-header\":1}}{}", begin.repeat(depth - 1), end.repeat(depth - 1))
        };
        for (begin, end) in [("[", "]"), (r#"{"a":"#, "}")] {
            for (depth, fits) in [(MAX_DEPTH, true), (MAX_DEPTH + 1, false), (100_000, false)] {
                let schema = deep(begin, end, depth);
                let made = without_marks(&schema);
                assert_eq!(made.is_ok(), fits, "{begin} {depth}");
                assert!(made.is_ok_and(|made| !made.contains(KEYWORD)) || !fits, "{begin} {depth}");
            }
        }
        for bad in [r#"{"x-mcp-header":1,"a":1,"a":2}"#, "x-mcp-header", "{"] {
            assert_eq!(without_marks(bad), Err(BadMark::Schema), "{bad}");
        }
    }

    #[test]
    fn headers_are_compared_with_arguments() {
        let marked = marked(SCHEMA).unwrap();
        let different = |name: &str| Err(Mismatch::Different(format!("Mcp-Param-{name}").into()));
        let unclear = |name: &str| Err(Mismatch::Unclear(format!("Mcp-Param-{name}").into()));
        for (arguments, headers, expected) in [
            (None, &[][..], Ok(())),
            (Some(r#"{"region":null}"#), &[], Ok(())),
            (Some(r#"{"region":"eu"}"#), &[("region", "eu")], Ok(())),
            (Some(r#"{"region":"\u00e9"}"#), &[("Region", "=?base64?w6k=?=")], Ok(())),
            (Some(r#"{"deep":{"count":42}}"#), &[("count", "42.0")], Ok(())),
            (Some(r#"{"deep":{"count":4.2e1}}"#), &[("count", "42")], Ok(())),
            (Some(r#"{"dry":true}"#), &[("dry", "true"), ("other", "x")], Ok(())),
            (Some(r#"{"dry":true}"#), &[("dry", "True")], different("Dry")),
            (Some(r#"{"deep":{"count":42}}"#), &[("count", "43")], different("Count")),
            (Some(r#"{"deep":{"count":42}}"#), &[("count", "forty")], different("Count")),
            (
                Some(r#"{"deep":{"count":9007199254740993}}"#),
                &[("count", "9007199254740992")],
                different("Count"),
            ),
            (Some(r#"{"deep":{"count":9007199254740993}}"#), &[("count", "9007199254740993")], Ok(())),
            (Some(r#"{"deep":{"count":9007199254740993}}"#), &[], Ok(())),
            (Some(r#"{"deep":{"count":-1e400}}"#), &[], Ok(())),
            (Some(r#"{"deep":{"count":7}}"#), &[], Err(Mismatch::Missing("Mcp-Param-Count".into()))),
            (Some(r#"{"region":["eu"]}"#), &[("region", "eu")], different("Region")),
            (Some(r#"{"region":["eu"],"dry":{ }}"#), &[], Ok(())),
            (Some(r#"{"region":"eu"}"#), &[], Err(Mismatch::Missing("Mcp-Param-Region".into()))),
            (Some("{}"), &[("region", "eu")], Err(Mismatch::Unfounded("Mcp-Param-Region".into()))),
            (Some(r#"{"deep":[{"count":7}]}"#), &[], Ok(())),
            // One reader takes this for an argument and another one does not.
            (Some(r#"{"region":"eu","x":1,"x":2}"#), &[], unclear("Count")),
            (Some(r#"{"deep":{"count":7,"x":1,"x":2}}"#), &[("count", "7")], unclear("Count")),
            (Some(r#"{"region":"eu","deep":{"x":1,"x":2}}"#), &[("region", "eu")], unclear("Count")),
            (
                Some(r#"{"region":"eu"}"#),
                &[("region", "=?base64?e?=")],
                Err(Mismatch::Malformed("Mcp-Param-Region".into())),
            ),
        ] {
            let names: Vec<_> = headers.iter().map(|(name, _)| format!("mcp-param-{name}")).collect();
            let all = names.iter().zip(headers).map(|(name, (_, value))| (name.as_str(), value.as_bytes()));
            assert_eq!(check(&marked, arguments, &Fields::read(all)), expected, "{arguments:?} {headers:?}");
        }
    }

    #[test]
    fn whole_numbers_are_sent_without_an_exponent() {
        let marked = marked(SCHEMA).unwrap();
        for (count, sent) in [
            ("1.0E7", "10000000"),
            ("-4.2e1", "-42"),
            ("5.0", "5.0"),
            ("1.5e0", "1.5e0"),
            ("1e16", "1e16"),
            ("true", "true"),
        ] {
            let arguments = format!(r#"{{"deep":{{"count":{count}}}}}"#);
            let expected = [("mcp-param-Count".to_owned(), sent.to_owned())];
            assert_eq!(headers(&marked, Some(&arguments)), expected, "{count}");
        }
    }

    #[test]
    fn what_is_sent_passes_the_check() {
        let marked = marked(SCHEMA).unwrap();
        let arguments = Some(r#"{"region":"\n","deep":{"count":7},"dry":false}"#);
        let headers = headers(&marked, arguments);
        assert_eq!(headers.len(), 3);
        let fields = Fields::read(headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
        assert_eq!(check(&marked, arguments, &fields), Ok(()));
    }
}
