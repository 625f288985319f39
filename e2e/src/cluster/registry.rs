//! The clusters of this machine: one folder each. Whoever runs a cluster holds a lock in its folder, and the kernel
//! drops locks of the dead: so what nobody holds is litter, and the next start sweeps it up.

use std::fs::{self, File, TryLockError};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use super::cgroups;
use super::spec::{Plan, Shape, Spec};
use crate::checkout;

/// Why a cluster got no place.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The name is taken.
    #[error("a cluster named {0} is running")]
    Taken(String),
    /// The name does not fit where names go.
    #[error(
        "{0:?} is no name for a cluster: lower-case letters, digits and dashes, at most 40, beginning with a letter"
    )]
    Name(String),
    /// What an earlier one of that name has left is in the way.
    #[error("cannot remove what an earlier cluster has left in {folder}: end what still uses it")]
    Left {
        /// The folder of that cluster.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The folder could not be read or written.
    #[error("cannot keep clusters in {folder}")]
    Folder {
        /// The folder of all clusters.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A place for a cluster. As long as it is held, nobody sweeps the cluster up.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) spec: Spec,
    _lock: File,
}

/// Sweeps up what the dead have left, and gives a new cluster its place.
pub(crate) fn claim(plan: Plan) -> Result<Claim, RegistryError> {
    let folder = folder();
    if let Some(name) = &plan.name {
        check_name(name)?;
    }
    let failed = |source| RegistryError::Folder { folder: folder.clone(), source };
    fs::create_dir_all(&folder).map_err(failed)?;
    // From here on nobody else looks for a place.
    let all = File::create(folder.join(".lock")).map_err(failed)?;
    all.lock().map_err(failed)?;
    // What one of the dead is still writing to the next start sweeps up.
    let _ = sweep(&folder);
    let living = living(&folder).map_err(failed)?;

    let name = match plan.name {
        Some(name) => name,
        None => random_name().map_err(failed)?,
    };
    let place = vacate(&folder, &name)?;
    let address = match plan.shape {
        Shape::Node => Ipv4Addr::LOCALHOST,
        Shape::Api | Shape::ControlPlane => free_address(&living).map_err(failed)?,
    };
    let spec =
        Spec { name, shape: plan.shape, address, programs: plan.programs, folder: place, pause: plan.pause };
    let lock = establish(&spec).map_err(failed)?;
    Ok(Claim { spec, _lock: lock })
}

/// A place for a cluster of this name, with nothing in it: what could not be swept up would be taken for the new one's.
fn vacate(folder: &Path, name: &str) -> Result<PathBuf, RegistryError> {
    let place = folder.join(name);
    if is_alive(&place) {
        return Err(RegistryError::Taken(name.to_owned()));
    }
    match remove(&place) {
        Ok(()) => Ok(place),
        Err(source) => Err(RegistryError::Left { folder: place, source }),
    }
}

/// Holds a cluster's place from another process of it.
pub(crate) fn hold(folder: &Path) -> io::Result<Claim> {
    let lock = File::open(Spec::lock_file(folder))?;
    lock.lock_shared()?;
    Ok(Claim { spec: Spec::read(folder)?, _lock: lock })
}

impl Claim {
    /// Removes everything that the cluster has left. Its processes must have ended.
    pub(crate) fn release(self) -> io::Result<()> {
        let kept = if self.spec.keep_logs().exists() { keep_logs(&self.spec) } else { Ok(()) };
        remove(&self.spec.folder)?;
        kept
    }
}

/// The cluster of that name, if it runs.
pub(crate) fn find(name: &str) -> io::Result<Option<Spec>> {
    Ok(living(&folder())?.into_iter().find(|spec| spec.name == name))
}

/// Sweeps up what the dead have left.
pub(crate) fn sweep_up() -> io::Result<()> {
    let folder = folder();
    if !folder.is_dir() {
        return Ok(());
    }
    let all = File::create(folder.join(".lock"))?;
    all.lock()?;
    sweep(&folder)
}

/// Where logs go that are wanted after the cluster's end.
pub(crate) fn kept_logs(spec: &Spec) -> PathBuf {
    checkout::root().join("target/e2e-logs").join(&spec.name)
}

/// Where clusters are kept, and how many bytes are free there.
pub(crate) fn room() -> io::Result<(PathBuf, u64)> {
    let folder = folder();
    std::fs::create_dir_all(&folder)?;
    let disk = nix::sys::statvfs::statvfs(&folder)?;
    Ok((folder, disk.blocks_available() * disk.fragment_size()))
}

fn folder() -> PathBuf {
    checkout::cache().join("clusters")
}

/// The name becomes a folder, a cgroup and a word in a kubeconfig.
fn check_name(name: &str) -> Result<(), RegistryError> {
    let starts = name.starts_with(|first: char| first.is_ascii_lowercase());
    let fits =
        name.len() <= 40 && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if starts && fits { Ok(()) } else { Err(RegistryError::Name(name.to_owned())) }
}

fn random_name() -> io::Result<String> {
    let number = getrandom::u32().map_err(|error| io::Error::other(error.to_string()))?;
    Ok(format!("test-{number:08x}"))
}

/// The first loopback address that no living cluster has and nobody else uses.
fn free_address(living: &[Spec]) -> io::Result<Ipv4Addr> {
    (1..=u16::MAX)
        .map(|number| {
            let [high, low] = number.to_be_bytes();
            Ipv4Addr::new(127, 153, high, low)
        })
        .filter(|address| living.iter().all(|other| other.address != *address))
        .find(|address| TcpListener::bind((*address, 6443)).is_ok())
        .ok_or_else(|| io::Error::other("no loopback address is free"))
}

fn establish(spec: &Spec) -> io::Result<File> {
    for folder in ["config", "pki", "state", "log"] {
        fs::create_dir_all(spec.folder.join(folder))?;
    }
    let lock = File::create(Spec::lock_file(&spec.folder))?;
    lock.lock_shared()?;
    fs::write(Spec::file(&spec.folder), serde_json::to_vec_pretty(spec)?)?;
    Ok(lock)
}

fn clusters(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn living(folder: &Path) -> io::Result<Vec<Spec>> {
    let folders = clusters(folder)?;
    Ok(folders
        .iter()
        .filter(|folder| is_alive(folder))
        .filter_map(|folder| Spec::read(folder).ok())
        .collect())
}

fn is_alive(folder: &Path) -> bool {
    let Ok(lock) = File::open(Spec::lock_file(folder)) else { return false };
    matches!(lock.try_lock(), Err(TryLockError::WouldBlock))
}

fn sweep(folder: &Path) -> io::Result<()> {
    let dead = clusters(folder)?.into_iter().filter(|cluster| !is_alive(cluster));
    // One that cannot be removed is no reason to leave the others.
    dead.map(|cluster| remove(&cluster)).fold(Ok(()), Result::and)
}

fn remove(cluster: &Path) -> io::Result<()> {
    // Its cgroups carry its name; a cluster that never got as far as a file has none.
    if let Ok(spec) = Spec::read(cluster)
        && spec.shape == Shape::Node
    {
        cgroups::remove(&spec.cgroup())?;
    }
    match fs::remove_dir_all(cluster) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn keep_logs(spec: &Spec) -> io::Result<()> {
    let kept = kept_logs(spec);
    fs::create_dir_all(&kept)?;
    for entry in fs::read_dir(spec.logs())? {
        let entry = entry?;
        fs::copy(entry.path(), kept.join(entry.file_name()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_word_that_fits_everywhere() {
        let table = [
            ("dev", true),
            ("test-01", true),
            ("", false),
            ("Dev", false),
            ("1a", false),
            ("a/b", false),
            ("../x", false),
        ];
        for (name, good) in table {
            assert_eq!(check_name(name).is_ok(), good, "{name:?}");
        }
    }

    #[test]
    fn a_cluster_is_built_on_nothing_that_one_before_it_has_left() {
        let folder = tempfile::tempdir().unwrap();
        let dead = folder.path().join("dead");
        let locked = folder.path().join("alive");
        for cluster in [&dead, &locked] {
            fs::create_dir_all(cluster.join("state/etcd")).unwrap();
            File::create(Spec::lock_file(cluster)).unwrap();
        }
        let lock = File::open(Spec::lock_file(&locked)).unwrap();
        lock.lock_shared().unwrap();
        // What is no folder is not removed as one.
        fs::write(folder.path().join("stuck"), "").unwrap();
        let vacate = |name: &str| vacate(folder.path(), name);
        assert!(matches!(vacate("alive"), Err(RegistryError::Taken(_))));
        assert!(locked.join("state/etcd").exists());
        assert!(vacate("new").is_ok_and(|place| !place.exists()));
        assert!(vacate("dead").is_ok_and(|place| place == dead && !place.exists()));
        let error = vacate("stuck").unwrap_err().to_string();
        assert!(error.contains(folder.path().join("stuck").to_str().unwrap()), "{error}");
    }
}
