//! The inventory: what the operator and the catalog can read of a sidecar. Who may is in [`readers`].

mod digest;
pub(crate) mod readers;

use std::sync::Arc;

use bytes::Bytes;
use longshore_mcp::listing;
use longshore_mcp::method::List;
use longshore_sidecar_config::inventory::{ConfigState, Inventory, Phase};
use serde_json::value::RawValue;
use tokio::sync::watch;

use crate::configuration::{Snapshot, digest as digest_of};
use crate::monitor::View;
use crate::shared::Shared;

/// An inventory as it is sent.
#[derive(Debug)]
pub(crate) struct Published {
    /// Names these bytes.
    pub(crate) etag: String,
    /// JSON.
    pub(crate) body: Bytes,
}

/// The inventories of a sidecar in this process, as they change.
pub struct Inventories(watch::Receiver<Option<Arc<Published>>>);

impl Inventories {
    pub(crate) fn new(published: watch::Receiver<Option<Arc<Published>>>) -> Self {
        Self(published)
    }

    /// The newest one that was not given yet, once there is one. `None`: the sidecar has ended.
    pub async fn next(&mut self) -> Option<Inventory> {
        loop {
            self.0.changed().await.ok()?;
            let published = self.0.borrow_and_update().clone();
            // What was written from an inventory can be read as one.
            if let Some(inventory) = published.and_then(|it| serde_json::from_slice(&it.body).ok()) {
                return Some(inventory);
            }
        }
    }
}

/// Keeps the published inventory up to date. Ends only if what it follows ends.
pub(crate) async fn publish(
    shared: Arc<Shared>,
    published: watch::Sender<Option<Arc<Published>>>,
) -> Result<(), watch::error::RecvError> {
    let mut view = shared.view.subscribe();
    let mut exposed = shared.exposed.subscribe();
    let mut noise = shared.stdio.noise.subscribe();
    let mut config = shared.config_changed.subscribe();
    let mut config_error = shared.config_error.subscribe();
    let mut draining = shared.draining.subscribe();
    loop {
        // Marked as seen before they are read: what changes from here on makes another round.
        let state = view.borrow_and_update().clone();
        let sockets = exposed.borrow_and_update().clone();
        let first_noise = noise.borrow_and_update().clone();
        config.mark_unchanged();
        let error = config_error.borrow_and_update().clone();
        let ends = *draining.borrow_and_update();
        if let Some(snapshot) = shared.snapshot.load_full() {
            let mut inventory = assemble(&snapshot, &state, error, ends);
            inventory.exposed = sockets;
            inventory.noise = first_noise;
            match serde_json::to_vec(&inventory) {
                Ok(body) => {
                    let etag = format!("\"{}\"", digest_of(&body));
                    published.send_if_modified(|current| {
                        let changed = current.as_ref().is_none_or(|current| current.etag != etag);
                        if changed {
                            *current = Some(Arc::new(Published { etag, body: body.into() }));
                        }
                        changed
                    });
                }
                Err(error) => tracing::error!(%error, "cannot write the inventory"),
            }
        }
        tokio::select! {
            changed = view.changed() => changed?,
            changed = exposed.changed() => changed?,
            changed = noise.changed() => changed?,
            changed = config.changed() => changed?,
            changed = config_error.changed() => changed?,
            changed = draining.changed() => changed?,
        }
    }
}

/// The inventory of one moment.
fn assemble<'a>(
    snapshot: &Snapshot,
    view: &'a View,
    error: Option<String>,
    draining: bool,
) -> Inventory<&'a RawValue> {
    let lists = &view.lists;
    let mut tools = raw(&lists.tools);
    tools.retain(|tool| {
        listing::name(tool.get(), List::Tools).is_some_and(|name| snapshot.access.exists(&name))
    });
    Inventory {
        config: ConfigState {
            digest: snapshot.digest.clone(),
            generation: snapshot.config.generation,
            error,
            callers: Some(snapshot.authenticator.admits_anybody()),
        },
        phase: match (draining, view.ever_connected) {
            (true, _) => Phase::Draining,
            (false, true) => Phase::Serving,
            (false, false) => Phase::Starting,
        },
        connection: view.connection.clone(),
        server: view.server.clone(),
        hidden_tools: lists.tools.len() - tools.len(),
        tools_digest: digest::of_tools(&tools),
        tools,
        prompts: raw(&lists.prompts),
        resources: raw(&lists.resources),
        resource_templates: raw(&lists.resource_templates),
        noise: None,
        short: snapshot.short,
        exposed: Vec::new(),
    }
}

/// Entries of a list as they stand in the inventory, which is written without values for them.
fn raw(entries: &[Box<str>]) -> Vec<&RawValue> {
    entries.iter().filter_map(|entry| serde_json::from_str(entry).ok()).collect()
}
