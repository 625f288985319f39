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

use crate::access::{Access, Caller};
use crate::authenticate::Authenticator;
use crate::inventory::readers::Readers;
use crate::peers::Replicas;
pub(crate) use files::digest;
use files::load;
pub(crate) use hosts::Hosts;
pub(crate) use watch::watch;

/// A configuration, checked and compiled.
pub(crate) struct Snapshot {
    /// The file as it was read, but that no call may take longer than this process permits.
    pub(crate) config: Config,
    /// The one revision that the server is spoken to in, if that is not to be found out.
    pub(crate) protocol: Option<Revision>,
    /// Its identity: the digest of its bytes.
    pub(crate) digest: String,
    /// `namespace/name` of the server, for the audit log.
    pub(crate) server: Arc<str>,
    /// Who may call at all.
    pub(crate) authenticator: Authenticator,
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
    /// The caller of this name, also one whose key is not known here: another replica's word for it counts.
    pub(crate) fn caller(&self, principal: &str) -> Caller {
        let known = self.authenticator.caller(principal).cloned();
        known.unwrap_or_else(|| self.access.caller(principal))
    }
}
