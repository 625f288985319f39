//! Forms for 2025-06-18, which has plain fields and choices whose titles stand in a list of their own.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2025-06-18/client/elicitation>

use std::borrow::Cow;

use crate::object::{Object, array, elements};
use crate::translate::{Untranslatable, Way};

/// A form's schema without what 2025-06-18 does not know.
pub(super) fn older(way: Way, schema: &str) -> Result<Cow<'_, str>, Untranslatable> {
    const WHAT: &str = "a form for the user";
    let mut form = way.object(WHAT, schema)?;
    form.edit("properties", |properties| {
        let mut properties = way.object(WHAT, properties)?;
        properties.edit_all(|field| older_field(way, field))?;
        Ok(properties.into_text())
    })?;
    Ok(form.into_text())
}

fn older_field(way: Way, json: &str) -> Result<Cow<'_, str>, Untranslatable> {
    const WHAT: &str = "a field of a form";
    let mut field = way.object(WHAT, json)?;
    let kind = field.string("type").map(crate::Text::into_owned);
    if kind.as_deref() == Some("array") {
        return Err(way.unknown("a choice of several values"));
    }
    // Only booleans have a default there. Without it the user fills in more, and says nothing else.
    if kind.as_deref() != Some("boolean") {
        field.remove("default");
    }
    if let Some(choices) = field.original("oneOf") {
        let choices = elements(choices).map_err(|_| way.unreadable(WHAT))?;
        let read = |choice| -> Option<(String, String)> {
            let choice = Object::read(choice).ok()?;
            let value = choice.get("const")?.to_owned();
            let title = choice.get("title").map_or_else(|| value.clone(), str::to_owned);
            Some((value, title))
        };
        let choices: Option<Vec<(String, String)>> = choices.into_iter().map(read).collect();
        let (values, titles): (Vec<_>, Vec<_>) =
            choices.ok_or_else(|| way.unreadable(WHAT))?.into_iter().unzip();
        field.remove("oneOf");
        field.set("enum", array(values));
        field.set("enumNames", array(titles));
    }
    Ok(field.into_text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::revision::Revision;

    #[test]
    fn choices_keep_their_titles() {
        let way = Way { from: Revision::V2026_07_28, to: Revision::V2025_06_18 };
        let form = r#"{"type":"object","properties":{"a":{"type":"string","oneOf":[{"const":"x","title":"X"},{"const":"y"}],"default":"x"},"b":{"type":"boolean", "default":true}}}"#;
        assert_eq!(
            older(way, form).unwrap(),
            r#"{"type":"object","properties":{"a":{"type":"string","enum":["x","y"],"enumNames":["X","y"]},"b":{"type":"boolean", "default":true}}}"#
        );
        let plain = r#"{ "type":"object","properties":{"a":{ "type":"number"}} }"#;
        assert!(matches!(older(way, plain).unwrap(), Cow::Borrowed(_)));
        let several = r#"{"properties":{"a":{"type":"array"}}}"#;
        assert_eq!(
            older(way, several).unwrap_err().to_string(),
            "a choice of several values cannot be passed on from revision 2026-07-28 to revision 2025-06-18 of MCP"
        );
    }
}
