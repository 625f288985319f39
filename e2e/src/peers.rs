//! Servers and clients that others wrote, as programs on this machine. `e2e/peers/install.sh` says what is there.

use std::path::{Path, PathBuf};

use crate::checkout::{self, ScriptError};

/// The folder that they are installed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers(PathBuf);

impl Peers {
    /// Makes sure that they are installed.
    pub fn install() -> Result<Self, ScriptError> {
        const SCRIPT: &str = "peers/install.sh";
        match checkout::script(SCRIPT, &[])?.as_slice() {
            [folder] => Ok(Self(folder.into())),
            lines => Err(ScriptError::Output { script: SCRIPT.into(), line: lines.join("\n") }),
        }
    }

    /// One of the programs in `bin/`.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.0.join("bin").join(name)
    }

    /// The npm project of the TypeScript SDKs: a script that imports them runs in this folder.
    #[must_use]
    pub fn typescript(&self) -> PathBuf {
        self.0.join("typescript")
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }
}
