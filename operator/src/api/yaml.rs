//! What is applied the API server reads as YAML. JSON is YAML but for characters that YAML refuses, takes for the end of a
//! line, or leaves out: with one of them in a server's name or its last words no status would ever be written.

use kube::api::Patch;
use serde::Serialize;
use serde_json::value::RawValue;

/// What applies an object, in JSON that means the same in YAML.
pub(crate) fn applied(object: &impl Serialize) -> kube::Result<Patch<Box<RawValue>>> {
    let json = serde_json::to_string(object).map_err(kube::Error::SerdeError)?;
    let json = if json.contains(is_otherwise_in_yaml) { escaped(&json) } else { json };
    RawValue::from_string(json).map(Patch::Apply).map_err(kube::Error::SerdeError)
}

/// Whether YAML reads a character otherwise than JSON does. (Those below a space are escapes in JSON already.)
fn is_otherwise_in_yaml(letter: char) -> bool {
    matches!(letter, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// The same JSON with escapes for these. They are in strings: what else there is in JSON is plain ASCII.
fn escaped(json: &str) -> String {
    let escape = |letter: char| format!("\\u{:04x}", u32::from(letter));
    json.split_inclusive(is_otherwise_in_yaml)
        .map(|part| match part.chars().next_back().filter(|last| is_otherwise_in_yaml(*last)) {
            Some(last) => part.replace(last, &escape(last)),
            None => part.to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_yaml_reads_otherwise_is_escaped_and_nothing_else() {
        for (value, expected) in [
            (json!({"name": "plain"}), r#"{"name":"plain"}"#),
            (json!("é 日本語 😀 \u{a0}\u{fffd}"), "\"é 日本語 😀 \u{a0}\u{fffd}\""),
            (json!("a\u{0}\t\n\u{1b}\"\\b"), r#""a\u0000\t\n\u001b\"\\b""#),
            (json!("\u{7f}"), r#""\u007f""#),
            (json!("a\u{80}\u{85}b\u{9f}"), r#""a\u0080\u0085b\u009f""#),
            (json!(["\u{2028}", "x\u{2029}"]), r#"["\u2028","x\u2029"]"#),
            (json!({"\u{feff}k": "\\\u{fffe}\u{ffff}"}), r#"{"\ufeffk":"\\\ufffe\uffff"}"#),
        ] {
            let Patch::Apply(sent) = applied(&value).unwrap() else { panic!("another patch") };
            assert_eq!(sent.get(), expected);
            assert_eq!(serde_json::from_str::<Value>(sent.get()).unwrap(), value);
        }
    }
}
