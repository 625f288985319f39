//! JSON Schemas of strangers: cleaned text, and the names of the parameters. Nothing in them is resolved or applied.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::Schema;
use crate::limits;
use crate::text;

/// How many levels there are. Many readers of JSON bear 64, of which a page has three around it, and one schema would cost
/// them all of the page.
const LEVELS: usize = 60;
/// How deep below the schema's own properties names are looked for.
const DEPTH: usize = 3;

/// What came of a schema's text.
pub(super) enum Read {
    /// The schema, and the names of its parameters.
    Schema(Schema, Vec<Box<str>>),
    /// Nested deeper than readers go, or with a number that has no place in memory. The names of its parameters, as far as it
    /// can be read here.
    Unreadable(Vec<Box<str>>),
    /// A schema of arguments is an object.
    NoObject,
    /// With a name that cannot be shown as it is, and another would be another parameter's. Those of the parameters that
    /// can be.
    Unnamable(Vec<Box<str>>),
}

/// Reads a schema of bounded length.
pub(super) fn read(json: &str) -> Read {
    if !json.starts_with('{') {
        return Read::NoObject;
    }
    let Ok(Value::Object(schema)) = serde_json::from_str(json) else { return Read::Unreadable(Vec::new()) };
    let mut names = BTreeSet::new();
    collect(&schema, DEPTH, &mut names);
    if schema.values().any(|value| goes_deeper(value, LEVELS - 1)) {
        return Read::Unreadable(names.into_iter().collect());
    }
    let Some(cleaned) = cleaned(schema) else { return Read::Unnamable(names.into_iter().collect()) };
    let Ok(raw) = serde_json::value::to_raw_value(&Value::Object(cleaned)) else {
        return Read::NoObject;
    };
    Read::Schema(Schema(raw), names.into_iter().collect())
}

/// Whether a value has more levels than these.
fn goes_deeper(value: &Value, levels: usize) -> bool {
    let left = levels.checked_sub(1);
    let deeper = |value: &Value| left.is_some_and(|left| goes_deeper(value, left));
    match value {
        Value::Array(values) => left.is_none() || values.iter().any(deeper),
        Value::Object(members) => left.is_none() || members.values().any(deeper),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn collect(schema: &Map<String, Value>, depth: usize, names: &mut BTreeSet<Box<str>>) {
    let Some(Value::Object(properties)) = schema.get("properties") else { return };
    for name in properties.keys() {
        if names.len() < limits::PARAMETERS && text::is_plain(name, limits::LINE) {
            names.insert(name.as_str().into());
        }
    }
    if depth == 0 {
        return;
    }
    for property in properties.values() {
        let Value::Object(property) = property else { continue };
        collect(property, depth - 1, names);
        if let Some(Value::Object(items)) = property.get("items") {
            collect(items, depth - 1, names);
        }
    }
}

/// As deep as the parser lets a value be. `None`: a name would be another one.
fn cleaned(object: Map<String, Value>) -> Option<Map<String, Value>> {
    let clean = |(name, value): (String, Value)| (text::seen(&name) == name).then_some((name, clean(value)?));
    object.into_iter().map(clean).collect()
}

/// Spaces may mean something in here.
fn clean(value: Value) -> Option<Value> {
    Some(match value {
        Value::String(text) => Value::String(text::seen(&text)),
        Value::Array(values) => Value::Array(values.into_iter().map(clean).collect::<Option<_>>()?),
        Value::Object(object) => Value::Object(cleaned(object)?),
        other => other,
    })
}
