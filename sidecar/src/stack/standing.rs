//! Re-authorisation: what holds under the configuration in force, whatever held when a request was made. Whether one that
//! has no end of its own may go on, and what may be shown to its caller unasked.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use http::HeaderMap;
use longshore_mcp::listen::{self, Filter, Update};
use longshore_mcp::params::Target;

use super::authenticate::{Authenticated, Through};
use crate::access::{Caller, Decision};
use crate::configuration::Snapshot;
use crate::held::{Share, Shares, subscription};
use crate::refusal::Refusal;
use crate::shared::Shared;
use crate::tasks::Named;
use crate::worker::Worker;

/// What a subscription was permitted for.
pub(crate) struct Standing {
    /// With the credentials.
    headers: HeaderMap,
    through: Through,
    principal: Arc<str>,
    /// Whether the principal had a key here. Which one it was only the replica knows that looked at it.
    is_known: bool,
    /// What is listened to, but for tasks.
    filter: Filter,
    /// The tools whose tasks are.
    tools: BTreeSet<Arc<str>>,
    /// How many bytes there are of all that is listened to, for as long as it is.
    bytes: usize,
    share: Option<Share>,
}

/// A caller under the configuration in force.
pub(crate) struct Now {
    snapshot: Arc<Snapshot>,
    caller: Caller,
}

impl Standing {
    /// The standing of a caller who may hear of this and of these tasks.
    pub(crate) fn of(caller: &Authenticated, filter: Filter, tasks: &[Named]) -> Self {
        let of_tasks = tasks.iter().map(|task| subscription(&task.name) + task.id.len() + task.tool.len());
        let bytes = filter.uris.iter().map(|uri| subscription(uri)).chain(of_tasks).sum();
        let tools = tasks.iter().map(|task| task.tool.clone()).collect();
        Self {
            bytes,
            share: None,
            headers: caller.caller_alone().request.into_parts().0.headers,
            through: caller.through,
            principal: caller.principal().clone(),
            is_known: caller.snapshot.authenticator.caller(caller.principal()).is_some(),
            filter,
            tools,
        }
    }

    /// The lists whose changes are to be told.
    pub(crate) fn lists(&self) -> Filter {
        let Filter { tools, prompts, resources, uris: _ } = self.filter;
        Filter { tools, prompts, resources, ..Filter::default() }
    }

    /// Counts what is listened to, if there is room for it.
    pub(crate) fn take(&mut self, shares: &Arc<Shares>) -> Result<(), Refusal> {
        let share = shares.take(&self.principal, self.bytes).ok_or(Refusal::TooMuchKept)?;
        self.share = Some(share);
        Ok(())
    }

    /// Whether it still holds: a key that was revoked opens nothing any more, and keeps nothing open.
    pub(crate) fn holds(&mut self, snapshot: &Snapshot) -> bool {
        self.caller(snapshot).is_some_and(|caller| {
            let may = |target| permits(snapshot, &caller, &target);
            self.filter.uris.iter().all(|uri| may(Target::Resource(uri.as_str().into())))
                && self.tools.iter().all(|tool| may(Target::Tool((**tool).into())))
        })
    }

    /// The same caller under another configuration.
    fn caller(&mut self, snapshot: &Snapshot) -> Option<Caller> {
        match self.through {
            Through::Client => {
                let caller = snapshot.authenticator.authenticate(&self.headers).ok()?;
                (caller.principal == self.principal).then(|| caller.clone())
            }
            Through::Replica | Through::Within => {
                let is_known = snapshot.authenticator.caller(&self.principal).is_some();
                let was_known = std::mem::replace(&mut self.is_known, is_known);
                (is_known || !was_known).then(|| snapshot.caller(&self.principal))
            }
        }
    }
}

/// Returns when a caller may not listen any more: a key that was revoked opens nothing any more, and keeps nothing open.
pub(crate) async fn revoked(worker: Rc<Worker>, mut caller: Authenticated) {
    let principal = caller.principal().clone();
    let mut changed = worker.shared.config_changed.subscribe();
    // There may be another configuration since the stream was permitted.
    changed.mark_changed();
    while changed.changed().await.is_ok() {
        match caller.once_more(&worker) {
            Ok(again) if *again.principal() == principal => caller = again,
            Ok(_) | Err(_) => return,
        }
    }
}

impl Now {
    /// None: there is no configuration.
    pub(crate) fn of(shared: &Shared, principal: &str) -> Option<Self> {
        let snapshot = shared.snapshot.load_full()?;
        let caller = snapshot.caller(principal);
        Some(Self { snapshot, caller })
    }

    /// The configuration.
    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Whether the caller may see this. It is the decision that guards calls.
    pub(crate) fn permits(&self, target: &Target<'_>) -> bool {
        permits(&self.snapshot, &self.caller, target)
    }
}

/// Whether a principal may hear this message of the server: that a resource has changed is for those who may read it.
pub(crate) fn may_hear(shared: &Shared, principal: &str, message: &[u8]) -> bool {
    match std::str::from_utf8(message).ok().and_then(listen::updated) {
        None => true,
        Some(Update::Of(uri)) => {
            Now::of(shared, principal).is_some_and(|now| now.permits(&Target::Resource(uri.into())))
        }
        Some(Update::Unreadable) => false,
    }
}

fn permits(snapshot: &Snapshot, caller: &Caller, target: &Target<'_>) -> bool {
    matches!(snapshot.access.decide(caller, target), Decision::Permit(_))
}
