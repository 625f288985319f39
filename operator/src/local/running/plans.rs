//! Which of what the manifests say can run side by side.

use super::Local;
use super::ports::port_of;
use crate::local::manifests::Documents;
use crate::local::plan::{self, Plan};
use crate::local::{Error, ServerId};

impl Local {
    /// What is to run, and a line for each server that cannot. Of two servers at one port the one that is there stays, also
    /// where what its manifest says now cannot be taken up, and otherwise the first in the order of the manifests.
    pub(super) fn plans(&mut self, documents: &Documents) -> Result<(Vec<Plan>, Vec<String>), Error> {
        let (mut plans, mut refused, mut going_on) = (Vec::new(), Vec::new(), Vec::new());
        for found in &documents.servers {
            let key = self.options.key.as_deref();
            match plan::plan(found, documents, &self.inherited, key, &mut self.made)? {
                Ok(plan) => plans.push(plan),
                Err(no) => {
                    refused
                        .extend(no.problems.iter().map(|problem| format!("{}: {}", no.id, problem.message)));
                    going_on.push(no.id);
                }
            }
        }
        let possible = |plan: Plan| {
            let id = plan.id.clone();
            let possible = self.possible(plan);
            going_on.extend(possible.is_none().then_some(id));
            possible
        };
        plans = plans.into_iter().filter_map(possible).collect();
        plans.sort_by_key(|plan| {
            let known = self.plan_of(&plan.id);
            (known.is_none_or(|known| port_of(known) != port_of(plan)), known.is_none())
        });
        let mut stay: Vec<&Plan> = going_on.iter().filter_map(|id| self.plan_of(id)).collect();
        let mut next = 0;
        while let Some(plan) = plans.get(next) {
            let Some(line) = self.clash(plan, plans[..next].iter().chain(stay.iter().copied())) else {
                next += 1;
                continue;
            };
            refused.push(line);
            let plan = plans.remove(next);
            if let Some(known) = self.plan_of(&plan.id) {
                // It stays where it is, which may be where one of those was to come.
                stay.push(known);
                next = 0;
            }
        }
        let running = self.servers.iter().map(|running| &running.plan);
        self.reserved = plans.iter().chain(stay).chain(running).filter_map(port_of).collect();
        Ok((plans, refused))
    }

    /// What runs of this server, or waits to.
    fn plan_of(&self, id: &ServerId) -> Option<&Plan> {
        let running = self.servers.iter().map(|running| &running.plan).find(|plan| plan.id == *id);
        running.or_else(|| self.turns.waiting(id))
    }

    /// What can be taken up of a plan, if anything: where nothing can be started, what runs goes on, or begins when it is its
    /// turn, and it is said why.
    fn possible(&self, plan: Plan) -> Option<Plan> {
        let known = self.plan_of(&plan.id).filter(|known| known.program.is_ok());
        let Some(known) = known else { return Some(plan) };
        let Err(problems) = &plan.program else { return Some(plan) };
        for problem in problems {
            self.say(&format!("{}: {problem}; what was there before goes on", plan.id));
        }
        plan.with_program_of(known)
    }

    /// Why a server cannot listen at its port beside these, if it cannot.
    fn clash<'a>(&self, plan: &Plan, mut others: impl Iterator<Item = &'a Plan>) -> Option<String> {
        let (id, port) = (&plan.id, port_of(plan)?);
        if let Some(other) = others.find(|other| port_of(other) == Some(port)) {
            let other = &other.id;
            return Some(format!(
                "{id}: port {port} is {other}'s too, and two servers on one machine cannot share one: choose another in \
                 spec.transport"
            ));
        }
        self.serves_at(port).then(|| {
            format!(
                "{id}: clients of `longshore local` come to port {port}: choose another in spec.transport, or with --port"
            )
        })
    }

    /// Whether clients come to this port, or are to come.
    fn serves_at(&self, port: u16) -> bool {
        let asked = self.servers.is_empty().then_some(self.options.port).flatten();
        let mut served = self.servers.iter().map(|running| running.sidecar.address.port());
        asked == Some(port) || self.catalog_at.port() == port || served.any(|at| at == port)
    }
}
