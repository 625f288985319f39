//! What there is to read.

use std::sync::atomic::Ordering;

use longshore_mcp::revision::Revision;
use serde_json::{Value, json};

use crate::answer::with_title;
use crate::call::Call;
use crate::failure::Failure;
use crate::server::Server;
use crate::tools::content::PNG;

const TEXT: &str = "test://static-text";
const BINARY: &str = "test://static-binary";
const WATCHED: &str = "test://watched-resource";
const EXTRA: &str = "test://extra-resource";
const TEMPLATE: (&str, &str) = ("test://template/", "/data");

/// Every resource.
pub(crate) fn list(server: &Server) -> Vec<Value> {
    let mut all = vec![
        entry(server, TEXT, "static-text", "A text", "text/plain"),
        entry(server, BINARY, "static-binary", "An image", "image/png"),
        entry(server, WATCHED, "watched-resource", "A text to subscribe to", "text/plain"),
    ];
    if server.extra_resource.load(Ordering::Relaxed) {
        all.push(entry(server, EXTRA, "extra-resource", "A text that comes and goes", "text/plain"));
    }
    all
}

/// Every template.
pub(crate) fn templates(revision: Revision) -> Vec<Value> {
    let template = json!({
        "uriTemplate": format!("{}{{id}}{}", TEMPLATE.0, TEMPLATE.1),
        "name": "template",
        "description": "Data by its id",
        "mimeType": "application/json",
    });
    vec![with_title(template, revision, "Data")]
}

/// Reads one.
pub(crate) fn read(call: &Call, uri: &str) -> Result<Value, Failure> {
    let text = |mime: &str, text: String| json!({"uri": uri, "mimeType": mime, "text": text});
    let content = match uri {
        TEXT => text("text/plain", "This is the content of the static text resource.".into()),
        BINARY => json!({"uri": uri, "mimeType": "image/png", "blob": PNG}),
        WATCHED => text("text/plain", "Watch this.".into()),
        EXTRA if call.server.extra_resource.load(Ordering::Relaxed) => text("text/plain", "Here.".into()),
        _ => match id(uri) {
            Some(id) => {
                let data = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
                text("application/json", data.to_string())
            }
            None => return Err(Failure::resource(uri)),
        },
    };
    Ok(json!({"contents": [content]}))
}

/// Whether there is such a resource.
pub(crate) fn exists(server: &Server, uri: &str) -> bool {
    id(uri).is_some() || list(server).iter().any(|resource| resource["uri"] == uri)
}

fn id(uri: &str) -> Option<&str> {
    let id = uri.strip_prefix(TEMPLATE.0)?.strip_suffix(TEMPLATE.1)?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

fn entry(server: &Server, uri: &str, name: &str, description: &str, mime: &str) -> Value {
    let entry = json!({"uri": uri, "name": name, "description": description, "mimeType": mime});
    with_title(entry, server.revision, description)
}
