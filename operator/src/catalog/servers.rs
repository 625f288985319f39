//! The manifests that the catalog goes by, and which servers are due because of them.

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;

use super::published::Published;
use crate::mirror::ServerKey;
use crate::reading::MaybeUnreadable;
use crate::scope::{self, Scope};

/// What the watches of manifests share with whoever looks at the servers.
#[derive(Clone)]
pub(super) struct Servers {
    /// The manifests that say that their servers are listed.
    pub(super) published: Arc<Mutex<HashMap<ServerKey, Published>>>,
    /// Servers to look at. Unbounded in type and bounded by nature: each entry is a change that the API server or a sidecar told.
    pub(super) due: UnboundedSender<ServerKey>,
}

// === impl Servers ===

impl Servers {
    /// Follows the manifests of a scope.
    pub(super) async fn follow(&self, events: impl Stream<Item = Event<MaybeUnreadable>>, scope: &Scope) {
        let mut events = pin!(events);
        let mut listed = BTreeSet::new();
        while let Some(event) = events.next().await {
            match event {
                Event::Init => listed.clear(),
                Event::InitApply(server) => {
                    listed.insert(ServerKey::of(&server));
                    self.seen(&server);
                }
                Event::InitDone => {
                    let gone: Vec<_> = {
                        let published = self.published.lock();
                        let in_scope =
                            published.keys().filter(|server| scope::covers(scope, &server.namespace));
                        in_scope.filter(|server| !listed.contains(*server)).cloned().collect()
                    };
                    gone.into_iter().for_each(|server| self.forget(server));
                    listed = BTreeSet::new();
                }
                Event::Apply(server) => self.seen(&server),
                Event::Delete(server) => self.forget(ServerKey::of(&server)),
            }
        }
    }

    fn seen(&self, server: &MaybeUnreadable) {
        let key = ServerKey::of(server);
        match &server.0 {
            Ok(server) => {
                let published = Published::of(server);
                let mut known = self.published.lock();
                let before = match published.clone() {
                    Some(published) => known.insert(key.clone(), published),
                    None => known.remove(&key),
                };
                if before == published {
                    return;
                }
            }
            // Of another version. What was known of it is better than nothing.
            Err(error) => {
                tracing::warn!(namespace = %key.namespace, server = %key.name, error = %error.error, "cannot read an McpServer");
                return;
            }
        }
        // The receiver ends only with the process.
        let _ = self.due.send(key);
    }

    fn forget(&self, server: ServerKey) {
        self.published.lock().remove(&server);
        let _ = self.due.send(server);
    }
}
