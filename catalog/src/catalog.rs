//! The catalog as its sources and its readers hold it.
//!
//! What a source tells of a server is shown at once: its health, its addresses, its tools. What they are found by is read
//! beside, by the [`Indexer`]: the newest of what came meanwhile, and of one server only so often that reading it takes a
//! tenth of a processor at most, namespace by namespace. Servers that change their lists all the time cost that, and nobody
//! of another namespace waits for them.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use thiserror::Error;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use crate::metrics::Metrics;
use crate::model::{Server, ServerDetails, Tool, ToolSummary};
use crate::record::{ServerKey, ServerRecord};
use crate::view::{self, Entry, Found, Page, View};

/// The shortest time between two readings of one server's words.
const PACE: Duration = Duration::from_millis(100);
/// For how long it is known whose words were read: who waits longer is first in any case.
const LATELY: Duration = Duration::from_secs(60);

/// All that is known of servers and their tools. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Catalog {
    shared: Arc<Shared>,
}

/// Reads what servers are found by. Run it beside whatever feeds the catalog.
#[derive(Debug)]
pub struct Indexer {
    shared: Arc<Shared>,
    /// When words of a namespace's servers were read last, if that was lately.
    read: HashMap<String, Instant>,
}

#[derive(Debug)]
struct Shared {
    /// Every change of it is whole when its guard goes, but for one that panics, and that ends the process.
    view: RwLock<View>,
    /// Servers whose words are to be read, and not before when.
    behind: Mutex<BTreeMap<ServerKey, Instant>>,
    /// When each server's words may be read again. Changes under the lock of `behind`.
    paid: Mutex<BTreeMap<ServerKey, Instant>>,
    wake: Notify,
    /// Whether nobody's words are to be read. Changes with `behind`, under its lock.
    caught_up: watch::Sender<bool>,
    next_id: AtomicU64,
    complete: AtomicBool,
    metrics: Metrics,
}

/// The indexer cannot go on.
#[derive(Debug, Error)]
pub enum IndexError {
    /// A reading broke off.
    #[error("reading what a server is found by broke off")]
    Broken(#[source] tokio::task::JoinError),
}

// === impl Catalog ===

impl Catalog {
    /// An empty catalog, and what has to run for it.
    pub fn new(metrics: Metrics) -> (Self, Indexer) {
        let shared = Arc::new(Shared {
            view: RwLock::default(),
            behind: Mutex::default(),
            paid: Mutex::default(),
            wake: Notify::new(),
            caught_up: watch::Sender::new(true),
            next_id: AtomicU64::new(0),
            complete: AtomicBool::new(false),
            metrics,
        });
        (Self { shared: shared.clone() }, Indexer { shared, read: HashMap::new() })
    }

    /// Lists a server, or what is new of it.
    pub fn upsert(&self, record: ServerRecord) {
        let key = record.key.clone();
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let behind = self.shared.view.write().enter(record, id, &now());
        if behind {
            let mut servers = self.shared.behind.lock();
            let due = self.shared.paid.lock().get(&key).copied().unwrap_or_else(Instant::now);
            servers.insert(key, due);
            self.shared.caught_up.send_replace(false);
            drop(servers);
            self.shared.wake.notify_one();
        }
    }

    /// Lists a server no longer.
    pub fn remove(&self, key: &ServerKey) {
        self.shared.view.write().remove(key);
        let mut servers = self.shared.behind.lock();
        servers.remove(key);
        self.shared.paid.lock().remove(key);
    }

    /// Whether any server of a namespace is listed.
    pub fn lists(&self, namespace: &str) -> bool {
        self.shared.view.read().servers.keys().any(|server| server.namespace == namespace)
    }

    /// From now on nothing is heard of what changes, or it is again. Answers say so.
    pub fn set_stale(&self, stale: bool) {
        let mut view = self.shared.view.write();
        if stale != view.stale.is_some() {
            view.stale = stale.then(now);
        }
        drop(view);
        self.shared.metrics.stale(stale);
    }

    /// Waits until every server is found by what its source told of it last.
    pub async fn caught_up(&self) {
        // The sender lives as long as this.
        let _ = self.shared.caught_up.subscribe().wait_for(|caught_up| *caught_up).await;
    }

    /// The source has listed every server that there is, and what they offer: from now on what is not here does not
    /// exist.
    pub fn set_complete(&self) {
        self.shared.complete.store(true, Ordering::Relaxed);
    }

    /// Whether it has.
    pub fn is_complete(&self) -> bool {
        self.shared.complete.load(Ordering::Relaxed)
    }

    /// A page of servers.
    pub fn list_servers(&self, page: &Page) -> Found<Server> {
        self.shared.view.read().servers_page(page)
    }

    /// A page of tools.
    pub fn list_tools(&self, page: &Page) -> Found<ToolSummary> {
        self.shared.view.read().tools_page(page)
    }

    /// One server.
    pub fn server(&self, key: &ServerKey) -> Option<ServerDetails> {
        let view = self.shared.view.read();
        Some(ServerDetails { server: view.server(key)?, freshness: view.freshness() })
    }

    /// One tool.
    pub fn tool(&self, key: &ServerKey, name: &str) -> Option<Tool> {
        self.shared.view.read().tool(key, name)
    }

    /// The catalog's metrics in Prometheus' text format, as they are now.
    pub fn export(&self) -> prometheus::Result<String> {
        let view = self.shared.view.read();
        self.shared.metrics.listed(view.servers.values().map(Entry::listed));
        drop(view);
        self.shared.metrics.text()
    }

    /// The catalog's metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }
}

// === impl Indexer ===

impl Indexer {
    /// Reads whatever is due, for ever.
    pub async fn run(mut self) -> Result<Infallible, IndexError> {
        loop {
            let Some((key, due)) = self.next() else {
                self.shared.wake.notified().await;
                continue;
            };
            if due > Instant::now() {
                tokio::select! {
                    () = sleep_until(due) => {}
                    () = self.shared.wake.notified() => {}
                }
                continue;
            }
            self.shared.behind.lock().remove(&key);
            self.read(&key).await?;
            self.read.retain(|_, read| read.elapsed() < LATELY);
            self.read.insert(key.namespace, Instant::now());
        }
    }

    fn next(&self) -> Option<(ServerKey, Instant)> {
        let behind = self.shared.behind.lock();
        self.shared.caught_up.send_replace(behind.is_empty());
        next(&behind, &self.read, Instant::now())
    }

    async fn read(&self, key: &ServerKey) -> Result<(), IndexError> {
        let source = {
            let view = self.shared.view.read();
            view.servers.get(key).map(|entry| (entry.id, entry.source()))
        };
        let Some((id, source)) = source else { return Ok(()) };
        let (of, began) = ((key.clone(), source.clone()), Instant::now());
        let segment = tokio::task::spawn_blocking(move || view::segment(&of.0, &of.1.0, of.1.1.as_deref()));
        let segment = segment.await.map_err(IndexError::Broken)?;
        let mut view = self.shared.view.write();
        let behind = view.publish(key, id, source, segment);
        drop(view);
        self.shared.metrics.indexed(began.elapsed());
        let now = Instant::now();
        let due = now + PACE.max((now - began) * 9);
        let mut servers = self.shared.behind.lock();
        // Whoever removes it takes it out of the view first, and forgets under this lock what is kept of it here.
        if self.shared.view.read().servers.contains_key(key) {
            self.shared.paid.lock().insert(key.clone(), due);
            // What came meanwhile knows only of the reading before. Or it went back to what it was before this, and
            // nobody noticed that it had ever changed.
            if behind || servers.contains_key(key) {
                servers.insert(key.clone(), due);
            }
        }
        Ok(())
    }
}

/// Whose words are read next, and not before when: of those that are due one of the namespace that waits longest.
fn next(
    behind: &BTreeMap<ServerKey, Instant>,
    read: &HashMap<String, Instant>,
    now: Instant,
) -> Option<(ServerKey, Instant)> {
    let order = |key: &ServerKey, due: Instant| {
        let is_due = due <= now;
        (!is_due, read.get(&key.namespace).copied().filter(|_| is_due), due)
    };
    let next = behind.iter().min_by_key(|(key, due)| order(key, **due));
    next.map(|(key, due)| (key.clone(), *due))
}

/// The time in whole seconds, RFC 3339.
fn now() -> String {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_of_many_restless_servers_has_its_turn_after_the_others() {
        let now = Instant::now();
        let at = |seconds: u64| now + Duration::from_secs(seconds);
        let key = |name: &str| {
            let (namespace, name) = name.split_once('/').unwrap();
            ServerKey { namespace: namespace.to_owned(), name: name.to_owned() }
        };
        let read = HashMap::from([("restless".to_owned(), at(9)), ("calm".to_owned(), at(5))]);
        for (behind, expected) in [
            (&[][..], None),
            (&[("restless/1", 1), ("restless/2", 2), ("calm/1", 10)], Some("calm/1")),
            (&[("restless/1", 1), ("calm/1", 8), ("new/1", 10)], Some("new/1")),
            (&[("restless/2", 2), ("restless/1", 3), ("calm/1", 11)], Some("restless/2")),
            (&[("new/1", 13), ("restless/1", 12)], Some("restless/1")),
        ] {
            let behind = behind.iter().map(|(name, due)| (key(name), at(*due))).collect();
            let next = next(&behind, &read, at(10)).map(|(key, _)| key);
            assert_eq!(next, expected.map(key), "{behind:?}");
        }
    }
}
