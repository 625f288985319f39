//! Tool definitions, and the results that their output schemas describe.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/server/tools>

use std::borrow::Cow;

use serde_json::Value;

use super::{Untranslatable, Way};
use crate::headers::argument::{self, Marked};
use crate::listing;
use crate::lossy_json;
use crate::method::List;
use crate::object::{self, Object, edit_elements, elements, string};
use crate::revision::{Era, Structured};

/// A list of definitions. Tasks are not carried between revisions, so a tool that has to be one is left out: nobody
/// could call it. So is one that cannot be read, which would take all others with it.
pub fn definitions(way: Way, json: &str) -> Result<Cow<'_, str>, Untranslatable> {
    edit_elements(
        json,
        |_| way.unreadable("a list of tools"),
        |element| {
            if !way.is_same() && has_to_be_task(element) {
                return Ok(Vec::new());
            }
            Ok(definition(way, element).into_iter().collect())
        },
    )
}

/// The names of the tools in a result of `tools/list` that are left out since they cannot be read, as far as those can.
pub fn unreadable(way: Way, result: &str) -> Vec<String> {
    let name = |tool| listing::name(tool, List::Tools).unwrap_or_default();
    listed(result).into_iter().filter(|tool| definition(way, tool).is_err()).map(name).collect()
}

/// Whether a tool of 2025-11-25 can be called as a task only.
pub fn has_to_be_task(tool: &str) -> bool {
    object::at(tool, &["execution", "taskSupport"])
        .and_then(string)
        .is_some_and(|support| support.as_str() == "required")
}

/// One definition.
pub fn definition(way: Way, json: &str) -> Result<Cow<'_, str>, Untranslatable> {
    let mut tool = way.object("a tool", json)?;
    if !way.is_same() {
        // Tasks are not carried between revisions, so no tool may ask for one.
        tool.remove("execution");
    }
    if (way.from.era(), way.to.era()) == (Era::Legacy, Era::Modern) {
        // A client would drop the whole tool for a mark that it cannot use.
        tool.edit("inputSchema", |schema| match argument::marked(schema) {
            Ok(_) => Ok(Cow::Borrowed(schema)),
            // One that nobody can go over its client drops, and no other tool.
            Err(_) => {
                Ok::<_, Untranslatable>(argument::without_marks(schema).unwrap_or(Cow::Borrowed(schema)))
            }
        })?;
    }
    if (way.from.era(), way.to.era()) == (Era::Modern, Era::Legacy) {
        tool.edit("inputSchema", |schema| older_schema(way, schema))?;
        tool.remove_null("outputSchema");
        if let Some(schema) = tool.present("outputSchema") {
            match output_schema(way, schema)? {
                Some(Cow::Borrowed(_)) => {}
                Some(Cow::Owned(schema)) => tool.set("outputSchema", schema),
                None => {
                    tool.remove("outputSchema");
                }
            }
        }
    }
    Ok(tool.into_text())
}

/// What has to be remembered of a tool for its calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// Whether its structured results are wrapped: [`super::results::Hints::wrapped`].
    pub wrapped: bool,
    /// The arguments that a call repeats as headers. `None` if the marks cannot be used: then no call over HTTP can
    /// be right.
    pub marked: Option<Vec<Marked>>,
}

/// The tools of a result of `tools/list`, by name, before it is translated.
pub fn called(result: &str) -> impl Iterator<Item = (String, Called)> {
    let called = |tool: &str| {
        let name = object::at(tool, &["name"]).and_then(string)?.into_owned();
        let marked = object::at(tool, &["inputSchema"]).map_or(Ok(Vec::new()), argument::marked).ok();
        Some((name, Called { wrapped: is_wrapped(tool), marked }))
    };
    listed(result).into_iter().filter_map(called)
}

/// The tools of a result of `tools/list`, as they were written.
fn listed(result: &str) -> Vec<&str> {
    object::at(result, &[List::Tools.member()]).and_then(|list| elements(list).ok()).unwrap_or_default()
}

/// Whether a tool's structured results are wrapped for readers that know only objects: then all of them are, whatever
/// they are, since the wrapped schema says so.
pub fn is_wrapped(tool: &str) -> bool {
    let Ok(tool) = Object::read(tool) else { return false };
    tool.present("outputSchema").is_some_and(|schema| !describes_object(schema))
}

/// A structured result for a reader that knows only objects.
pub(crate) fn wrap(value: &str) -> String {
    format!(r#"{{"{WRAPPER}":{value}}}"#)
}

/// The member that holds what was no object.
const WRAPPER: &str = "result";

/// The output schema for a reader that knows only objects; `None` if it cannot be moved.
fn output_schema(way: Way, schema: &str) -> Result<Option<Cow<'_, str>>, Untranslatable> {
    // Schemas may be `true` or `false`, which older readers do not know.
    if matches!(schema, "true" | "false") {
        return Ok(None);
    }
    if way.to.features().structured == Structured::None || describes_object(schema) {
        return older_schema(way, schema).map(Some);
    }
    let mut inner = way.object("an output schema", schema)?;
    if !can_be_moved(schema) {
        return Ok(None);
    }
    let mut outer = Object::empty();
    outer.set("type", "\"object\"".to_owned());
    // References begin at the root, so what they lead to has to stay there.
    for name in ["$schema", "$defs", "definitions"] {
        if let Some(value) = inner.original(name) {
            outer.set(name, value.to_owned());
            inner.remove(name);
        }
    }
    outer.set("properties", wrap(&inner.write()));
    outer.set("required", format!("[\"{WRAPPER}\"]"));
    Ok(Some(Cow::Owned(outer.write())))
}

fn describes_object(schema: &str) -> bool {
    Object::read(schema).is_ok_and(|schema| schema.string("type").as_deref() == Some("object"))
}

/// A schema of type `object` as older revisions have it: a property is described by an object, never by a boolean.
fn older_schema(way: Way, schema: &str) -> Result<Cow<'_, str>, Untranslatable> {
    let mut schema = way.object("a schema", schema)?;
    schema.edit("properties", |properties| {
        if properties == "null" {
            return Ok(Cow::Borrowed(properties));
        }
        let mut properties = way.object("a schema", properties)?;
        properties.edit_all(|property| {
            Ok::<_, Untranslatable>(match property {
                "true" => Cow::Owned("{}".to_owned()),
                "false" => Cow::Owned(r#"{"not":{}}"#.to_owned()),
                _ => Cow::Borrowed(property),
            })
        })?;
        Ok(properties.into_text())
    })?;
    Ok(schema.into_text())
}

/// Whether all references of a schema lead to definitions, which move along. One with a name of its own is the root of
/// its references wherever it stands, and the definitions would be elsewhere.
fn can_be_moved(schema: &str) -> bool {
    fn leads_elsewhere(schema: &Value) -> bool {
        match schema {
            Value::Object(members) => members.iter().any(|(name, value)| match (name.as_str(), value) {
                ("$ref" | "$dynamicRef", Value::String(to)) => {
                    to.starts_with('#') && !to.starts_with("#/$defs/") && !to.starts_with("#/definitions/")
                }
                _ => leads_elsewhere(value),
            }),
            Value::Array(elements) => elements.iter().any(leads_elsewhere),
            _ => false,
        }
    }
    lossy_json::value(schema).is_some_and(|schema| schema.get("$id").is_none() && !leads_elsewhere(&schema))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::revision::Revision;

    fn down(tool: &str, to: Revision) -> String {
        definition(Way { from: Revision::V2026_07_28, to }, tool).unwrap().into_owned()
    }

    #[test]
    fn output_schemas_are_wrapped_for_who_knows_only_objects() {
        let tool = |output: &str| {
            format!(r#"{{"name":"t","inputSchema":{{"type":"object"}},"outputSchema":{output}}}"#)
        };
        let wrapped = |rest: &str, inner: &str| {
            tool(&format!(
                r#"{{"type":"object",{rest}"properties":{{"result":{inner}}},"required":["result"]}}"#
            ))
        };
        for (output, expected, is_wrapped_now) in [
            (r#"{"type":"object","properties":{}}"#, tool(r#"{"type":"object","properties":{}}"#), false),
            (r#"{"type":"array"}"#, wrapped("", r#"{"type":"array"}"#), true),
            ("{}", wrapped("", "{}"), true),
            (
                r##"{"$defs":{"a":{"type":"string"}},"oneOf":[{"$ref":"#/$defs/a"}]}"##,
                wrapped(r#""$defs":{"a":{"type":"string"}},"#, r##"{"oneOf":[{"$ref":"#/$defs/a"}]}"##),
                true,
            ),
            // Half a character, as programs write it that cut texts of UTF-16.
            (
                r#"{"type":"array","description":"\ud83d"}"#,
                wrapped("", r#"{"type":"array","description":"\ud83d"}"#),
                true,
            ),
            // These references would lead somewhere else.
            (
                r##"{"$id":"a:b","$defs":{"a":{"type":"string"}},"oneOf":[{"$ref":"#/$defs/a"}]}"##,
                r#"{"name":"t","inputSchema":{"type":"object"}}"#.to_owned(),
                true,
            ),
            (
                r##"{"type":"array","items":{"$ref":"#"}}"##,
                r#"{"name":"t","inputSchema":{"type":"object"}}"#.to_owned(),
                true,
            ),
            // There is none, or none that says anything.
            ("null", r#"{"name":"t","inputSchema":{"type":"object"}}"#.to_owned(), false),
            ("true", r#"{"name":"t","inputSchema":{"type":"object"}}"#.to_owned(), true),
            (r#"{"type":"object","properties":null}"#, tool(r#"{"type":"object","properties":null}"#), false),
        ] {
            assert_eq!(down(&tool(output), Revision::V2025_06_18), expected, "{output}");
            assert_eq!(is_wrapped(&tool(output)), is_wrapped_now, "{output}");
        }
        // Who knows no output schemas reads none.
        assert_eq!(down(&tool("{}"), Revision::V2025_03_26), tool("{}"));
    }

    #[test]
    fn calls_are_prepared_by_the_list() {
        let list = r#"{"tools":[{"name":"a","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"R"}}}},{"name":"b","inputSchema":{"x-mcp-header":"R"},"outputSchema":{}},7]}"#;
        let marked = vec![Marked { header: "R".to_owned(), path: vec!["r".to_owned()] }];
        assert_eq!(
            called(list).collect::<Vec<_>>(),
            [
                ("a".to_owned(), Called { wrapped: false, marked: Some(marked) }),
                ("b".to_owned(), Called { wrapped: true, marked: None }),
            ]
        );
        assert_eq!(called("7").count(), 0);
    }

    #[test]
    fn what_a_side_cannot_use_is_taken_out() {
        let tool = r#"{"name":"t","execution":{"taskSupport":"required"},"inputSchema":{"type":"object","properties":{"a":{"type":"number","x-mcp-header":"A"}}}}"#;
        let way = |from, to| Way { from, to };
        let (old, new) = (Revision::V2025_11_25, Revision::V2026_07_28);
        assert!(matches!(definition(way(old, old), tool).unwrap(), Cow::Borrowed(_)));
        assert_eq!(
            definition(way(old, new), tool).unwrap(),
            r#"{"name":"t","inputSchema":{"type":"object","properties":{"a":{"type":"number"}}}}"#
        );
        let twice = r#"{"name":"t","inputSchema":{"x-mcp-header":"A","a":1,"a":2}}"#;
        assert_eq!(definition(way(old, new), twice).unwrap(), twice);
        assert!(!definition(way(old, Revision::V2025_03_26), tool).unwrap().contains("execution"));
        let list = format!(r#"[{tool},{}]"#, tool.replace("required", "optional"));
        assert_eq!(elements(&definitions(way(old, new), &list).unwrap()).unwrap().len(), 1);
        assert!(matches!(definitions(way(old, old), &list).unwrap(), Cow::Borrowed(_)));
        let tool = r#"{"name":"t","inputSchema":{"type":"object","properties":{"a":true,"b":false,"c":{}}}}"#;
        assert_eq!(
            definition(way(new, old), tool).unwrap(),
            r#"{"name":"t","inputSchema":{"type":"object","properties":{"a":{},"b":{"not":{}},"c":{}}}}"#
        );
    }

    #[test]
    fn a_tool_that_cannot_be_read_takes_no_other_one_with_it() {
        let way = Way { from: Revision::V2026_07_28, to: Revision::V2025_11_25 };
        let good = r#"{ "name":"good","inputSchema":{"type":"object"}}"#;
        for (bad, name) in [
            (r#"{"name":"bad","inputSchema":{"type":"object","properties":[]}}"#, "bad"),
            (r#"{"name":"bad","inputSchema":{"properties":{"a":{},"a":true}}}"#, "bad"),
            (r#"{"name":"bad","inputSchema":null}"#, "bad"),
            (r#"{"name":"bad","inputSchema":{},"outputSchema":{"type":"object","properties":7}}"#, "bad"),
            (r#"{"name":"bad","name":"worse","inputSchema":{}}"#, ""),
            ("7", ""),
        ] {
            let list = format!("[{bad},{good}]");
            assert_eq!(definitions(way, &list).unwrap(), format!("[{good}]"), "{bad}");
            assert_eq!(unreadable(way, &format!(r#"{{"tools":{list}}}"#)), [name], "{bad}");
        }
    }
}
