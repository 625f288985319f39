//! From the text of a file to objects.

use std::path::Path;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use longshore_crds::{GROUP, McpServer};
use serde::Deserialize;
use serde_json::Value;

use super::{Content, Document, MAX_FILE, ManifestError, Take};

/// The namespace of what names none, as with kubectl.
const DEFAULT_NAMESPACE: &str = "default";

pub(super) fn parse(path: &Path, take: Take) -> Result<Vec<Document>, ManifestError> {
    let unreadable = |source| ManifestError::Read { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(unreadable)?.len() > MAX_FILE {
        return Err(ManifestError::Large { path: path.to_owned() });
    }
    let text = std::fs::read(path).map_err(unreadable)?;
    let json = path.extension().is_some_and(|extension| extension == "json");
    let format = if json { "JSON" } else { "YAML" };
    let wrong = |message| {
        let is_manifest = is_manifest(&text);
        ManifestError::Syntax { path: path.to_owned(), format, message, is_manifest }
    };
    let text = std::str::from_utf8(&text).map_err(|_| wrong("it is not in UTF-8".to_owned()))?;
    let values: Vec<Value> = if json {
        vec![serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?]
    } else {
        serde_saphyr::from_multiple(text).map_err(|error| wrong(yaml_words(&error.to_string())))?
    };
    let mut documents = Vec::new();
    for value in values {
        let items = match value.get("items").and_then(Value::as_array) {
            Some(items) if text_of(&value, "kind").ends_with("List") => items.clone(),
            _ => vec![value],
        };
        for value in items {
            if let Some(document) = read(path, value, take)? {
                documents.push(document);
            }
        }
    }
    Ok(documents)
}

/// Whether a text that cannot be read has the word that every manifest has.
fn is_manifest(text: &[u8]) -> bool {
    // In UTF-16 there is a zero beside each letter.
    String::from_utf8_lossy(text).replace('\0', "").contains("apiVersion")
}

/// What a document says, if it is of a kind that matters here.
fn read(path: &Path, value: Value, take: Take) -> Result<Option<Document>, ManifestError> {
    let (group, kind) = (text_of(&value, "apiVersion").to_owned(), text_of(&value, "kind").to_owned());
    let name = value.get("metadata").map_or("", |it| text_of(it, "name")).to_owned();
    let wrong = |message: String| ManifestError::Document {
        path: path.to_owned(),
        kind: kind.clone(),
        name: name.clone(),
        message,
    };
    let found = |given: Option<String>, content: Content| {
        Ok(Some(Document { namespace: namespace(given), name: name.clone(), content }))
    };
    match (group.as_str(), kind.as_str()) {
        ("v1", "Secret") => {
            let secret = Secret::deserialize(value).map_err(|error| wrong(error.to_string()))?;
            let mut data = secret.data.unwrap_or_default();
            for (name, text) in secret.string_data.unwrap_or_default() {
                data.insert(name, ByteString(text.into_bytes()));
            }
            found(secret.metadata.namespace, Content::Secret(data))
        }
        ("v1", "ConfigMap") => {
            let map = ConfigMap::deserialize(value).map_err(|error| wrong(error.to_string()))?;
            let mut data = map.binary_data.unwrap_or_default();
            for (name, text) in map.data.unwrap_or_default() {
                data.insert(name, ByteString(text.into_bytes()));
            }
            found(map.metadata.namespace, Content::ConfigMap(data))
        }
        (api_version, "McpServer") if take == Take::All => {
            let known = <McpServer as kube::Resource>::api_version(&());
            if api_version != known {
                return Err(wrong(format!("apiVersion: write `{known}`, not {api_version:?}")));
            }
            let mut manifest = strict(value).map_err(wrong)?;
            let namespace = namespace(manifest.metadata.namespace.take());
            manifest.metadata.namespace = Some(namespace.clone());
            found(Some(namespace), Content::Server(Box::new(manifest)))
        }
        (_, other) if take == Take::All && group.starts_with(GROUP) => {
            Err(wrong(format!("kind: there is no {other:?} of {GROUP}; write `McpServer`")))
        }
        _ => Ok(None),
    }
}

/// Reads a server, and refuses fields that there are not: they would be mistakes that nobody notices.
fn strict(mut value: Value) -> Result<McpServer, String> {
    // They have been read, and are no fields of the type.
    if let Value::Object(fields) = &mut value {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    let mut unknown = Vec::new();
    let mut track = serde_path_to_error::Track::new();
    let mut note = |path: serde_ignored::Path<'_>| unknown.push(path.to_string().replace(".?", ""));
    let reader = serde_path_to_error::Deserializer::new(value, &mut track);
    let server = McpServer::deserialize(serde_ignored::Deserializer::new(reader, &mut note));
    let server = server.map_err(|error| format!("{}: {error}", track.path()))?;
    match unknown.first() {
        None => Ok(server),
        Some(field) => {
            Err(format!("{field}: there is no such field; `longshore crds` has all that there are"))
        }
    }
}

fn namespace(given: Option<String>) -> String {
    given.filter(|it| !it.is_empty()).unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned())
}

fn text_of<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The reader's words about a file, without its advice for programs.
fn yaml_words(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.split(", set DuplicateKeyPolicy").next().unwrap_or_default().to_owned()
}
