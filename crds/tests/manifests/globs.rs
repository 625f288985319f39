//! The schema's rule on globs against the matcher that the sidecar uses.

use globset::{ErrorKind, Glob};
use regex::Regex;
use serde_json::Value;

/// What the schema lets in, the matcher takes; only a range that runs backwards is found later. Every string of up to
/// five of the characters that mean something is tried.
#[test]
fn what_the_schema_lets_in_is_a_glob() {
    const CHARACTERS: [char; 11] = ['a', '-', ',', '[', ']', '{', '}', '\\', '!', '*', '?'];
    let rule = rule();
    let (mut accepted, mut refused) = (0, 0);
    let mut words = vec![String::new()];
    for _ in 0..5 {
        words = words.iter().flat_map(|word| CHARACTERS.map(|c| format!("{word}{c}"))).collect();
        for word in &words {
            if !rule.is_match(word) {
                refused += 1;
                continue;
            }
            accepted += 1;
            match Glob::new(word).map_err(|error| error.kind().clone()) {
                Ok(_) | Err(ErrorKind::InvalidRange(..)) => {}
                Err(kind) => panic!("`{word}` passes the schema, and the matcher says: {kind}"),
            }
        }
    }
    assert!(accepted > 10_000 && refused > 10_000, "{accepted} accepted, {refused} refused");
}

/// The expression of the rule, out of the manifest.
fn rule() -> Regex {
    let definition = serde_json::to_value(&longshore_crds::manifests().unwrap()[0]).unwrap();
    let rule = definition
        .pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/tools/properties/include/items")
        .and_then(|items| items.pointer("/x-kubernetes-validations/0/rule"))
        .and_then(Value::as_str)
        .unwrap();
    let expression = rule.strip_prefix("self.matches(r'").and_then(|rule| rule.strip_suffix("')")).unwrap();
    Regex::new(expression).unwrap()
}
