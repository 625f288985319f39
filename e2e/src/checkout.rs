//! Where things are: in the checkout that this crate was built from, and in the cache.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The root of the checkout.
pub(crate) fn root() -> &'static Path {
    // The crate's folder has a parent: the workspace.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("/"))
}

/// Where programs, images and running clusters are kept, outside of `target/`, which people delete.
pub(crate) fn cache() -> PathBuf {
    if let Some(cache) = std::env::var_os("LONGSHORE_CACHE") {
        return cache.into();
    }
    match std::env::var_os("XDG_CACHE_HOME") {
        Some(caches) => PathBuf::from(caches).join("longshore"),
        None => PathBuf::from(std::env::var_os("HOME").unwrap_or("/root".into())).join(".cache/longshore"),
    }
}

/// Why a script of this checkout did not do its work. It has said more on standard error.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// It could not be started.
    #[error("cannot run {script}")]
    Start {
        /// The script.
        script: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It said that it failed.
    #[error("{script} failed with {status}")]
    Failed {
        /// The script.
        script: PathBuf,
        /// How it ended.
        status: std::process::ExitStatus,
    },
    /// It printed something other than what its header promises.
    #[error("{script} printed {line:?}, which is not what its header promises")]
    Output {
        /// The script.
        script: PathBuf,
        /// What it printed.
        line: String,
    },
}

/// Runs a script of this crate and returns the lines that it printed. What it says on standard error passes through.
pub(crate) fn script(path: &str, arguments: &[&str]) -> Result<Vec<String>, ScriptError> {
    let script = root().join("e2e").join(path);
    let output = Command::new(&script)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|source| ScriptError::Start { script: script.clone(), source })?;
    if !output.status.success() {
        return Err(ScriptError::Failed { script, status: output.status });
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}
