//! The programs that a cluster is made of: built from Go modules once, and Debian's.

use std::path::{Path, PathBuf};

use crate::checkout::{self, ScriptError};
use crate::images::{self, Image};

/// The folder of the built programs.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Programs(PathBuf);

/// What has to be on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// What etcd and kube-apiserver need: no Debian packages, no root.
    ControlPlane,
    /// What a node needs too.
    Whole,
}

impl Programs {
    /// Makes sure that everything in `scope` is installed. The first time this takes minutes, later a tenth of a second.
    pub(crate) fn install(scope: Scope) -> Result<Self, ScriptError> {
        const SCRIPT: &str = "cluster/install.sh";
        let argument = match scope {
            Scope::ControlPlane => "control-plane",
            Scope::Whole => "whole",
        };
        let lines = checkout::script(SCRIPT, &[argument])?;
        match lines.as_slice() {
            [folder] => Ok(Self(folder.into())),
            lines => Err(ScriptError::Output { script: SCRIPT.into(), line: lines.join("\n") }),
        }
    }

    /// The folder, to be put first on a `PATH`.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// One of the programs.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The image of every pod's first container, which only holds the pod's namespaces open.
    pub(crate) fn pause_image(&self) -> Result<Image, ScriptError> {
        images::build("pause", &self.0.join("pause-image"))
    }
}
