//! What the operator needs from the cluster before it can do anything, and the keys of the cluster's tokens.

use std::convert::Infallible;
use std::time::Duration;

use kube::Client;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use longshore_crds::McpServer;
use longshore_sidecar_config::InventoryAccess;
use serde::Deserialize;
use thiserror::Error;

use super::watches::Triggers;
use crate::api::{self, ApiError};
use crate::mcp_server::context::Context;
use crate::scope::{self, Scope};

/// The time between two tries while the cluster is not ready for the operator.
const RETRY: Duration = Duration::from_secs(2);
/// Sidecars that refuse the operator's token make it ask for the keys, at most so often.
const SHORTEST_RENEWAL: Duration = Duration::from_secs(10);

/// Why the keys of the cluster's tokens are not known.
#[derive(Debug, Error)]
enum Error {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("cannot ask for {path}")]
    Request { path: &'static str, source: http::Error },
    #[error("the answer of {path} is not what it should be: {source}")]
    Answer { path: &'static str, source: serde_json::Error },
}

/// Waits until the API server answers and knows the kind `McpServer`, in one namespace at least.
pub(crate) async fn wait_for_api(client: &Client, scopes: &[Scope]) {
    loop {
        for scope in scopes {
            let servers = scope::api::<PartialObjectMeta<McpServer>>(client, scope);
            match api::call(servers.list(&ListParams::default().limit(1))).await {
                Ok(_) => return,
                Err(error) if error.is_not_found() => tracing::warn!(
                    "the cluster does not know the kind McpServer: install the chart longshore-crds, or apply the \
                     output of `longshore crds`; waiting for it"
                ),
                Err(error) => tracing::warn!(%error, "cannot list McpServers yet; waiting"),
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Reads who may read the sidecars' inventories, and tries until it can.
pub(super) async fn inventory_access(client: &Client, subjects: &[String]) -> InventoryAccess {
    loop {
        match read_inventory_access(client, subjects).await {
            Ok(access) => return access,
            Err(error @ Error::Api(ApiError::Refused(_))) => tracing::warn!(
                %error,
                "may not read the keys of the cluster's tokens: bind the ClusterRole \
                 system:service-account-issuer-discovery to the operator's ServiceAccount; waiting for it"
            ),
            Err(error) => tracing::warn!(%error, "cannot read the keys of the cluster's tokens yet; waiting"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Reads the keys again whenever a sidecar refuses the operator's token, and hands new ones to every sidecar.
pub(super) async fn renew_inventory_access(context: &Context, triggers: &Triggers) -> Infallible {
    loop {
        context.inventories.unauthorized().await;
        match read_inventory_access(&context.client, &context.settings.inventory_subjects).await {
            Ok(access) if access != **context.inventory_access.load() => {
                tracing::info!("the cluster's tokens have new keys");
                context.inventory_access.store(access.into());
                for server in context.memory.servers() {
                    triggers.reconcile(&server);
                }
            }
            Ok(_) => {
                tracing::warn!("a sidecar refuses the operator's token, although it should know the key")
            }
            Err(error) => tracing::warn!(%error, "cannot read the keys of the cluster's tokens"),
        }
        tokio::time::sleep(SHORTEST_RENEWAL).await;
    }
}

async fn read_inventory_access(client: &Client, subjects: &[String]) -> Result<InventoryAccess, Error> {
    #[derive(Deserialize)]
    struct Discovery {
        issuer: String,
    }
    let Discovery { issuer } = get(client, "/.well-known/openid-configuration").await?;
    let jwks = get(client, "/openid/v1/jwks").await?;
    let mut subjects = subjects.to_vec();
    subjects.sort();
    subjects.dedup();
    Ok(InventoryAccess { issuer, subjects, jwks })
}

async fn get<T: serde::de::DeserializeOwned>(client: &Client, path: &'static str) -> Result<T, Error> {
    let request =
        http::Request::get(path).body(Vec::new()).map_err(|source| Error::Request { path, source })?;
    let text = api::call(client.request_text(request)).await?;
    serde_json::from_str(&text).map_err(|source| Error::Answer { path, source })
}
