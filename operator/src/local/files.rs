//! The private folder of a run: the sidecars' files, and the sockets of the shims.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use longshore_sidecar_config::paths;

use super::plan::Files;

/// The longest path in which there is room for `/NUMBER/sockets/NAME`, where a socket's path has 107 bytes at most.
const LONGEST_ROOT: usize = 107 - 32;

/// Removed with all that is in it at the end.
pub(super) struct Folder {
    root: tempfile::TempDir,
    made: usize,
}

/// The folders of one server.
#[derive(Clone, Debug)]
pub(super) struct Place {
    root: PathBuf,
}

impl Folder {
    /// In the user's own runtime directory where there is one, which is in memory, or else among temporary files.
    pub(super) fn new() -> io::Result<Self> {
        let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|it| it.is_absolute());
        Self::within(own.into_iter().chain([std::env::temp_dir(), PathBuf::from("/tmp")]))
    }

    /// In the first of these in which sockets can have their names: the kernel keeps those short.
    fn within(folders: impl IntoIterator<Item = PathBuf>) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix("longshore-").permissions(std::fs::Permissions::from_mode(0o700));
        let mut refusal = io::Error::other("the path is too long for sockets: set TMPDIR to a shorter one");
        for folder in folders {
            match builder.tempdir_in(folder) {
                Ok(root) if root.path().as_os_str().len() <= LONGEST_ROOT => {
                    return Ok(Self { root, made: 0 });
                }
                Ok(_) => {}
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }

    /// Room for one more server.
    pub(super) fn place(&mut self) -> io::Result<Place> {
        self.made += 1;
        let place = Place { root: self.root.path().join(self.made.to_string()) };
        for folder in [place.config(), place.keys(), place.sockets(), place.proc().join("net")] {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        // The sidecar looks in the kernel's tables for ways around it. Here all of the machine would be such ways, and
        // is none of its business: the tables are empty.
        std::fs::write(place.proc().join("net/tcp"), "")?;
        Ok(place)
    }
}

impl Place {
    /// The sidecar's `config_dir`.
    pub(super) fn config(&self) -> PathBuf {
        self.root.join("config")
    }

    /// Its `keys_dir`.
    pub(super) fn keys(&self) -> PathBuf {
        self.root.join("keys")
    }

    /// Its `sockets_dir`.
    pub(super) fn sockets(&self) -> PathBuf {
        self.root.join("sockets")
    }

    /// Its `proc_dir`.
    pub(super) fn proc(&self) -> PathBuf {
        self.root.join("proc")
    }

    /// Where the shim listens.
    pub(super) fn socket(&self) -> PathBuf {
        self.sockets().join(paths::STDIO_SOCKET)
    }

    /// Puts the files there, each whole. The keys first: the configuration names them.
    pub(super) fn write(&self, files: &Files) -> io::Result<()> {
        put(&self.keys(), paths::KEYS_FILE, &files.keys)?;
        put(&self.config(), paths::CONFIG_FILE, &files.config)
    }

    /// Removes all of it. The sidecar's watch over it ends with it.
    pub(super) fn remove(self) -> io::Result<()> {
        std::fs::remove_dir_all(self.root)
    }
}

fn put(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let unfinished = folder.join(format!(".{name}"));
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(bytes)?;
    drop(file);
    std::fs::rename(unfinished, folder.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_where_sockets_can_be() {
        let short = tempfile::tempdir_in("/tmp").unwrap();
        let long = short.path().join("x".repeat(100));
        std::fs::create_dir(&long).unwrap();
        assert!(Folder::within([long.clone()]).is_err());
        let gone = short.path().join("gone");
        let mut folder = Folder::within([gone, long, short.path().to_owned()]).unwrap();
        let socket = folder.place().unwrap().socket();
        assert!(socket.starts_with(short.path()), "{}", socket.display());
        std::os::unix::net::UnixListener::bind(socket).unwrap();
    }
}
