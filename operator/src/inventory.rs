//! What the sidecars say of their servers, as far as the operator keeps it: a [`Summary`] for each pod that a
//! reconciliation names. When one changes, its server is due for reconciliation.
//!
//! How they are asked is [`longshore_sidecar_client`]'s.

mod cut;
mod summary;

use kube::runtime::reflector::ObjectRef;
use longshore_crds::McpServer;
use longshore_sidecar_client::{self as client, Bounds};

pub(crate) use longshore_sidecar_client::{PodUid, TokenFile};
#[cfg(test)]
pub(crate) use summary::{ServerInfo, ServerSummary};
pub(crate) use summary::{Summary, ToolsSummary};

/// What is known of one sidecar.
pub(crate) type Observation = client::Observation<Summary>;
/// Hands out what is known, and names the pods to ask. Cheap to clone.
pub(crate) type Inventories = client::Inventories<ObjectRef<McpServer>, Summary>;
/// The servers whose sidecars said something new.
pub(crate) type Changes = client::Changes<ObjectRef<McpServer>>;
/// Asks the sidecars.
pub(crate) type Poller = client::Poller<ObjectRef<McpServer>, Summary>;

/// The parts: the handle, the stream of changes, and the future to run.
pub(crate) fn inventories(token: TokenFile) -> (Inventories, Changes, Poller) {
    // Three of the longest answers fit beside all else into the memory that the chart gives the operator.
    let bounds = Bounds { concurrent_answers: 3, ..Bounds::default() };
    client::inventories(token, bounds, namespace)
}

fn namespace(server: &ObjectRef<McpServer>) -> &str {
    server.namespace.as_deref().unwrap_or_default()
}
