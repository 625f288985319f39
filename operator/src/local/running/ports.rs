//! Which ports sidecars and the catalog get.

use std::io;

use longshore_sidecar::{BindError, Inventories};
use longshore_sidecar_config::Upstream;

use super::Local;
use crate::local::Error;
use crate::local::files::Place;
use crate::local::plan::Plan;
use crate::local::sidecar::Sidecar;

/// Where ports begin when nobody says.
const FIRST_PORT: u16 = 8380;
/// How many ports are tried before the system is asked for any.
const TRIES: u16 = 100;

/// The port at which a server listens, if it does.
pub(super) fn port_of(plan: &Plan) -> Option<u16> {
    match plan.upstream {
        Upstream::StreamableHttp { port, .. } | Upstream::Sse { port, .. } => Some(port),
        Upstream::Stdio {} => None,
    }
}

// === impl Local ===

impl Local {
    /// Ports to try, from this one on.
    pub(super) fn free_from(&self, first: u16) -> impl Iterator<Item = u16> {
        (first..=u16::MAX).filter(|port| !self.reserved.contains(port)).take(TRIES.into())
    }

    /// Starts the sidecar at the port that is the server's, or at the next one that is free.
    pub(super) fn listen(&self, plan: &Plan, place: &Place) -> Result<(Sidecar, Inventories), Error> {
        let start =
            |port| Sidecar::start(&plan.id, port, place, plan.workers, self.options.audit, self.tell.clone());
        let asked = self.ports.is_empty().then_some(self.options.port).flatten();
        let first = self.ports.get(&plan.id).copied().unwrap_or_else(|| self.next_port());
        for port in self.free_from(first) {
            match start(port) {
                Err(Error::Bind(error)) if is_taken(&error) => {
                    if let Some(port) = asked {
                        return Err(Error::PortTaken { port });
                    }
                }
                other => return other,
            }
        }
        start(0)
    }

    pub(super) fn next_port(&self) -> u16 {
        let highest = self.ports.values().max().copied();
        highest.map_or(self.options.port.unwrap_or(FIRST_PORT), |port| port.saturating_add(1))
    }
}

fn is_taken(error: &BindError) -> bool {
    match error {
        BindError::Taken { .. } => true,
        BindError::Listen { source, .. } => source.kind() == io::ErrorKind::AddrInUse,
        _ => false,
    }
}
