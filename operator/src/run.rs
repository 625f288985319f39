//! The composition root of the operator: what runs, in which order it starts, and how it ends.
//!
//! Everything runs inside one future, as branches of one `select!`: there is no task that could end unseen. A branch
//! that ends although nobody asked it to ends the process, and Kubernetes starts a new one.

mod cluster;
mod rights;
mod watches;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use arc_swap::ArcSwap;
use kube::Client;
use kube::runtime::events::{Recorder, Reporter};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::health::{self, Readiness};
use crate::inventory::{self, Changes, Inventories, Poller, TokenFile};
use crate::lease::{Candidate, Timings};
use crate::mcp_server::context::{Context, Mirrors};
use crate::mcp_server::upgrades::Upgrades;
use crate::metrics::Metrics;
use crate::names::MANAGER;
use crate::scope;
use crate::settings::Settings;
use crate::watching::{self, Watching};

/// How long reconciliations in flight may take once the process is asked to end.
const FINISH: Duration = Duration::from_secs(15);

/// What `longshore operator` was told.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// What is the same for every server.
    pub settings: Settings,
    /// The operator's own namespace.
    pub namespace: String,
    /// What tells this replica from the others.
    pub identity: String,
    /// The namespaces to look after; empty for all.
    pub watch_namespaces: Vec<String>,
    /// The file with the token for the sidecars.
    pub inventory_token_file: PathBuf,
    /// Where `/healthz`, `/readyz` and `/metrics` are.
    pub health_addr: SocketAddr,
    /// The lease that one of several replicas holds.
    pub lease_name: String,
    /// How many servers get new pods at once when Longshore itself is upgraded.
    pub upgrades_at_once: usize,
}

/// Runs the operator until it is asked to end (SIGTERM, SIGINT) or something fails that it cannot mend.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let metrics = Metrics::new().context("cannot register the metrics")?;
    let readiness = Readiness::default();
    let health = health::bind(options.health_addr, readiness.clone(), metrics.clone()).await?;
    let (client, watch_client) = (watching::client_for_calls().await?, watching::client().await?);
    let port = health.address().context("cannot tell the health port")?;
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(version, identity = %options.identity, probes = %port, "the operator starts");

    // Ends only after everything else has, so that the process is seen to live while it drains.
    let health_stop = CancellationToken::new();
    let health = health.serve(health_stop.clone());
    let operator = operate(options, client, watch_client, metrics, readiness, stop.clone());
    tokio::pin!(health, operator);
    loop {
        tokio::select! {
            ended = &mut operator => {
                health_stop.cancel();
                return ended;
            }
            () = &mut health => bail!("the health port ended"),
            _ = terminate.recv() => stop.cancel(),
            _ = interrupt.recv() => stop.cancel(),
        }
    }
}

/// Waits for what it needs, and then to be elected, and acts once it is.
async fn operate(
    options: Options,
    client: Client,
    watch_client: Client,
    metrics: Metrics,
    readiness: Readiness,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let subjects = &options.settings.inventory_subjects;
    let candidate = Candidate::new(
        client.clone(),
        &options.namespace,
        &options.lease_name,
        &options.identity,
        Timings::default(),
    );
    let prepared = async {
        rights::wait_for_rights(&client, &scope::scopes(&options.watch_namespaces), &candidate).await;
        cluster::inventory_access(&client, subjects, None).await
    };
    // Who may not see the cluster, or not read the keys now, is not ready.
    let Some(mut known) = stop.run_until_cancelled(prepared).await else { return Ok(()) };
    readiness.ready();

    tracing::info!(lease = %options.lease_name, "ready; waiting to be elected leader");
    let elected = cluster::keeping_known(&mut known, &client, subjects, candidate.acquire());
    let Some(leadership) = stop.run_until_cancelled(elected).await else { return Ok(()) };
    tracing::info!("elected: this operator leads");
    metrics.leads(true);

    // The lease is released when the work has ended, not before: the next leader may act at once.
    let work_ended = CancellationToken::new();
    let (inventories, changes, poller) =
        inventory::inventories(TokenFile::new(options.inventory_token_file.clone()));
    let work = async {
        let access = cluster::inventory_access(&client, subjects, Some(&known));
        let Some(access) = stop.run_until_cancelled(access).await else { return Ok(()) };
        let context = context(&options, client.clone(), watch_client, metrics.clone(), inventories, access);
        work(&options, context, changes, poller, stop.clone()).await
    };
    let lease = leadership.hold(work_ended.clone());
    tokio::pin!(work, lease);
    tokio::select! {
        lost = &mut lease => {
            metrics.leads(false);
            lost?;
            bail!("the lease was given up although the work goes on");
        }
        ended = &mut work => {
            metrics.leads(false);
            work_ended.cancel();
            lease.await?;
            ended
        }
    }
}

fn context(
    options: &Options,
    client: Client,
    watch_client: Client,
    metrics: Metrics,
    inventories: Inventories,
    access: longshore_sidecar_config::InventoryAccess,
) -> Arc<Context> {
    let reporter = Reporter { controller: MANAGER.to_owned(), instance: Some(options.identity.clone()) };
    Arc::new(Context {
        // An event is told once, and tried again by this one.
        recorder: Recorder::new(watch_client.clone(), reporter),
        client,
        watch_client,
        settings: options.settings.clone(),
        inventory_access: ArcSwap::from_pointee(access),
        mirrors: Mirrors::default(),
        references: Default::default(),
        inventories,
        memory: Default::default(),
        upgrades: Upgrades::new(options.upgrades_at_once),
        slots: Default::default(),
        metrics,
    })
}

/// Watches, asks the sidecars and reconciles, until `stop`; then finishes what is under way.
async fn work(
    options: &Options,
    context: Arc<Context>,
    changes: Changes,
    poller: Poller,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let scopes = scope::scopes(&options.watch_namespaces);
    let (triggers, queues) = watches::triggers(&scopes);
    let watching = Watching::new(context.clone());
    let watches = watches::watch(&context, &watching, &scopes, &triggers);
    let controllers = watches::control(&context, &watching, &scopes, queues, &triggers, stop.clone());
    let relay = watches::relay(changes, &context, &triggers);
    let keys = cluster::renew_inventory_access(&context, &triggers);
    let finish = async {
        stop.cancelled().await;
        tokio::time::sleep(FINISH).await;
    };
    tokio::select! {
        () = controllers => {
            if stop.is_cancelled() { Ok(()) } else { bail!("the controller ended") }
        }
        () = watches => bail!("a watch ended"),
        () = relay => bail!("the news of the sidecars ended"),
        never = poller.run() => match never {},
        never = keys => match never {},
        () = finish => {
            tracing::warn!("reconciliations in flight took too long and are given up");
            Ok(())
        }
    }
}
