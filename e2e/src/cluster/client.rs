//! Clients of a cluster's API.

use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

/// Why there is no client for a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig")]
    Kubeconfig(#[from] KubeconfigError),
    /// No client can be made from it.
    #[error("cannot make a client")]
    Client(#[from] kube::Error),
}

/// A client for the cluster of a kubeconfig.
pub(crate) async fn of(kubeconfig: &Path) -> Result<kube::Client, ClientError> {
    let options = KubeConfigOptions::default();
    let mut config =
        kube::Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &options).await?;
    // The environment's, which leads away from this machine.
    config.proxy_url = None;
    Ok(kube::Client::try_from(config)?)
}
