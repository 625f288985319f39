//! docs/fields.md is what the types say.

use std::fmt::Write as _;
use std::{env, fs, path::PathBuf};

use serde_json::Value;

use crate::UPDATE;

const HEAD: &str = "\
# Every field of an `McpServer`

As `kubectl explain mcpserver.spec` has them, one level at a time, where the chart is installed. `[]` is each entry of a list. Fields below
those that are a pod's own (`env`, `volumes`, `tolerations` and their like) are as in a pod.
";

#[test]
fn the_page_has_every_field() {
    let definition = serde_json::to_value(longshore_crds::manifests().unwrap()).unwrap();
    let schema = &definition[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    let mut page = HEAD.to_owned();
    for part in ["spec", "status"] {
        write!(page, "\n## {part}\n\n| field | is | default | |\n|---|---|---|---|\n").unwrap();
        rows(part, &schema[part], &mut page);
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/fields.md");
    if env::var_os(UPDATE).is_some() {
        fs::write(&path, &page).unwrap();
    }
    let copy = fs::read_to_string(&path).unwrap_or_default();
    assert!(copy == page, "docs/fields.md is not what the types say: run `make crds`");
}

/// Those of an object, each with those below it. What is Kubernetes' own has no description in the schema.
fn rows(path: &str, object: &Value, page: &mut String) {
    let required: Vec<&str> =
        object["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in object["properties"].as_object().into_iter().flatten() {
        let Some(about) = field["description"].as_str() else { continue };
        let path = format!("{path}.{name}");
        let default = match &field["default"] {
            _ if required.contains(&&**name) => "**required**".to_owned(),
            // Those of what is in it are in rows of their own.
            Value::Null | Value::Object(_) | Value::Array(_) => String::new(),
            Value::String(text) => format!("`{text}`"),
            other => format!("`{other}`"),
        };
        let about = about.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
        writeln!(page, "| `{path}` | {} | {default} | {about} |", kind(field)).unwrap();
        rows(&path, field, page);
        rows(&format!("{path}[]"), &field["items"], page);
    }
}

/// What a field is: one of these texts, or of this type.
fn kind(field: &Value) -> String {
    let of = |schema: &Value| schema["type"].as_str().unwrap_or("any").to_owned();
    match (&field["enum"], field["type"].as_str()) {
        (Value::Array(texts), _) => {
            let texts: Vec<String> =
                texts.iter().filter_map(Value::as_str).map(|text| format!("`{text}`")).collect();
            texts.join(", ")
        }
        (_, Some("array")) => format!("array of {}", of(&field["items"])),
        _ if field["x-kubernetes-int-or-string"] == true => "integer or string".to_owned(),
        _ => of(field),
    }
}
