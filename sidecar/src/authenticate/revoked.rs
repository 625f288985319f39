//! Whose keys were taken back. Another replica may not have heard of it, and its word for them is none.

use std::collections::HashSet;
use std::sync::Arc;

use super::Authenticator;

/// So many are remembered. A Secret has room for fewer.
const MOST: usize = 16 * 1024;

/// Principals that had a key here, and have none any more.
#[derive(Debug, Default)]
pub(crate) struct Revoked(HashSet<Arc<str>>);

impl Revoked {
    /// Those of before, and who has lost its last key since; whoever has a key again is none of them.
    pub(crate) fn since(before: &Self, were: &Authenticator, are: &Authenticator) -> Self {
        // Where nobody needs a key nobody lacks one.
        if !are.wants_keys() {
            return Self::default();
        }
        let are: HashSet<&Arc<str>> = are.principals().collect();
        let had = were.principals().filter(|_| were.wants_keys()).chain(&before.0);
        Self(had.filter(|principal| !are.contains(*principal)).take(MOST).cloned().collect())
    }

    /// Whether this principal is one of them.
    pub(crate) fn has(&self, principal: &str) -> bool {
        self.0.contains(principal)
    }
}

#[cfg(test)]
mod tests {
    use longshore_sidecar_config::{ApiKey, Keys, ToolFilter};

    use super::*;
    use crate::access::Access;

    #[test]
    fn whoever_has_lost_its_last_key_is_remembered_until_it_has_one_again() {
        let access = Access::compile(&[], &ToolFilter::default()).unwrap();
        let keys_of = |principals: &[&str]| {
            let key = |(number, principal): (usize, &&str)| ApiKey {
                principal: (*principal).to_owned(),
                sha256: format!("{number:064x}"),
            };
            let keys = principals.iter().enumerate().map(key).collect();
            Authenticator::api_keys(&Keys { keys, sessions: Vec::new() }, &access).unwrap()
        };
        let mut were = keys_of(&["a", "b", "b"]);
        let mut revoked = Revoked::default();
        for (now, expected) in [
            (Some(&["a", "b"][..]), &[][..]),
            (Some(&["a"]), &["b"]),
            (Some(&["c"]), &["a", "b"]),
            (Some(&["b"]), &["a", "c"]),
            (None, &[]),
            // Who had none is nobody from whom one was taken.
            (Some(&[]), &[]),
        ] {
            let are = now.map_or_else(|| Authenticator::anonymous(&access), keys_of);
            revoked = Revoked::since(&revoked, &were, &are);
            let mut names: Vec<&str> = revoked.0.iter().map(|name| &**name).collect();
            names.sort_unstable();
            assert_eq!(names, expected, "{now:?}");
            assert!(expected.iter().all(|name| revoked.has(name)));
            were = are;
        }
    }
}
