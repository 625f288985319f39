//! From bytes on disk to a [`Snapshot`], or to the reason why not. The only I/O is reading the two files.

use std::io;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{self, SHA256};
use longshore_mcp::revision::Revision;
use longshore_sessions::Keyring;
use longshore_sessions::keys::{KeyringError, Secret};
use longshore_sidecar_config::inventory::Short;
use longshore_sidecar_config::{Auth, CONTRACT_VERSION, Config, Keys, Processes, Upstream, paths};
use thiserror::Error;

use super::{Hosts, Snapshot};
use crate::access::{Access, PatternError};
use crate::authenticate::{Authenticator, KeyError, Revoked, bytes_of};
use crate::inventory::readers::{Readers, ReadersError};
use crate::peers::{Replicas, TlsError};

/// Why the files give no configuration. The texts name no key and no hash.
#[derive(Debug, Error)]
pub(crate) enum LoadError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is not a configuration of this version: {message}")]
    Config { path: PathBuf, message: String },
    #[error("{path} has contract version {found}, and this sidecar reads {CONTRACT_VERSION}")]
    Version { path: PathBuf, found: u32 },
    #[error("{path} does not belong to this configuration yet: waiting for the one that it names")]
    KeysPending { path: PathBuf },
    #[error("{path} is not a list of keys (line {line}, column {column})")]
    Keys { path: PathBuf, line: usize, column: usize },
    #[error("a key of {path} cannot be used")]
    Key { path: PathBuf, source: KeyError },
    #[error("a rule cannot be used")]
    Pattern(#[from] PatternError),
    #[error("the readers of the inventory cannot be checked")]
    Readers(#[from] ReadersError),
    #[error("session key {id} of {path} is not 64 lower-case hexadecimal digits")]
    Secret { path: PathBuf, id: u8 },
    #[error("the session keys of {path} cannot be used")]
    Keyring { path: PathBuf, source: KeyringError },
    #[error("the keys between replicas cannot be used")]
    Replicas(#[from] TlsError),
    #[error("the path of the server has to begin with \"/\" and be a path: {0:?}")]
    Path(String),
    #[error("there is no revision {name:?} of MCP: write one of {known}", known = Revision::ALL.map(Revision::as_str).join(", "))]
    Protocol { name: String },
    #[error(
        "a server over stdio needs limits.processes: at least 1 for a principal, and no more than in all"
    )]
    Processes,
}

impl LoadError {
    /// Whether this is only a moment between two mounts that belong together, not a mistake.
    pub(crate) fn is_pending(&self) -> bool {
        matches!(self, Self::KeysPending { .. })
    }

    /// Whether there is no configuration at all.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// `sha256:` and the digest of the bytes.
pub(crate) fn digest(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(71);
    text.push_str("sha256:");
    for byte in digest::digest(&SHA256, bytes).as_ref() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Reads the two files, and compiles them if they are not what is running.
pub(crate) fn load(
    config_dir: &Path,
    keys_dir: &Path,
    running: Option<&Snapshot>,
) -> Result<Option<Snapshot>, LoadError> {
    let path = config_dir.join(paths::CONFIG_FILE);
    let keys_path = keys_dir.join(paths::KEYS_FILE);
    let bytes = read(&path)?;
    let digest = digest(&bytes);
    if let Some(running) = running.filter(|running| running.digest == digest) {
        // The keys may have changed all the same, and then do not belong to it.
        read_keys(&keys_path, &running.config.keys_digest)?;
        return Ok(None);
    }
    let config = parse(&path, &bytes)?;
    let keys = read_keys(&keys_path, &config.keys_digest)?;
    let snapshot = compile(config, digest, keys, keys_dir)?;
    let revoked = running.map_or_else(Revoked::default, |running| {
        Revoked::since(&running.revoked, &running.authenticator, &snapshot.authenticator)
    });
    Ok(Some(Snapshot { revoked, ..snapshot }))
}

fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    std::fs::read(path).map_err(|source| LoadError::Read { path: path.to_owned(), source })
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Config, LoadError> {
    // The version first: a newer file may have fields that would be the first thing to complain about.
    #[derive(serde::Deserialize)]
    struct Version {
        version: u32,
    }
    let unreadable =
        |error: serde_json::Error| LoadError::Config { path: path.to_owned(), message: error.to_string() };
    let Version { version } = serde_json::from_slice(bytes).map_err(unreadable)?;
    if version != CONTRACT_VERSION {
        return Err(LoadError::Version { path: path.to_owned(), found: version });
    }
    serde_json::from_slice(bytes).map_err(unreadable)
}

fn read_keys(path: &Path, expected: &str) -> Result<Keys, LoadError> {
    let bytes = match read(path) {
        Err(LoadError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Err(LoadError::KeysPending { path: path.to_owned() });
        }
        other => other?,
    };
    if digest(&bytes) != expected {
        return Err(LoadError::KeysPending { path: path.to_owned() });
    }
    // Only the position: serde's own message may quote a value, and the values are secrets.
    serde_json::from_slice(&bytes).map_err(|error| LoadError::Keys {
        path: path.to_owned(),
        line: error.line(),
        column: error.column(),
    })
}

/// The part without I/O.
fn compile(config: Config, digest: String, keys: Keys, keys_dir: &Path) -> Result<Snapshot, LoadError> {
    match &config.upstream {
        Upstream::StreamableHttp { path, .. } | Upstream::Sse { path, .. } => {
            if !path.starts_with('/') || path.parse::<http::uri::PathAndQuery>().is_err() {
                return Err(LoadError::Path(path.clone()));
            }
        }
        Upstream::Stdio {} => match config.limits.processes {
            Some(Processes { total, per_principal, .. }) if per_principal >= 1 && per_principal <= total => {}
            _ => return Err(LoadError::Processes),
        },
    }
    let named =
        |name: &String| Revision::parse(name).ok_or_else(|| LoadError::Protocol { name: name.clone() });
    let protocol = config.protocol.as_ref().map(named).transpose()?;
    let access = Access::compile(&config.access, &config.tools)?;
    let authenticator = match config.auth {
        Auth::None => Authenticator::anonymous(&access),
        Auth::ApiKeys {} => Authenticator::api_keys(&keys, &access)
            .map_err(|source| LoadError::Key { path: keys_dir.join(paths::KEYS_FILE), source })?,
    };
    let keyring = keyring(&config, &keys, keys_dir)?;
    let peers = config.peers.as_ref();
    let replicas = peers.map(|peers| Replicas::new(&peers.service, &keyring)).transpose()?;
    Ok(Snapshot {
        short: Short::default(),
        protocol,
        digest,
        server: format!("{}/{}", config.server.namespace, config.server.name).into(),
        revoked: Revoked::default(),
        authenticator,
        access,
        hosts: Hosts::new(&config.hosts, &config.allowed_origins),
        readers: Readers::compile(&config.inventory)?,
        keyring,
        replicas,
        config,
    })
}

fn keyring(config: &Config, keys: &Keys, keys_dir: &Path) -> Result<Keyring, LoadError> {
    let path = || keys_dir.join(paths::KEYS_FILE);
    let secrets = keys.sessions.iter().map(|key| {
        let bytes = bytes_of(&key.secret).ok_or_else(|| LoadError::Secret { path: path(), id: key.id })?;
        Ok(Secret { id: key.id, bytes })
    });
    let secrets = secrets.collect::<Result<Vec<_>, LoadError>>()?;
    Keyring::new(&config.server.uid, secrets, config.sessions.seal_with)
        .map_err(|source| LoadError::Keyring { path: path(), source })
}
