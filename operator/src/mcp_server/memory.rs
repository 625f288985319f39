//! What the operator remembers of its own doings, to write nothing twice. All of it can be lost: a restart only means
//! that every object is looked at or applied once more.

mod server;
mod undone;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::metrics::Counts;
use crate::mirror::ServerKey;
use crate::scope::{self, Scope};
use crate::view::Live;
pub(crate) use server::{Object, Record, SECRET, ServerMemory, Touch};

/// The memory of all servers.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    servers: Mutex<HashMap<ServerKey, Arc<Mutex<ServerMemory>>>>,
}

// === impl Memory ===

impl Memory {
    /// The memory of a server.
    pub(crate) fn of(&self, server: &ServerKey, uid: &str) -> Arc<Mutex<ServerMemory>> {
        let memory = self.servers.lock().entry(server.clone()).or_default().clone();
        let mut guard = memory.lock();
        if guard.uid != uid {
            *guard = ServerMemory::of(uid);
        }
        drop(guard);
        memory
    }

    /// Whether this server is remembered: from its first reconciliation until it has gone.
    pub(crate) fn knows(&self, server: &ServerKey, uid: &str) -> bool {
        let memory = self.servers.lock().get(server).cloned();
        memory.is_some_and(|memory| memory.lock().uid == uid)
    }

    /// Whether all that is new of a server in this version is the status that was written last.
    pub(crate) fn is_echo(&self, server: &ServerKey, seen: &Live) -> bool {
        let memory = self.servers.lock().get(server).cloned();
        memory.is_some_and(|memory| {
            let memory = memory.lock();
            memory.uid == seen.uid && memory.echo == Some(seen.version)
        })
    }

    /// The server has gone.
    pub(crate) fn forget(&self, server: &ServerKey) {
        self.servers.lock().remove(server);
    }

    /// Every server that is remembered.
    pub(crate) fn servers(&self) -> Vec<ServerKey> {
        self.servers.lock().keys().cloned().collect()
    }

    /// An object of a server has gone: it has to be applied again.
    pub(crate) fn forget_object(&self, server: &ServerKey, kind: &'static str, name: &str, uid: &str) {
        let memory = self.servers.lock().get(server).cloned();
        if let Some(memory) = memory {
            memory.lock().forget_object((kind, name.to_owned()), uid);
        }
    }

    /// A list of a kind is complete that was begun at this time. What had been applied until then and is not there went before
    /// any watch had seen it, and has to be applied again. Gives the servers that lack some. Whether one is there is asked by
    /// its name and its UID.
    pub(crate) fn forget_gone(
        &self,
        kind: &'static str,
        scope: &Scope,
        listed: Instant,
        is_there: impl Fn(&ServerKey, &str, &str) -> bool,
    ) -> Vec<ServerKey> {
        let in_scope: Vec<_> = {
            let servers = self.servers.lock();
            let in_scope = servers.iter().filter(|(server, _)| scope::covers(scope, &server.namespace));
            in_scope.map(|(server, memory)| (server.clone(), memory.clone())).collect()
        };
        let lacking = in_scope.into_iter().filter(|(server, memory)| {
            memory.lock().forget_gone(kind, listed, |name, uid| is_there(server, name, uid))
        });
        lacking.map(|(server, _)| server).collect()
    }

    /// How many servers there are.
    pub(crate) fn counts(&self) -> Counts {
        let servers: Vec<_> = self.servers.lock().values().cloned().collect();
        let mut counts = Counts::default();
        for server in servers {
            let (ready, pending) = {
                let memory = server.lock();
                (memory.ready, memory.pending)
            };
            ready.into_iter().for_each(|standing| *counts.standings.entry(standing).or_default() += 1);
            pending.into_iter().for_each(|pending| *counts.upgrades.entry(pending).or_default() += 1);
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_goes_while_it_is_applied_is_not_taken_for_there() {
        let server = ServerKey { namespace: "tools".to_owned(), name: "demo".to_owned() };
        let object = || ("Service", "demo".to_owned());
        let record = |uid: &str| {
            let live =
                Live { uid: uid.to_owned(), version: 7, fingerprint: 1, controller: None, applied: None };
            Some(Record { digest: String::new(), live, at: Instant::now() })
        };
        for (gone, applied, remembered) in [
            (None, Some("a"), true),
            (Some("a"), Some("a"), false),
            // The one before it.
            (Some("a"), Some("b"), true),
            (Some("a"), None, false),
        ] {
            let memory = Memory::default();
            let of_server = memory.of(&server, "7b1c");
            of_server.lock().begin(object());
            if let Some(uid) = gone {
                memory.forget_object(&server, "Service", "demo", uid);
            }
            of_server.lock().end(object(), applied.and_then(record));
            let known = of_server.lock().applied.contains_key(&object());
            assert_eq!(known, remembered, "{applied:?} is applied, {gone:?} goes");
        }
    }

    #[test]
    fn what_went_before_it_was_seen_is_applied_again() {
        let server = |namespace: &str| ServerKey { namespace: namespace.to_owned(), name: "demo".to_owned() };
        let (early, listed) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        let late = listed + Duration::from_secs(1);
        for (what, kind, at, scope, is_there, lacks) in [
            ("it has gone", "Service", early, None, false, true),
            ("in this namespace", "Service", early, Some("tools"), false, true),
            ("in another", "Service", early, Some("other"), false, false),
            ("it is there", "Service", early, None, true, false),
            ("it was made since", "Service", late, None, false, false),
            ("it is of another kind", "Secret", early, None, false, false),
        ] {
            let memory = Memory::default();
            let live =
                Live { uid: "a".to_owned(), version: 7, fingerprint: 1, controller: None, applied: None };
            let record = Record { digest: String::new(), live, at };
            let of_server = memory.of(&server("tools"), "7b1c");
            of_server.lock().applied.insert((kind, "demo".to_owned()), record);
            let scope = scope.map(str::to_owned);
            let lacking = memory.forget_gone("Service", &scope, listed, |_, _, _| is_there);
            assert_eq!(lacking, if lacks { vec![server("tools")] } else { vec![] }, "{what}");
            assert_eq!(of_server.lock().applied.is_empty(), lacks, "{what}");
        }
    }
}
