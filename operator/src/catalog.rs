//! `longshore catalog`: what runs, and how it ends.
//!
//! It watches `McpServer`s and the pods that their Deployments own, asks one sidecar of each published server what that
//! offers, and hands it to [`longshore_catalog`], which knows nothing of Kubernetes. It writes nothing anywhere.
//!
//! Everything runs inside one future, as the operator does: a branch that ends unasked ends the process.

mod hiding;
mod keys;
pub(crate) mod published;
mod servers;
mod source;
mod speaker;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use longshore_catalog::http::Port;
use longshore_catalog::{Catalog, Hosts, Login, Metrics};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::inventory::TokenFile;
use crate::scope;
use crate::watching;
use keys::KeyFiles;
use source::Source;

/// What `longshore catalog` was told.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Where the REST API is.
    pub listen_addr: SocketAddr,
    /// Where `/livez`, `/readyz` and `/metrics` are.
    pub health_addr: SocketAddr,
    /// The directory with the API keys. `None`: everybody may log in.
    pub api_keys_dir: Option<PathBuf>,
    /// What the catalog is called where everybody may log in.
    pub hosts: Vec<String>,
    /// The namespaces whose servers are listed; empty for all.
    pub watch_namespaces: Vec<String>,
    /// The file with the token for the sidecars.
    pub inventory_token_file: PathBuf,
}

/// Runs the catalog until it is asked to end (SIGTERM, SIGINT) or something fails that it cannot mend.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let (catalog, indexer) = Catalog::new(Metrics::new().context("cannot register the metrics")?);
    let (login, keys) = match &options.api_keys_dir {
        None => {
            tracing::warn!("everybody who reaches the catalog may read it: --auth none");
            (Login::OpenBy(Hosts::new(options.hosts)), None)
        }
        Some(directory) => {
            let keys = KeyFiles::open(directory).context("cannot read the API keys")?;
            (keys.login(), Some(keys))
        }
    };
    let api = Port::api(options.listen_addr, catalog.clone(), login).await?;
    let probes = Port::probes(options.health_addr, catalog.clone()).await?;
    let client = watching::client().await?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), api = %api.address()?, probes = %probes.address()?, "the catalog starts");

    let (stop, stop_probes) = (CancellationToken::new(), CancellationToken::new());
    let token = TokenFile::new(options.inventory_token_file);
    let source = Source::new(client, scope::scopes(&options.watch_namespaces), token, catalog);
    let (api, probes) = (api.serve(stop.clone()), probes.serve(stop_probes.clone()));
    let watching = source.run();
    let reloading = async {
        match keys {
            Some(keys) => keys.follow().await,
            None => std::future::pending().await,
        }
    };
    let indexing = indexer.run();
    tokio::pin!(api, probes, watching, reloading, indexing);
    loop {
        tokio::select! {
            // Answers under way are finished; the process is seen to live until then.
            () = &mut api => {
                stop_probes.cancel();
                if stop.is_cancelled() { return Ok(()) } else { bail!("the API's port ended") }
            }
            () = &mut probes => bail!("the port of the probes ended"),
            () = &mut watching => bail!("a watch ended"),
            ended = &mut indexing => match ended? {},
            never = &mut reloading => match never {},
            _ = terminate.recv() => stop.cancel(),
            _ = interrupt.recv() => stop.cancel(),
        }
    }
}
