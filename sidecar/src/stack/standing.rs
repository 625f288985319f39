//! Whether a request that has no end of its own may go on under another configuration.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::HeaderMap;
use longshore_mcp::params::Target;

use super::authenticate::{Authenticated, Through};
use crate::access::{Caller, Decision};
use crate::configuration::Snapshot;

/// What a subscription was permitted for.
pub(crate) struct Standing {
    /// With the credentials.
    headers: HeaderMap,
    through: Through,
    principal: Arc<str>,
    /// Whether the principal had a key here. Which one it was only the replica knows that looked at it.
    is_known: bool,
    /// The resources that are listened to.
    uris: BTreeSet<String>,
}

impl Standing {
    /// That of a caller who may hear of these resources.
    pub(crate) fn of(caller: &Authenticated, uris: BTreeSet<String>) -> Self {
        Self {
            headers: caller.request.headers().clone(),
            through: caller.through,
            principal: caller.principal().clone(),
            is_known: caller.snapshot.authenticator.caller(caller.principal()).is_some(),
            uris,
        }
    }

    /// Whether it still holds: a key that was revoked opens nothing any more, and keeps nothing open.
    pub(crate) fn holds(&mut self, snapshot: &Snapshot) -> bool {
        self.caller(snapshot).is_some_and(|caller| {
            let may_read = |uri: &String| {
                let decision = snapshot.access.decide(&caller, &Target::Resource(uri.as_str().into()));
                matches!(decision, Decision::Permit(_))
            };
            self.uris.iter().all(may_read)
        })
    }

    /// The same caller under another configuration.
    fn caller(&mut self, snapshot: &Snapshot) -> Option<Caller> {
        match self.through {
            Through::Client => {
                let caller = snapshot.authenticator.authenticate(&self.headers).ok()?;
                (caller.principal == self.principal).then(|| caller.clone())
            }
            Through::Replica => {
                let known = snapshot.authenticator.caller(&self.principal).cloned();
                let was_known = std::mem::replace(&mut self.is_known, known.is_some());
                match known {
                    None if was_known => None,
                    known => Some(known.unwrap_or_else(|| snapshot.access.caller(&self.principal))),
                }
            }
        }
    }
}
