//! Reads manifests from files: `McpServer`s, and the Secrets and ConfigMaps that they may name.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use longshore_crds::{GROUP, McpServer};
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use super::ServerId;
use crate::reasons::sentence;

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 4 * 1024 * 1024;
/// How many files of a folder are read.
const MAX_FILES: usize = 1024;
/// The namespace of what names none, as with kubectl.
const DEFAULT_NAMESPACE: &str = "default";
/// The data of a Secret or ConfigMap.
pub(super) type Data = BTreeMap<String, ByteString>;

/// Each file with its time, its size and its number. `None`: it is not there.
pub(super) type Fingerprint = Vec<(PathBuf, Option<(SystemTime, u64, u64)>)>;

/// Everything that the files say.
#[derive(Clone, Debug, Default)]
pub(super) struct Documents {
    /// The servers, in the order of the files.
    pub(super) servers: Vec<FoundServer>,
    /// By namespace and name.
    pub(super) secrets: BTreeMap<(String, String), Data>,
    /// By namespace and name.
    pub(super) config_maps: BTreeMap<(String, String), Data>,
    /// Why some files that nobody asked for are not among them. They may be about something else altogether, so it is worth
    /// a word only where something is missed.
    pub(super) unread: Vec<String>,
}

/// A server's manifest.
#[derive(Clone, Debug)]
pub(super) struct FoundServer {
    /// Which server.
    pub(super) id: ServerId,
    /// What its owner wrote.
    pub(super) manifest: Box<McpServer>,
    /// The folder of the file, in which its programs start.
    pub(super) folder: PathBuf,
}

/// A file, or a document in it, cannot be used.
#[derive(Debug, Error)]
pub(super) enum ManifestError {
    /// It cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is too large.
    #[error("{path} has more than {MAX_FILE} bytes, which no manifest has")]
    Large {
        /// Which.
        path: PathBuf,
    },
    /// A folder has too many.
    #[error("{path} has more than {MAX_FILES} manifests: name a folder that has fewer")]
    Many {
        /// Which.
        path: PathBuf,
    },
    /// It is neither YAML nor JSON.
    #[error("{path} is not {format}: {message}")]
    Syntax {
        /// Which.
        path: PathBuf,
        /// What its name says that it is.
        format: &'static str,
        /// What is wrong, and where.
        message: String,
    },
    /// A document is not what its kind says.
    #[error("{path}: {kind} {name}: {message}")]
    Document {
        /// Which.
        path: PathBuf,
        /// What it says that it is.
        kind: String,
        /// Its name.
        name: String,
        /// What is wrong, and in which field.
        message: String,
    },
    /// Two documents are about one object.
    #[error("{path}: {kind} {namespace}/{name} is in another file or document too: keep one of them")]
    Twice {
        /// The second one.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// There is nothing to serve.
    #[error("there is no McpServer in {0}")]
    NoServer(String),
}

/// Reads files again and again, and keeps what a file said last when it cannot be read any longer.
#[derive(Debug)]
pub(super) struct Reader {
    paths: Vec<PathBuf>,
    good: BTreeMap<PathBuf, Vec<Document>>,
    /// The file from which each object was taken last: it stays the one if another has that object too.
    taken_from: BTreeMap<Object, PathBuf>,
}

/// What a document is about: kind, namespace and name.
type Object = (&'static str, String, String);

/// A document that matters here.
#[derive(Clone, Debug)]
struct Document {
    namespace: String,
    name: String,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Server(Box<McpServer>),
    Secret(Data),
    ConfigMap(Data),
}

/// What is taken from a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Take {
    All,
    /// Secrets and ConfigMaps: the file was not asked for, it is beside one that was.
    References,
}

// === impl Document ===

impl Document {
    fn object(&self) -> Object {
        (self.content.kind(), self.namespace.clone(), self.name.clone())
    }
}

// === impl Content ===

impl Content {
    fn kind(&self) -> &'static str {
        match self {
            Self::Server(_) => "McpServer",
            Self::Secret(_) => "Secret",
            Self::ConfigMap(_) => "ConfigMap",
        }
    }
}

// === impl Reader ===

impl Reader {
    /// Of these files and folders.
    pub(super) fn new(paths: Vec<PathBuf>) -> Self {
        Self { paths, good: BTreeMap::new(), taken_from: BTreeMap::new() }
    }

    /// Reads them, and says what cannot be used.
    pub(super) fn read(&mut self) -> (Documents, Vec<ManifestError>) {
        let mut problems = Vec::new();
        let mut documents = Documents::default();
        let before = self.good.clone();
        let files = self.files(&mut problems, &mut documents.unread);
        self.good.retain(|path, _| files.iter().any(|(file, _)| file == path));
        let mut found: Vec<(Object, PathBuf, Take, Document)> = Vec::new();
        for (path, take) in files {
            match parse(&path, take) {
                Ok(documents) => {
                    self.good.insert(path.clone(), documents);
                }
                Err(error) if take == Take::References => documents.unread.push(sentence(&error)),
                Err(error) => problems.push(error),
            }
            for document in self.good.get(&path).into_iter().flatten().cloned() {
                found.push((document.object(), path.clone(), take, document));
            }
        }
        let stays = |(object, path, take, _): &&(Object, PathBuf, Take, Document)| {
            *take == Take::All && self.taken_from.get(object) == Some(path)
        };
        let staying: BTreeMap<Object, PathBuf> =
            found.iter().filter(stays).map(|(object, path, ..)| (object.clone(), path.clone())).collect();
        let mut taken_from = BTreeMap::new();
        for (object, path, take, document) in found {
            let Document { namespace, name, content } = document;
            let is_elsewhere = staying.get(&object).is_some_and(|stays| *stays != path);
            if is_elsewhere || taken_from.contains_key(&object) {
                // A file that nobody asked for only adds what is not in those that were.
                if take == Take::All {
                    problems.push(ManifestError::Twice { path, kind: object.0, namespace, name });
                }
                continue;
            }
            match content {
                Content::Server(manifest) => {
                    let (id, folder) = (ServerId { namespace, name }, folder_of(&path));
                    documents.servers.push(FoundServer { id, manifest, folder });
                }
                Content::Secret(data) => {
                    documents.secrets.insert((namespace, name), data);
                }
                Content::ConfigMap(data) => {
                    documents.config_maps.insert((namespace, name), data);
                }
            }
            taken_from.insert(object, path);
        }
        if documents.servers.is_empty() {
            // An editor may have emptied a file for a moment.
            self.good = before;
            if problems.is_empty() {
                let paths: Vec<_> = self.paths.iter().map(|path| path.display().to_string()).collect();
                problems.push(ManifestError::NoServer(paths.join(", ")));
            }
        } else {
            self.taken_from = taken_from;
        }
        (documents, problems)
    }

    /// What tells that a file has changed: all files, with their times and sizes.
    pub(super) fn fingerprint(&self) -> Fingerprint {
        use std::os::unix::fs::MetadataExt as _;
        let files = self.files(&mut Vec::new(), &mut Vec::new());
        let look = |path: PathBuf| {
            let found = std::fs::metadata(&path).ok();
            let print = found.and_then(|it| Some((it.modified().ok()?, it.len(), it.ino())));
            (path, print)
        };
        files.into_iter().map(|(path, _)| look(path)).collect()
    }

    /// The files that were in this folder.
    fn known_in(&self, folder: &Path) -> Vec<PathBuf> {
        // What is in it comes right after it.
        let after = self.good.range::<Path, _>((Bound::Excluded(folder), Bound::Unbounded));
        after.map(|(file, _)| file).take_while(|file| file.starts_with(folder)).cloned().collect()
    }

    /// The files to read: those asked for, and beside them those that may hold Secrets and ConfigMaps. This is done four times
    /// a second: each file is looked up once.
    fn files(&self, problems: &mut Vec<ManifestError>, unread: &mut Vec<String>) -> Vec<(PathBuf, Take)> {
        let mut files: Vec<(PathBuf, Take)> = Vec::new();
        let mut known = BTreeSet::new();
        let mut add = |found: Vec<PathBuf>, take| {
            let new = found.into_iter().filter(|file| known.insert(real(file)));
            files.extend(new.map(|file| (file, take)));
        };
        let (mut folders, mut known_folders) = (Vec::new(), BTreeSet::new());
        for path in &self.paths {
            if path.is_dir() {
                match manifests_in(path) {
                    Ok(found) => add(found, Take::All),
                    Err(error) => {
                        problems.push(error);
                        add(self.known_in(path), Take::All);
                    }
                }
                continue;
            }
            let inside = self.known_in(path);
            if inside.is_empty() {
                add(vec![path.clone()], Take::All);
                let folder = folder_of(path);
                if known_folders.insert(folder.clone()) {
                    folders.push(folder);
                }
            } else {
                // A folder that is away for a moment, or for good: its servers end when it is there with others.
                add(inside, Take::All);
            }
        }
        for folder in folders {
            match manifests_in(&folder) {
                Ok(found) => add(found, Take::References),
                Err(error) => unread.push(sentence(&error)),
            }
        }
        files
    }
}

/// What tells a file from others, by whatever path it is named.
fn real(file: &Path) -> PathBuf {
    file.canonicalize().unwrap_or_else(|_| file.to_owned())
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The manifests of a folder, by name. Not of folders in it.
fn manifests_in(folder: &Path) -> Result<Vec<PathBuf>, ManifestError> {
    let unreadable = |source| ManifestError::Read { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let manifest = path.extension().is_some_and(|it| it == "yaml" || it == "yml" || it == "json");
        if manifest && !hidden && path.is_file() {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            return Err(ManifestError::Many { path: folder.to_owned() });
        }
    }
    files.sort();
    Ok(files)
}

fn parse(path: &Path, take: Take) -> Result<Vec<Document>, ManifestError> {
    let unreadable = |source| ManifestError::Read { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(unreadable)?.len() > MAX_FILE {
        return Err(ManifestError::Large { path: path.to_owned() });
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    let json = path.extension().is_some_and(|extension| extension == "json");
    let wrong = |format, message| ManifestError::Syntax { path: path.to_owned(), format, message };
    let values: Vec<Value> = if json {
        vec![serde_json::from_str(&text).map_err(|error| wrong("JSON", error.to_string()))?]
    } else {
        serde_saphyr::from_multiple(&text).map_err(|error| wrong("YAML", yaml_words(&error.to_string())))?
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
