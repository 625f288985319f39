//! JSON that somebody else wrote, decoded with U+FFFD in the place of each lone surrogate.
//!
//! Languages whose strings are of UTF-16 cut texts within a character, and write half of it as an escape. That is JSON, and
//! their readers take it; no text of Rust's holds it.

use serde_json::Value;

/// The value of a JSON text, in which half a character became U+FFFD. `None`: it is no JSON, or has a number that no float
/// holds.
pub fn value(json: &str) -> Option<Value> {
    serde_json::from_str(json).or_else(|_| serde_json::from_str(&in_whole_characters(json))).ok()
}

/// The same of one that is a text.
pub fn text(json: &str) -> Option<String> {
    match value(json)? {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// A JSON text whose escapes are whole characters. Only texts have backslashes.
fn in_whole_characters(json: &str) -> String {
    let mut whole = String::with_capacity(json.len());
    let mut rest = json;
    while let Some((before, escape)) = rest.find('\\').and_then(|at| rest.split_at_checked(at)) {
        whole.push_str(before);
        let length = match (unit(escape), escape.get(6..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                whole.push(char::REPLACEMENT_CHARACTER);
                rest = escape.get(6..).unwrap_or_default();
                continue;
            }
            (Some(_), _) => 6,
            (None, _) => 2,
        };
        let (escape, behind) = escape.split_at_checked(length).unwrap_or((escape, ""));
        whole.push_str(escape);
        rest = behind;
    }
    whole.push_str(rest);
    whole
}

/// The unit of UTF-16 that a text begins with as an escape.
fn unit(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_characters_become_replacements() {
        for (json, expected) in [
            (r#""a""#, Some("a")),
            (r#""\ud83d""#, Some("\u{fffd}")),
            (r#""a\uDE00\n\ud83d\ude00\ud83d\u0041""#, Some("a\u{fffd}\n\u{1f600}\u{fffd}A")),
            (r#""\ud83d\ud83d\ude00\\ud83d""#, Some("\u{fffd}\u{1f600}\\ud83d")),
            (r#""\ud83d\"é""#, Some("\u{fffd}\"é")),
            ("7", None),
            (r#""\ud83d"#, None),
            (r#""\"#, None),
            (r#""\ud8"#, None),
            ("\"\\é\"", None),
        ] {
            assert_eq!(text(json).as_deref(), expected, "{json}");
        }
        assert_eq!(value(r#"{"\udc00":[1]}"#), Some(serde_json::json!({"\u{fffd}": [1]})));
        assert_eq!(value("[1e400]"), None);
    }
}
