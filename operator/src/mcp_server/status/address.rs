//! Where clients find a server, as the status says it.

use crate::mcp_server::apply::Applier;
use crate::mcp_server::validate::ValidatedServer;

/// Where clients find a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Address {
    /// At these addresses: there is a Service.
    Known {
        /// The address inside of the cluster.
        url: String,
        /// The address outside of it. A manifest that names no host has none.
        public_url: Option<String>,
    },
    /// Where they found it before, if they did: there is a Service, and the manifest cannot be used now.
    #[default]
    Unknown,
    /// Nowhere: the Service of its name is somebody else's.
    Taken,
    /// Nowhere: it has pods, and no Service.
    Missing,
    /// Nowhere: it has neither, and may be new.
    Unmade,
}

// === impl Address ===

impl Address {
    /// Where they are to.
    pub(crate) fn of(validated: &ValidatedServer, namespace: &str, domain: &str) -> Self {
        Self::Known {
            url: format!("http://{}.{namespace}.svc.{domain}/mcp", validated.names.service()),
            public_url: validated.public_host.as_ref().map(|host| format!("https://{host}/mcp")),
        }
    }

    /// Where they do: whatever other object may not be had does not matter.
    pub(crate) fn as_found(&self, applier: &Applier<'_>) -> Self {
        if applier.memory.lock().service_is_others {
            Self::Taken
        } else if applier.has_service() {
            self.clone()
        } else if applier.has_deployment() {
            Self::Missing
        } else {
            Self::Unmade
        }
    }
}
