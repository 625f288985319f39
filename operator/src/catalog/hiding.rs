//! Which tools manifests hide: a sidecar leaves them out, and what is known may be from before that, or from one that has
//! not heard of it.
//!
//! Globs and names are other people's, and many of both can be such that it takes minutes to hold them against each
//! other. So that is done beside everything else, a glob at a time: a server waits for one glob of each other. Those that
//! are quickly done take turns among themselves, and wait for none that is not; so two matchers are in memory at most.
//! What was listed before stays meanwhile, and is not found out again as long as a server's names are the same.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use longshore_catalog::Offer;
use longshore_sidecar::ExistingTools;
use longshore_sidecar_config::ToolFilter;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinError, JoinSet, spawn_blocking};
use tokio_util::sync::CancellationToken;

use crate::mirror::ServerKey;

/// Bytes of names, times bytes of the globs that they are held against: up to so many are done within some 10 ms.
const QUICK: usize = 1 << 20;

/// The tools of a server.
#[derive(Clone, Debug, Default)]
pub(super) struct Tools {
    /// What it was heard to offer.
    pub(super) offer: Option<Arc<Offer>>,
    /// As long as it was not heard, the names that are known.
    pub(super) known: Vec<String>,
}

/// Leaves out what manifests hide.
pub(super) struct Hiding {
    servers: HashMap<ServerKey, Server>,
    jobs: JoinSet<Result<Done, JoinError>>,
    /// Whose glob it is.
    turn: Arc<Semaphore>,
    /// The same for those that are quickly done.
    quick: Arc<Semaphore>,
}

/// What was done for a server last, and what is being done.
#[derive(Default)]
struct Server {
    done: Option<Done>,
    under_way: Option<UnderWay>,
}

/// Ends when it is dropped.
struct UnderWay {
    filter: ToolFilter,
    job: AbortHandle,
}

struct Done {
    server: ServerKey,
    job: Arc<Job>,
    listed: Tools,
}

#[derive(Clone)]
struct Job {
    filter: ToolFilter,
    all: Tools,
}

/// One glob of a filter, as a filter.
enum Step {
    Include(ToolFilter),
    Exclude(ToolFilter),
}

// === impl Hiding ===

impl Hiding {
    pub(super) fn new() -> Self {
        let turn = || Arc::new(Semaphore::new(1));
        Self { servers: HashMap::new(), jobs: JoinSet::new(), turn: turn(), quick: turn() }
    }

    /// Those of a server's tools that exist, if that is known; else those of which it was known last, and
    /// [`Self::done`] tells when it is.
    pub(super) fn listed(&mut self, server: &ServerKey, filter: &ToolFilter, all: Tools) -> Tools {
        if *filter == ToolFilter::default() {
            self.forget(server);
            return all;
        }
        let known = self.servers.entry(server.clone()).or_default();
        match &mut known.done {
            Some(done) if done.job.filter == *filter && done.job.all.has_names_of(&all) => {
                done.takes(all);
                // It is for what was taken back again.
                known.under_way = None;
            }
            // Other names wait for their turn: of a server that changes them often nothing would be known otherwise.
            _ if known.under_way.as_ref().is_some_and(|under_way| under_way.filter == *filter) => {}
            _ => {
                let job = Arc::new(Job { filter: filter.clone(), all });
                let turn = if job.is_quick() { &self.quick } else { &self.turn };
                let job = self.jobs.spawn(job.run(server.clone(), turn.clone()));
                // It takes the place of one whose filter was replaced before it was in force.
                known.under_way = Some(UnderWay { filter: filter.clone(), job });
            }
        }
        known.done.as_ref().map(|done| done.listed.clone()).unwrap_or_default()
    }

    /// Whether more will be known of a server.
    pub(super) fn is_at(&self, server: &ServerKey) -> bool {
        self.servers.get(server).is_some_and(|known| known.under_way.is_some())
    }

    /// The server is no more, or another.
    pub(super) fn forget(&mut self, server: &ServerKey) {
        self.servers.remove(server);
    }

    /// The next server of which it is known which tools exist. `None` if that cannot be found out.
    pub(super) async fn done(&mut self) -> Option<ServerKey> {
        loop {
            let Some(ended) = self.jobs.join_next_with_id().await else { std::future::pending().await };
            let (id, done) = match ended.and_then(|(id, done)| Ok((id, done?))) {
                Ok(ended) => ended,
                Err(error) if error.is_cancelled() => continue,
                Err(error) => {
                    tracing::error!(%error, "finding out which tools exist broke off");
                    return None;
                }
            };
            let Some(known) = self.servers.get_mut(&done.server) else { continue };
            // Else it was for another filter, or another server of that name.
            if known.under_way.as_ref().is_some_and(|under_way| under_way.job.id() == id) {
                let server = done.server.clone();
                *known = Server { done: Some(done), under_way: None };
                return Some(server);
            }
        }
    }
}

// === impl UnderWay ===

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.job.abort();
    }
}

// === impl Done ===

impl Done {
    /// What else is said of the same tools may be new.
    fn takes(&mut self, all: Tools) {
        if !self.job.all.is(&all) {
            self.listed = all.only(|name| self.listed.has(name));
            Arc::make_mut(&mut self.job).all = all;
        }
    }
}

// === impl Job ===

impl Job {
    async fn run(self: Arc<Self>, server: ServerKey, turn: Arc<Semaphore>) -> Result<Done, JoinError> {
        let stop = CancellationToken::new();
        // Whoever ends this ends the glob under way.
        let _guard = stop.clone().drop_guard();
        let mut exist = vec![self.filter.include.is_empty(); self.all.names().count()];
        for step in Step::all(&self.filter) {
            let (job, stop, turn) = (self.clone(), stop.clone(), turn.clone().acquire_owned().await);
            exist = spawn_blocking(move || {
                let _turn = turn;
                step.take(job.all.names(), exist, &stop)
            })
            .await?;
        }
        let exists: HashSet<_> =
            self.all.names().zip(exist).filter_map(|(name, exists)| exists.then_some(name)).collect();
        let listed = self.all.only(|name| exists.contains(name));
        Ok(Done { server, job: self.clone(), listed })
    }

    fn is_quick(&self) -> bool {
        let globs: usize = self.filter.include.iter().chain(&self.filter.exclude).map(String::len).sum();
        let names: usize = self.all.names().map(str::len).sum();
        names.saturating_mul(globs) <= QUICK
    }
}

// === impl Step ===

impl Step {
    fn all(filter: &ToolFilter) -> Vec<Self> {
        let include = |glob: &String| ToolFilter { include: vec![glob.clone()], exclude: vec![] };
        let exclude = |glob: &String| ToolFilter { include: vec![], exclude: vec![glob.clone()] };
        let included = filter.include.iter().map(|glob| Self::Include(include(glob)));
        included.chain(filter.exclude.iter().map(|glob| Self::Exclude(exclude(glob)))).collect()
    }

    /// Which exist, of those of which that is said so far. Anything, once it has to stop.
    fn take<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
        mut exist: Vec<bool>,
        stop: &CancellationToken,
    ) -> Vec<bool> {
        let (Self::Include(glob) | Self::Exclude(glob)) = self;
        let includes = matches!(self, Self::Include(_));
        let has = ExistingTools::compile(glob);
        // A glob that cannot be read is none of a filter's; were there one, it could hide everything.
        let has = |name: &str| has.as_ref().is_ok_and(|has| has.has(name));
        for (name, exists) in names.zip(&mut exist) {
            if stop.is_cancelled() {
                break;
            }
            // What another glob includes is included, and what one excludes is no more.
            if *exists != includes {
                *exists = has(name);
            }
        }
        exist
    }
}

// === impl Tools ===

impl Tools {
    fn is(&self, other: &Self) -> bool {
        let same = match (&self.offer, &other.offer) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        same && self.known == other.known
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let offered = self.offer.iter().flat_map(|offer| &offer.tools).map(|tool| &*tool.name);
        offered.chain(self.known.iter().map(String::as_str))
    }

    fn has(&self, name: &str) -> bool {
        self.offer.as_ref().is_some_and(|offer| offer.tool(name).is_some())
            || self.known.iter().any(|known| known == name)
    }

    fn has_names_of(&self, other: &Self) -> bool {
        self.is(other) || self.names().eq(other.names())
    }

    fn only(&self, exists: impl Fn(&str) -> bool) -> Self {
        Self {
            offer: self.offer.clone().map(|offer| offer.only(&exists)),
            known: self.known.iter().filter(|tool| exists(tool)).cloned().collect(),
        }
    }
}
