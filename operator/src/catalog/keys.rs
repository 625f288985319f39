//! The API keys of the catalog: a mounted Secret, of the same form as those of servers.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use k8s_openapi::ByteString;
use longshore_catalog::{KeyRing, Login};
use longshore_sidecar::log::sentence;
use tokio::time::sleep;

use crate::api_keys::ParsedKeys;

/// How often the files are looked at: what a revoked key may still do, beside the kubelet's own delay.
const PERIOD: Duration = Duration::from_secs(1);
/// A Secret is not longer.
const LONGEST: u64 = 1 << 20;

/// Keys that follow their files.
pub(super) struct KeyFiles {
    directory: PathBuf,
    ring: Arc<ArcSwap<KeyRing>>,
    read: ParsedKeys,
}

impl KeyFiles {
    /// Reads them for the first time.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let read = read(directory)?;
        report(&read);
        let ring = Arc::new(ArcSwap::from_pointee(KeyRing::new(&read.keys)));
        Ok(Self { directory: directory.to_owned(), ring, read })
    }

    /// Lets in whoever has one of them.
    pub(super) fn login(&self) -> Login {
        Login::Keys(self.ring.clone())
    }

    /// Exchanges the keys whenever the files change. Files that cannot be read leave the keys as they are.
    pub(super) async fn follow(mut self) -> Infallible {
        let mut complained = false;
        loop {
            sleep(PERIOD).await;
            match read(&self.directory) {
                Ok(read) => {
                    complained = false;
                    if read != self.read {
                        report(&read);
                        self.ring.store(Arc::new(KeyRing::new(&read.keys)));
                        self.read = read;
                    }
                }
                Err(error) if !complained => {
                    complained = true;
                    tracing::warn!(
                        error = sentence(&error),
                        "cannot read the API keys again; those that were read stay"
                    );
                }
                Err(_) => {}
            }
        }
    }
}

/// Every file is a principal. Names that begin with two dots are the kubelet's own; with one, people may have them.
fn read(directory: &Path) -> io::Result<ParsedKeys> {
    let mut data = BTreeMap::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.starts_with("..") {
            continue;
        }
        let mut bytes = Vec::new();
        File::open(entry.path())?.take(LONGEST).read_to_end(&mut bytes)?;
        data.insert(name, ByteString(bytes));
    }
    Ok(ParsedKeys::from_data(&data))
}

fn report(read: &ParsedKeys) {
    tracing::info!(keys = read.keys.len(), "read the API keys");
    if read.keys.is_empty() {
        // The kubelet takes the files away with their Secret.
        tracing::warn!(
            "there are no API keys, so nobody may read the catalog: is there a Secret with its keys?"
        );
    }
    for problem in &read.problems {
        tracing::warn!("the Secret with the catalog's API keys: {problem}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kubelet mounts a Secret: links through a directory that it exchanges.
    #[test]
    fn reads_a_mounted_secret() {
        let folder = std::env::temp_dir().join(format!("longshore-catalog-keys-{}", std::process::id()));
        let version = folder.join("..2026_01_01");
        std::fs::create_dir_all(&version).unwrap();
        std::os::unix::fs::symlink("..2026_01_01", folder.join("..data")).unwrap();
        for name in ["ada", ".bob"] {
            std::fs::write(version.join(name), format!("a-plain-key-of-{name}\n")).unwrap();
            std::os::unix::fs::symlink(format!("..data/{name}"), folder.join(name)).unwrap();
        }
        let keys = KeyFiles::open(&folder).unwrap();
        for name in ["ada", ".bob"] {
            assert_eq!(keys.ring.load().principal(&format!("a-plain-key-of-{name}")), Some(name));
        }
        // And one that is not there.
        for name in ["ada", ".bob"] {
            std::fs::remove_file(folder.join(name)).unwrap();
        }
        assert!(KeyFiles::open(&folder).unwrap().ring.load().is_empty());
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(KeyFiles::open(&folder).is_err());
    }
}
