//! The control plane's own token for the sidecars, which the kubelet keeps fresh in a file.

use std::path::PathBuf;
use std::sync::Arc;

/// A projected ServiceAccount token of audience [`longshore_sidecar_config::INVENTORY_AUDIENCE`].
#[derive(Clone, Debug)]
pub struct TokenFile {
    path: Arc<PathBuf>,
}

impl TokenFile {
    /// The token that is in this file at the time of each use.
    pub fn new(path: PathBuf) -> Self {
        Self { path: Arc::new(path) }
    }

    /// Reads it. It is short and in memory, and the kubelet replaces it well before it expires.
    pub(crate) async fn read(&self) -> std::io::Result<String> {
        let token = tokio::fs::read_to_string(&*self.path).await?;
        Ok(token.trim().to_owned())
    }
}
