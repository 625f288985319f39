//! What a server may tell sessions apart by.

use std::collections::VecDeque;

use longshore_mcp::revision::Revision;
use longshore_sessions::capsule::{PrincipalDigest, canonical};
use longshore_sidecar_config::{Isolation, Upstream};

/// A digest of it, since clients write some of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key([u8; 32]);

/// All of it, as it was written.
pub(super) struct Told<'a> {
    pub(super) principal: &'a str,
    pub(super) capabilities: &'a str,
    pub(super) info: Option<&'a str>,
    /// What the client speaks, and the server.
    pub(super) revisions: [Revision; 2],
    pub(super) upstream: &'a Upstream,
    /// Who else is in its process decides on what it may be asked.
    pub(super) isolation: Option<Isolation>,
}

/// How many keys are known at once.
const MAX: usize = 16;
/// The most that a client may have written for its key to be known.
const MAX_WRITTEN: usize = 4 * 1024;

/// The keys that were asked for lately. Who calls, calls again, and to make a key takes longer than to know it.
#[derive(Default)]
pub(super) struct Keys(VecDeque<Known>);

struct Known {
    principal: String,
    capabilities: String,
    info: Option<String>,
    revisions: [Revision; 2],
    upstream: Upstream,
    isolation: Option<Isolation>,
    key: Key,
}

impl Keys {
    pub(super) fn of(&mut self, told: &Told<'_>) -> Key {
        if let Some(known) = self.0.iter().find(|known| known.is_of(told)) {
            return known.key;
        }
        let key = Key::of(told);
        let written = told.principal.len() + told.capabilities.len() + told.info.map_or(0, str::len);
        if written <= MAX_WRITTEN {
            self.0.truncate(MAX - 1);
            self.0.push_front(Known {
                principal: told.principal.to_owned(),
                capabilities: told.capabilities.to_owned(),
                info: told.info.map(str::to_owned),
                revisions: told.revisions,
                upstream: told.upstream.clone(),
                isolation: told.isolation,
                key,
            });
        }
        key
    }
}

impl Known {
    fn is_of(&self, told: &Told<'_>) -> bool {
        let Self { principal, capabilities, info, revisions, upstream, isolation, .. } = self;
        principal == told.principal
            && capabilities == told.capabilities
            && info.as_deref() == told.info
            && *revisions == told.revisions
            && upstream == told.upstream
            && *isolation == told.isolation
    }
}

impl Key {
    fn of(told: &Told<'_>) -> Self {
        let Told { principal, capabilities, info, revisions: [client, server], upstream, isolation } = told;
        let part = |json: &str| canonical(json).unwrap_or_else(|| json.into());
        let info = info.map(part).unwrap_or_default();
        // Each part behind its length, so that none can be taken for a piece of another.
        let mut text = String::new();
        for part in [
            *principal,
            &part(capabilities),
            &info,
            client.as_str(),
            server.as_str(),
            &format!("{upstream:?}"),
            &format!("{isolation:?}"),
        ] {
            text.push_str(&format!("{}:{part}", part.len()));
        }
        Self(PrincipalDigest::of(&text).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_says_what_a_server_can_tell_apart_however_it_is_written() {
        let here = Upstream::StreamableHttp { port: 1, path: "/".to_owned() };
        let there = Upstream::StreamableHttp { port: 2, path: "/".to_owned() };
        let revisions = [Revision::V2026_07_28, Revision::V2025_11_25];
        let told = |principal, capabilities, info| Told {
            principal,
            capabilities,
            info,
            revisions,
            upstream: &here,
            isolation: None,
        };
        let mut keys = Keys::default();
        let key = keys.of(&told("ann", r#"{"a":1,"b":2}"#, None));
        for _ in 0..2 {
            assert!(key == keys.of(&told("ann", r#"{"a":1,"b":2}"#, None)));
            assert!(key == keys.of(&told("ann", r#"{ "b":2, "a":1 }"#, None)));
            for other in [
                told("bob", r#"{"a":1,"b":2}"#, None),
                told("ann", r#"{"a":1}"#, None),
                told("ann", r#"{"a":1,"b":2}"#, Some("{}")),
                Told { upstream: &there, ..told("ann", r#"{"a":1,"b":2}"#, None) },
                Told { revisions: [revisions[0]; 2], ..told("ann", r#"{"a":1,"b":2}"#, None) },
                Told { isolation: Some(Isolation::Session), ..told("ann", r#"{"a":1,"b":2}"#, None) },
            ] {
                assert!(key != keys.of(&other));
            }
        }
        let long = "x".repeat(MAX_WRITTEN + 1);
        let many: Vec<String> = (0..2 * MAX).map(|number| number.to_string()).chain([long]).collect();
        for name in &many {
            keys.of(&told(name, "{}", None));
        }
        assert_eq!(keys.0.len(), MAX);
    }
}
