//! The configuration: two mounted files, read whole, checked whole, swapped whole.
//!
//! A [`Snapshot`] is everything that follows from the files, compiled. A request takes one when it begins and keeps it
//! to its end, so no request ever sees half of a change.

mod files;
mod hosts;
mod watch;

use std::sync::Arc;

use longshore_mcp::revision::Revision;
use longshore_sessions::Keyring;
use longshore_sidecar_config::Config;
use longshore_sidecar_config::inventory::Short;

use crate::access::{Access, Caller};
use crate::authenticate::{Authenticator, Revoked};
use crate::inventory::readers::Readers;
use crate::peers::Replicas;
pub(crate) use files::digest;
use files::load;
pub(crate) use hosts::Hosts;
pub(crate) use watch::watch;

/// A configuration, checked and compiled.
pub(crate) struct Snapshot {
    /// The file as it was read, but that no call may take longer, and there may not be more sessions, than this process permits.
    pub(crate) config: Config,
    /// What of it there is too little memory for.
    pub(crate) short: Short,
    /// The one revision that the server is spoken to in, if that is not to be found out.
    pub(crate) protocol: Option<Revision>,
    /// Its identity: the digest of its bytes.
    pub(crate) digest: String,
    /// `namespace/name` of the server, for the audit log.
    pub(crate) server: Arc<str>,
    /// Who may call at all.
    pub(crate) authenticator: Authenticator,
    /// Who may call no more.
    pub(crate) revoked: Revoked,
    /// What they may call.
    pub(crate) access: Access,
    /// Which names the server is known by.
    pub(crate) hosts: Hosts,
    /// What session ids are sealed with.
    pub(crate) keyring: Keyring,
    /// The other replicas. None where there are none.
    pub(crate) replicas: Option<Replicas>,
    /// Who may read the inventory.
    pub(crate) readers: Readers,
}

impl Snapshot {
    /// Notes what there is too little memory for: a request of more bytes than `largest`, and more than `most` sessions. Of
    /// those a principal may have the part that it may have of all, or a tenth, if that is more.
    fn fit(&mut self, largest: u64, most: u32) {
        let sessions = &mut self.config.sessions;
        self.short = Short {
            request_bytes: (self.config.limits.request_bytes > largest).then_some(largest),
            sessions: (sessions.total > most).then_some(most),
        };
        if self.short.sessions.is_some() {
            let part = u64::from(most) * u64::from(sessions.per_principal) / u64::from(sessions.total);
            let part = u32::try_from(part).unwrap_or(most).max(most / 10);
            sessions.per_principal = sessions.per_principal.min(part).max(1);
            sessions.total = most;
        }
    }

    /// The caller of this name, also one whose key is not known here: another replica's word for it counts.
    pub(crate) fn caller(&self, principal: &str) -> Caller {
        let known = self.authenticator.caller(principal).cloned();
        known.unwrap_or_else(|| self.access.caller(principal))
    }

    /// Whether callers see the same of the server's lists by the rules of the other one.
    pub(crate) fn shows_the_same(&self, other: &Self) -> bool {
        self.config.access == other.config.access && self.config.tools == other.config.tools
    }
}
