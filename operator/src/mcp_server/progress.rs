//! What came of the steps, on its way to the status.

#[cfg(test)]
mod tests;
mod written;

use std::time::Duration;

use parking_lot::Mutex;

use crate::api::ApiError;
use crate::mcp_server::apply::NotTaken;
use crate::mcp_server::build::Desired;
use crate::mcp_server::condition::Problem;
use crate::mcp_server::failures::Passing;
use crate::mcp_server::memory::ServerMemory;
use crate::mcp_server::status::{Address, PodFacts, Unapplied};
use crate::mcp_server::upgrades::Turn;
use crate::mcp_server::{Error, apply};
use crate::metrics::Pending;

/// What came of the steps before the status.
#[derive(Default)]
pub(super) struct Progress {
    /// What is wrong with the manifest, or with what is made of it.
    pub(super) problems: Vec<Problem>,
    /// Whether the problems keep the manifest from being in force.
    pub(super) held_back: bool,
    /// Whether a problem keeps the server from being upgraded.
    pub(super) upgrade_refused: bool,
    /// What of the manifest was not taken, be it for a moment.
    pub(super) unapplied: Option<Unapplied>,
    /// What pods are to be like. `None`: nothing could be made of the manifest.
    pub(super) desired: Option<Desired>,
    /// Where clients are to find it, if the manifest says so.
    pub(super) address: Address,
    /// The principals that callers can be, where they are known.
    pub(super) principals: Option<Vec<String>>,
    /// The server's pods, and what is known of each.
    pub(super) pods: Vec<PodFacts>,
    /// When to look again, if nothing changes.
    pub(super) again: Option<Duration>,
    /// Whether it may get new pods, and for whose sake.
    pub(super) turn: Turn,
    /// Whether a pod cannot be touched now. That has delays of its own, and is no failure of anything else.
    pub(super) untouched: bool,
    /// Whether something that is left over cannot be deleted now. That is no failure of anything else either.
    pub(super) unpruned: bool,
    /// What failed.
    pub(super) error: Option<Error>,
    /// The worst that the steps met of what may pass by itself.
    pub(super) passing: Passing,
    /// Whether it ended so early, for now, that there is nothing to write down.
    pub(super) blind: bool,
}

// === impl Progress ===

impl Progress {
    /// Nothing can be made of the manifest.
    pub(super) fn stop(&mut self, problems: Vec<Problem>, pods: Vec<PodFacts>) {
        self.problems = problems;
        self.held_back = true;
        self.pods = pods;
    }

    /// Why it goes on with pods of an earlier release, if it does.
    pub(super) fn pending(&self) -> Option<Pending> {
        match (self.upgrade_refused, self.turn) {
            (true, _) => Some(Pending::Refused),
            (false, Turn::Later) => Some(Pending::Waiting),
            (false, Turn::Free | Turn::Upgrade) => None,
        }
    }

    /// Takes note of how a request failed, in case that passes by itself.
    pub(super) fn met(&mut self, error: &ApiError) {
        self.passing = self.passing.max(Passing::of(error));
    }

    /// Takes note that the Deployment with this template, or what its pods need, could not be applied.
    pub(super) fn not_applied(
        &mut self,
        NotTaken { part, error }: NotTaken,
        template: &str,
        memory: &Mutex<ServerMemory>,
    ) {
        self.unapplied = Some(Unapplied { what: error.what().map(str::to_owned), part });
        match &error {
            apply::Error::Api { source, .. } => self.met(source),
            apply::Error::Unanswered { .. } => self.passing = self.passing.max(Passing::Unanswered),
            apply::Error::Problem(_) | apply::Error::NamespaceEnds => {}
        }
        // What was refused, or has failed for long, is said until it is taken, also where it fails in another way now.
        if let Some((is_deployment, problem)) = memory.lock().refused(template) {
            let is_upgrade = is_deployment && self.turn == Turn::Upgrade;
            self.problems.insert(0, if is_upgrade { of_upgrade(problem) } else { problem });
            self.held_back = true;
        }
        self.error = Some(Error::Apply(error));
    }
}

/// What to say of an upgrade that is refused: in its turn the same as while it waits for another, so that the status stands
/// still.
pub(super) fn of_upgrade(problem: Problem) -> Problem {
    let message = format!("this server waits for another turn to be upgraded: {}", problem.message);
    Problem::new(problem.reason, message)
}
