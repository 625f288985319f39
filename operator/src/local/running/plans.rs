//! Which of what the manifests say can run side by side.

use super::{Local, port_of};
use crate::local::manifests::Documents;
use crate::local::plan::{self, Plan};
use crate::local::{Error, ServerId};

/// The port at which another of these servers listens too, and that server.
fn same_port<'a>(plans: &'a [Plan], plan: &Plan) -> Option<(u16, &'a ServerId)> {
    let port = port_of(plan)?;
    plans.iter().find(|other| port_of(other) == Some(port)).map(|other| (port, &other.id))
}

impl Local {
    /// What is to run, and a line for each server that cannot. Of two servers at one port the one that is there stays, and
    /// otherwise the first in the order of the manifests.
    pub(super) fn plans(&mut self, documents: &Documents) -> Result<(Vec<Plan>, Vec<String>), Error> {
        let (mut possible, mut plans, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for found in &documents.servers {
            let key = self.options.key.as_deref();
            match plan::plan(found, documents, &self.inherited, key, &mut self.made)? {
                Ok(plan) => possible.push(plan),
                Err(no) => {
                    refused
                        .extend(no.problems.iter().map(|problem| format!("{}: {}", no.id, problem.message)));
                }
            }
        }
        possible.sort_by_key(|plan| !self.has_its_port(plan));
        for plan in possible {
            match (same_port(&plans, &plan), port_of(&plan).filter(|port| self.serves_at(*port))) {
                (None, None) => plans.push(plan),
                (Some((port, other)), _) => refused.push(format!(
                    "{}: port {port} is {other}'s too, and two servers on one machine cannot share one: choose \
                     another in spec.transport",
                    plan.id
                )),
                (None, Some(port)) => refused.push(format!(
                    "{}: clients of `longshore local` come to port {port}: choose another in spec.transport, or \
                     with --port",
                    plan.id
                )),
            }
        }
        let running = self.servers.iter().map(|running| &running.plan);
        self.reserved = plans.iter().chain(running).filter_map(port_of).collect();
        Ok((plans, refused))
    }

    /// Whether this server listens at that port already, or waits to.
    fn has_its_port(&self, plan: &Plan) -> bool {
        let running = self.servers.iter().map(|running| &running.plan).find(|known| known.id == plan.id);
        running.or_else(|| self.turns.waiting(&plan.id)).is_some_and(|known| port_of(known) == port_of(plan))
    }

    /// Whether clients come to this port, or are to come.
    fn serves_at(&self, port: u16) -> bool {
        let asked = self.servers.is_empty().then_some(self.options.port).flatten();
        let mut served = self.servers.iter().map(|running| running.sidecar.address.port());
        asked == Some(port) || self.catalog_at.port() == port || served.any(|at| at == port)
    }
}
