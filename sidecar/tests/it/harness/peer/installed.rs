//! Where servers and clients are that others wrote. The operator's tests have this file too.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The folder that holds them.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../e2e/peers/install.sh");
        let output = Command::new("bash").arg(script).stderr(Stdio::inherit()).output().expect("bash");
        assert!(output.status.success(), "the peers could not be installed");
        PathBuf::from(String::from_utf8(output.stdout).expect("a path").trim())
    })
}
