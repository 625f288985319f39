//! What came of the steps, on its way to the status.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::{self, ApiError};
use crate::mcp_server::apply::NotTaken;
use crate::mcp_server::build::Desired;
use crate::mcp_server::condition::{Problem, Reason};
use crate::mcp_server::failures::Passing;
use crate::mcp_server::memory::ServerMemory;
use crate::mcp_server::status::{PodFacts, Unapplied};
use crate::mcp_server::upgrades::Turn;
use crate::mcp_server::validate::ValidatedServer;
use crate::mcp_server::{Error, apply};
use crate::metrics::Pending;

/// What came of the steps before the status.
#[derive(Default)]
pub(super) struct Pursuit {
    pub(super) problems: Vec<Problem>,
    /// Whether they keep the manifest from being in force.
    pub(super) held_back: bool,
    /// Whether one of them is that its upgrade is refused, which keeps nothing of the manifest from being in force.
    pub(super) upgrade_refused: bool,
    /// What of the manifest was not taken, be it for a moment.
    pub(super) unapplied: Option<Unapplied>,
    pub(super) desired: Option<Desired>,
    pub(super) urls: Option<Urls>,
    /// The principals that callers can be, where they are known.
    pub(super) principals: Option<Vec<String>>,
    pub(super) pods: Vec<PodFacts>,
    /// When to look again, if nothing changes.
    pub(super) again: Option<Duration>,
    /// Whether it may get new pods, and for whose sake.
    pub(super) turn: Turn,
    /// Whether a pod cannot be touched now. That has delays of its own, and is no failure of anything else.
    pub(super) untouched: bool,
    /// Whether something that is left over cannot be deleted now. Nor is that.
    pub(super) unpruned: bool,
    pub(super) error: Option<Error>,
    /// What it met that may pass by itself, the worst of it.
    pub(super) passing: Passing,
    /// Whether it ended so early, for now, that there is nothing to write down.
    pub(super) blind: bool,
}

/// Where clients find the server.
pub(super) struct Urls {
    pub(super) cluster: String,
    pub(super) public: Option<String>,
}

// === impl Pursuit ===

impl Pursuit {
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

    /// Something of what the manifest names, or of what is made of it, failed so.
    pub(super) fn met(&mut self, error: &ApiError) {
        self.passing = self.passing.max(Passing::of(error));
    }

    /// Objects that pods of this template need, or they themselves, could not be applied. Whoever is patient says nothing yet
    /// of what may pass.
    pub(super) fn not_applied(
        &mut self,
        NotTaken { part, error }: NotTaken,
        template: &str,
        memory: &Mutex<ServerMemory>,
        patient: bool,
    ) {
        let is_upgrade = self.turn == Turn::Upgrade;
        self.unapplied = Some(Unapplied { what: error.what().map(str::to_owned), part });
        match error {
            apply::Error::Problem(problem) => {
                let problem = memory.lock().note_refused(part, template, problem, is_upgrade);
                self.problems.insert(0, problem.clone());
                self.held_back = true;
                self.error = Some(Error::Apply(apply::Error::Problem(problem)));
            }
            error => {
                let lasting = match &error {
                    apply::Error::Api { what, source } => {
                        self.met(source);
                        source.failure().filter(|_| !patient).map(|words| (what, words.to_owned()))
                    }
                    apply::Error::Unanswered { what } => {
                        self.passing = self.passing.max(Passing::Unanswered);
                        let lasts = memory.lock().failures.unanswered(Instant::now());
                        lasts.then(|| (what, api::unanswered()))
                    }
                    apply::Error::Problem(_) | apply::Error::NamespaceEnds => None,
                };
                if let Some((what, words)) = lasting {
                    let message = format!("the API server does not take {what}, and is asked again: {words}");
                    let problem = Problem::new(Reason::Rejected, message);
                    memory.lock().note_refused(part, template, problem, is_upgrade);
                }
                // What has lasted is so until it is taken, also where it fails in another way now.
                if let Some(problem) = memory.lock().refused(template, self.turn == Turn::Later) {
                    self.problems.insert(0, problem);
                    self.held_back = true;
                }
                self.error = Some(Error::Apply(error));
            }
        }
    }
}

// === impl Urls ===

impl Urls {
    pub(super) fn of(validated: &ValidatedServer, namespace: &str, domain: &str) -> Self {
        Self {
            cluster: format!("http://{}.{namespace}.svc.{domain}/mcp", validated.names.service()),
            public: validated.public_host.as_ref().map(|host| format!("https://{host}/mcp")),
        }
    }
}
