//! The catalog in this process: fed with what the sidecars know, at a port of loopback.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use longshore_catalog::model::{Health, State};
use longshore_catalog::{
    Catalog, Endpoint, Hosts, IndexError, Indexer, Login, Metrics, Reader, ServerKey, ServerRecord,
    http as api,
};
use longshore_sidecar_config::inventory::{Connection, Inventory};
use tokio::net::TcpListener;

use super::keys::ClientKey;
use super::plan::Plan;
use super::{Error, ServerId};
use crate::catalog::published;
use crate::mcp_server::condition::Reason;

/// Where there is more than the catalog says.
const MORE: &str = "what `longshore local` printed";

/// The catalog, and what reads inventories for it.
pub(super) struct Local {
    catalog: Catalog,
    reader: Reader,
}

impl Local {
    /// An empty one, and what has to run for it.
    pub(super) fn new() -> Result<(Self, Indexer), Error> {
        let (catalog, indexer) = Catalog::new(Metrics::new()?);
        Ok((Self { catalog, reader: Reader::default() }, indexer))
    }

    /// Lists a server as it is now.
    pub(super) fn show(
        &self,
        plan: &Plan,
        address: SocketAddr,
        inventory: Option<&Inventory>,
    ) -> Result<(), Error> {
        let key = key(&plan.id);
        if !plan.about.publish {
            self.catalog.remove(&key);
            return Ok(());
        }
        let auth = match plan.key {
            ClientKey::NotNeeded => Vec::new(),
            ClientKey::Known(_) | ClientKey::Hashed | ClientKey::NotTheirs => vec!["apiKeys".to_owned()],
        };
        let offer = inventory.map(|it| self.reader.offer(&key, it)).transpose().map_err(Error::Inventory)?;
        self.catalog.upsert(ServerRecord {
            key,
            about: published::about(&plan.about),
            endpoint: Endpoint { url: Some(super::url(address)), public_url: None, auth },
            health: health(plan, inventory.map(|it| &it.connection)),
            offer: offer.filter(|offer| offer.reported.is_some()).map(Arc::new),
            known_tools: Vec::new(),
            known_tools_left_out: 0,
        });
        Ok(())
    }

    /// Lists it no longer.
    pub(super) fn forget(&self, id: &ServerId) {
        self.catalog.remove(&key(id));
    }

    /// How a server is that is listed.
    #[cfg(test)]
    pub(super) fn state(&self, id: &ServerId) -> Option<State> {
        Some(self.catalog.server(&key(id))?.server.health.state)
    }

    /// Every server that there is has been shown once.
    pub(super) fn set_complete(&self) {
        self.catalog.set_complete();
    }

    /// Serves the REST API, for ever.
    pub(super) async fn serve(&self, listener: TcpListener) -> io::Result<()> {
        // Open to whoever has this machine's loopback, and to no web page of a stranger whose name points there.
        axum::serve(listener, api::api(self.catalog.clone(), Login::OpenBy(Hosts::default()))).await
    }
}

/// Reads what servers are found by, for ever.
pub(super) async fn index(indexer: Indexer) -> Result<Infallible, IndexError> {
    indexer.run().await
}

/// Binds a port of loopback.
pub(super) async fn bind(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await
}

fn key(id: &ServerId) -> ServerKey {
    ServerKey { namespace: id.namespace.clone(), name: id.name.clone() }
}

fn health(plan: &Plan, connection: Option<&Connection>) -> Health {
    let (state, reason, message) = match (&plan.program, connection) {
        (Ok(_), Some(connection)) => return published::health(connection, MORE),
        (Ok(_), None) => (State::Unknown, Reason::Starting, "its sidecar has not been heard yet".to_owned()),
        (Err(problems), _) => (State::Down, Reason::NoPod, problems.join("; ")),
    };
    Health { state, since: None, reason: reason.name().to_owned(), message }
}
