//! JSON that somebody else wrote, decoded with U+FFFD in the place of each lone surrogate.
//!
//! Languages whose strings are of UTF-16 cut texts within a character, and write half of it as an escape. That is JSON, and
//! their readers take it; no text of Rust's holds it.

use memchr::memchr2;
use serde_json::Value;

/// About how many bytes of memory a value may take. Whoever writes it chooses how much that is beside its text: a hundred times
/// as much, where that is made of small objects. There is room for some ten thousand properties of one tool.
const MAX_WEIGHT: usize = 16 * 1024 * 1024;

/// What an object takes beside its names and values: there is room for eleven members from the first one on.
const OBJECT: usize = 640;
/// What an array takes with its first elements.
const ARRAY: usize = 128;
/// What one more member takes, or one more element.
const NEXT: usize = 96;
/// What a text or a name takes beside its bytes.
const TEXT: usize = 32;

/// The value of a JSON text, in which half a character became U+FFFD. `None`: it is no JSON, has a number that no float
/// holds, or would take more memory than anybody has for it.
pub fn value(json: &str) -> Option<Value> {
    if weight(json) > MAX_WEIGHT {
        return None;
    }
    serde_json::from_str(json).or_else(|_| serde_json::from_str(&in_whole_characters(json))).ok()
}

/// The same of one that is a text.
pub fn text(json: &str) -> Option<String> {
    match value(json)? {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// About how many bytes of memory the value of a JSON text takes, and hardly ever less.
fn weight(json: &str) -> usize {
    let bytes = json.as_bytes();
    let (mut weight, mut at) = (0, 0);
    while let Some(byte) = bytes.get(at) {
        at += 1;
        weight += match byte {
            b'{' => OBJECT,
            b'[' => ARRAY,
            b',' => NEXT,
            b'"' => {
                let length = rest_of_string(&bytes[at..]);
                at += length;
                TEXT + length
            }
            _ => 0,
        };
    }
    weight
}

/// How many bytes are left of a string, with the quote at its end.
fn rest_of_string(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(special) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += special;
        if bytes[at] == b'"' {
            return at + 1;
        }
        // What is escaped ends nothing.
        at += 2;
    }
    bytes.len()
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

    #[test]
    fn what_would_take_too_much_memory_is_not_read() {
        for (json, expected) in [
            ("", 0),
            ("-1.5e3", 0),
            ("\"", TEXT),
            (r#""a\"#, TEXT + 2),
            ("{ }", OBJECT),
            (r#"["a,{",true,"\"[\\"]"#, ARRAY + 2 * NEXT + 2 * TEXT + 4 + 6),
            (r#"{"a":{"b":[]}}"#, 2 * OBJECT + ARRAY + 2 * TEXT + 4),
        ] {
            assert_eq!(weight(json), expected, "{json}");
        }
        let many = |element: &str, count: usize| format!("[{}]", vec![element; count].join(","));
        for (json, is_read) in [
            (many(r#"{"a":0}"#, 1 << 14), true),
            (many(r#"{"a":0}"#, 1 << 15), false),
            // As long as that, or longer, and nothing in it that would take as much.
            (many(r#""{{[,,""#, 1 << 16), true),
            (format!("\"{}\"", "{".repeat(MAX_WEIGHT / 2)), true),
        ] {
            assert_eq!(value(&json).is_some(), is_read, "{json:.20}");
        }
    }
}
