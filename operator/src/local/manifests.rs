//! Reads manifests from files: `McpServer`s, and the Secrets and ConfigMaps that they may name.

mod parse;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use k8s_openapi::ByteString;
use longshore_crds::McpServer;
use longshore_sidecar::log::sentence;
use thiserror::Error;

use super::ServerId;
use parse::parse;

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 4 * 1024 * 1024;
/// How many files of a folder are read.
const MAX_FILES: usize = 1024;
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
        /// It has the word that every manifest has.
        is_manifest: bool,
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
                Err(error) if take == Take::References || self.is_of_others(&path, &error) => {
                    documents.unread.push(sentence(&error));
                }
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

    /// Whether what is wrong with a file is nobody's business here: one of a folder that no manifest can be, and that was none
    /// before. A folder with a program in it has such files, too.
    fn is_of_others(&self, path: &Path, error: &ManifestError) -> bool {
        let is_no_manifest = match error {
            ManifestError::Large { .. } => true,
            ManifestError::Syntax { is_manifest, .. } => !is_manifest,
            _ => false,
        };
        is_no_manifest
            && self.good.get(path).is_none_or(Vec::is_empty)
            && !self.paths.iter().any(|asked| real(asked) == real(path))
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
