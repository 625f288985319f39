//! The cgroup that all pods of a cluster are in, in every hierarchy of the machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const ROOT: &str = "/sys/fs/cgroup";

/// Makes the cgroup. The kubelet wants to find it.
pub(crate) fn create(name: &str) -> io::Result<()> {
    for hierarchy in hierarchies()? {
        let group = hierarchy.join(name);
        fs::create_dir_all(&group)?;
        // Version 1 starts a cpuset empty, and then nothing can run in it.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let all = hierarchy.join(file);
            if all.exists() {
                fs::write(group.join(file), fs::read(all)?)?;
            }
        }
        // Version 2 hands controllers down one level at a time.
        let handed_down = hierarchy.join("cgroup.subtree_control");
        if hierarchy == Path::new(ROOT) && handed_down.exists() {
            let controllers = fs::read_to_string(hierarchy.join("cgroup.controllers"))?;
            for controller in controllers.split_whitespace() {
                fs::write(&handed_down, format!("+{controller}"))?;
            }
        }
    }
    Ok(())
}

/// Removes the cgroup and all below it. What is in them must be dead, or about to be.
pub(crate) fn remove(name: &str) -> io::Result<()> {
    for hierarchy in hierarchies()? {
        remove_tree(&hierarchy.join(name))?;
    }
    Ok(())
}

/// Every hierarchy: the one of version 2, or those of version 1 beside each other.
fn hierarchies() -> io::Result<Vec<PathBuf>> {
    let root = Path::new(ROOT);
    if root.join("cgroup.controllers").exists() {
        return Ok(vec![root.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        // Links such as `cpu,cpuacct` lead to hierarchies that are listed anyway.
        if entry.file_type()?.is_dir() && entry.path().join("cgroup.procs").exists() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn remove_tree(group: &Path) -> io::Result<()> {
    let children = match fs::read_dir(group) {
        Ok(children) => children,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for child in children {
        let child = child?;
        if child.file_type()?.is_dir() {
            remove_tree(&child.path())?;
        }
    }
    // A group stays busy for a moment after its last process has died.
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        match fs::remove_dir(group) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            removed => return removed,
        }
    }
}
