//! The tasks of the server, by the ids that their clients know them by. Such an id is sealed, and says whose the task is:
//! that is all that a request for one is judged by, on any replica.
//!
//! Where a server speaks of tasks on its own account, in lists above all, nothing says whose they are. Then only those
//! are named that were begun or asked for here; what is not known any more is left out, and still found by its id.
//!
//! A server may give an id twice, against the protocol: where it counts, and is another one than it was, or beside
//! another replica. Whose the newest of them is, has it, and nobody else.

use std::borrow::Cow;
use std::cell::LazyCell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_mcp::method::ServerNotification;
use longshore_mcp::params::Target;
use longshore_mcp::tasks::{self, Place, Unnameable};
use longshore_sessions::capsule::PrincipalDigest;
use longshore_sessions::{Peer, TaskId};
use longshore_sidecar_config::Isolation;
use tokio::sync::Notify;

use crate::configuration::Snapshot;
use crate::shared::Shared;
use crate::stack::standing::Now;

/// The most tasks that are remembered of all principals, each of some hundred bytes, and of one.
const MAX_KNOWN: usize = 4096;
const MAX_OF_PRINCIPAL: usize = 512;

/// What the threads of a process share of it.
pub(crate) struct Tasks {
    /// Beside which replica the server is that begins them.
    me: Peer,
    known: Mutex<Known>,
    /// There is a task more, or a call less that may begin one.
    changed: Notify,
}

#[derive(Default)]
struct Known {
    /// The oldest first.
    of: HashMap<PrincipalDigest, VecDeque<Named>>,
    count: usize,
    /// How many calls are under way that may begin a task.
    beginning: HashMap<PrincipalDigest, usize>,
}

/// A task: what the server calls it, what its client does, and the tool that was called for it.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) id: Box<str>,
    pub(crate) name: Arc<str>,
    pub(crate) tool: Arc<str>,
}

/// How the tasks are called in what the server says to one request.
pub(crate) struct Naming {
    pub(crate) shared: Arc<Shared>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) principal: Arc<str>,
    /// Where they stand in the answer.
    pub(crate) place: Place,
    /// Those that the request names.
    pub(crate) asked: Vec<Named>,
    /// The tool that the request calls.
    pub(crate) tool: String,
    /// That it may begin a task of a session.
    pub(crate) _beginning: Option<Beginning>,
}

/// A call that may begin a task, while it is under way.
pub(crate) struct Beginning {
    shared: Arc<Shared>,
    principal: PrincipalDigest,
}

// === impl Tasks ===

impl Tasks {
    /// None yet.
    pub(crate) fn new(me: Peer) -> Self {
        Self { me, known: Mutex::default(), changed: Notify::new() }
    }

    /// The task that a client names, if it is this principal's, wherever its server is.
    pub(crate) fn open(snapshot: &Snapshot, principal: &str, name: &str) -> Option<TaskId> {
        let task = snapshot.keyring.open_task(name).ok()?;
        (task.principal == PrincipalDigest::of(principal)).then_some(task)
    }

    /// The same for whoever asks the server here for it, if that has no other task of this id.
    pub(crate) fn open_here(&self, snapshot: &Snapshot, principal: &str, name: &str) -> Option<TaskId> {
        let task = Self::open(snapshot, principal, name)?;
        if are_shared(snapshot) && self.lock().has_another(&task) {
            return None;
        }
        if self.is_here(&task) {
            self.note(task.principal, Named::of(&task, name.into()));
        }
        Some(task)
    }

    /// Whether the server that began a task is the one here.
    pub(crate) fn is_here(&self, task: &TaskId) -> bool {
        task.owner == self.me
    }

    /// Names a task that the server has begun for a principal.
    fn begun(&self, snapshot: &Snapshot, principal: &str, tool: &str, id: &str) -> Option<Arc<str>> {
        let principal = PrincipalDigest::of(principal);
        // What is asked for elsewhere first, or told, may have been named already.
        if let Some(task) = self.named(principal, id).filter(|task| &*task.tool == tool) {
            return Some(task.name);
        }
        self.lock().forget(id, |of| of == principal || are_shared(snapshot));
        let task = TaskId { owner: self.me.clone(), principal, tool: tool.to_owned(), id: id.to_owned() };
        let mut nonce = [0; 12];
        getrandom::fill(&mut nonce).ok()?;
        let sealed = snapshot.keyring.seal_task(&task, nonce);
        let name: Arc<str> =
            sealed.inspect_err(|error| tracing::warn!(%error, "a task is lost")).ok()?.into();
        self.note(principal, Named::of(&task, name.clone()));
        Some(name)
    }

    /// What a principal knows a task of the server by.
    pub(crate) fn named(&self, principal: PrincipalDigest, id: &str) -> Option<Named> {
        self.lock().of.get(&principal)?.iter().find(|task| &*task.id == id).cloned()
    }

    /// The same where it is shown unasked, to somebody who may do this now: whoever may not call its tool any more does
    /// not hear of it either.
    pub(crate) fn shown(&self, principal: PrincipalDigest, id: &str, now: Option<&Now>) -> Option<String> {
        let task = self.named(principal, id)?;
        now?.permits(&Target::Tool((*task.tool).into())).then(|| (*task.name).to_owned())
    }

    /// Whether a call of this principal is under way that may begin a task.
    pub(crate) fn is_beginning(&self, principal: PrincipalDigest) -> bool {
        self.lock().beginning.contains_key(&principal)
    }

    /// Waits until it is known how a task is called, or no call is under way that may have begun it: servers may speak of
    /// it before they answer that call.
    pub(crate) async fn begun_or_not(&self, principal: PrincipalDigest, id: &str) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.named(principal, id).is_some() || !self.is_beginning(principal) {
                return;
            }
            changed.await;
        }
    }

    fn note(&self, principal: PrincipalDigest, task: Named) {
        self.remember(principal, task);
        self.changed.notify_waiters();
    }

    fn remember(&self, principal: PrincipalDigest, task: Named) {
        let mut known = self.lock();
        if known.of.get(&principal).is_some_and(|own| own.iter().any(|one| one.id == task.id)) {
            return;
        }
        let own = known.of.entry(principal).or_default();
        own.push_back(task);
        if own.len() > MAX_OF_PRINCIPAL {
            own.pop_front();
            return;
        }
        known.count += 1;
        if known.count > MAX_KNOWN {
            known.forget_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Nothing that holds the lock can leave it half changed.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Whether the task of this id is known to be somebody else's, or another tool's.
    fn has_another(&self, task: &TaskId) -> bool {
        self.of.iter().any(|(principal, tasks)| {
            let mut same = tasks.iter().filter(|one| *one.id == task.id);
            same.any(|one| *principal != task.principal || *one.tool != task.tool)
        })
    }

    /// Forgets the tasks of this id that are of any of these.
    fn forget(&mut self, id: &str, is_of: impl Fn(PrincipalDigest) -> bool) {
        let count = &mut self.count;
        self.of.retain(|principal, tasks| {
            if is_of(*principal) {
                *count -= tasks.len();
                tasks.retain(|task| &*task.id != id);
                *count += tasks.len();
            }
            !tasks.is_empty()
        });
    }

    /// Forgets the oldest task of whoever has the most, so that nobody crowds others out.
    fn forget_one(&mut self) {
        let most = self.of.iter().max_by_key(|(_, own)| own.len()).map(|(principal, _)| *principal);
        let Some(principal) = most else { return };
        if let Some(own) = self.of.get_mut(&principal) {
            self.count -= usize::from(own.pop_front().is_some());
            if own.is_empty() {
                self.of.remove(&principal);
            }
        }
    }
}

/// Whether the tasks of all principals are at one server, and not each at a process of its own.
fn are_shared(snapshot: &Snapshot) -> bool {
    snapshot.config.limits.processes.is_none_or(|processes| processes.isolation == Isolation::Shared)
}

// === impl Beginning ===

impl Beginning {
    /// From now on.
    pub(crate) fn of(shared: &Arc<Shared>, principal: &str) -> Self {
        let principal = PrincipalDigest::of(principal);
        *shared.tasks.lock().beginning.entry(principal).or_default() += 1;
        Self { shared: shared.clone(), principal }
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        let tasks = &self.shared.tasks;
        if let Entry::Occupied(mut calls) = tasks.lock().beginning.entry(self.principal) {
            *calls.get_mut() -= 1;
            if *calls.get() == 0 {
                calls.remove();
            }
        }
        tasks.changed.notify_waiters();
    }
}

// === impl Named ===

impl Named {
    /// A task under this name.
    pub(crate) fn of(task: &TaskId, name: Arc<str>) -> Self {
        Self { id: task.id.as_str().into(), name, tool: task.tool.as_str().into() }
    }
}

// === impl Naming ===

impl Naming {
    /// An answer with the names that the client knows.
    pub(crate) fn answer<'a>(&self, message: &'a str) -> Result<Cow<'a, str>, Unnameable> {
        let now = LazyCell::new(|| self.now());
        tasks::answer(message, self.place, |id| self.name(id, || now.as_ref()))
    }

    /// What the server says beside answers. `None`: it is not for this client.
    pub(crate) fn aside<'a>(
        &self,
        message: &'a str,
        method: &str,
    ) -> Result<Option<Cow<'a, str>>, Unnameable> {
        let now = LazyCell::new(|| self.now());
        if method == ServerNotification::SubscriptionsAcknowledged.as_str() {
            return tasks::listened(message, |id| self.name(id, || now.as_ref())).map(Some);
        }
        tasks::aside(message, method, |id| self.name(id, || now.as_ref()))
    }

    fn now(&self) -> Option<Now> {
        Now::of(&self.shared, &self.principal)
    }

    fn name<'a>(&self, id: &str, now: impl FnOnce() -> Option<&'a Now>) -> Option<String> {
        if let Some(task) = self.asked.iter().find(|task| &*task.id == id) {
            return Some((*task.name).to_owned());
        }
        let tasks = &self.shared.tasks;
        match self.place {
            Place::Begun => {
                let name = tasks.begun(&self.snapshot, &self.principal, &self.tool, id);
                name.map(|name| (*name).to_owned())
            }
            Place::Task | Place::List | Place::Meta => {
                tasks.shown(PrincipalDigest::of(&self.principal), id, now())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use longshore_sessions::PodId;

    use super::*;

    fn tasks() -> Tasks {
        Tasks::new(Peer { pod: PodId::new("pod").unwrap(), address: IpAddr::from([127, 0, 0, 1]) })
    }

    fn named(number: usize) -> Named {
        Named { id: number.to_string().into(), name: format!("name {number}").into(), tool: "tool".into() }
    }

    #[test]
    fn a_task_is_named_to_its_own_principal_alone() {
        let (tasks, ann, bob) = (tasks(), PrincipalDigest::of("ann"), PrincipalDigest::of("bob"));
        tasks.note(ann, named(1));
        tasks.note(ann, Named { name: "again".into(), ..named(1) });
        assert_eq!(&*tasks.named(ann, "1").unwrap().name, "name 1", "the name that the client has");
        assert!(tasks.named(bob, "1").is_none());
        assert_eq!(tasks.lock().count, 1);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_nobody_crowds_others_out() {
        let (tasks, ann, bob) = (tasks(), PrincipalDigest::of("ann"), PrincipalDigest::of("bob"));
        tasks.note(bob, named(0));
        (0..=MAX_OF_PRINCIPAL).for_each(|number| tasks.note(ann, named(number)));
        assert!(tasks.named(ann, "0").is_none());
        assert!(tasks.named(ann, "1").is_some() && tasks.named(bob, "0").is_some());
        for principal in 0..MAX_KNOWN / MAX_OF_PRINCIPAL {
            let principal = PrincipalDigest::of(&principal.to_string());
            (0..MAX_OF_PRINCIPAL).for_each(|number| tasks.note(principal, named(number)));
        }
        let known = tasks.lock();
        assert_eq!(known.count, MAX_KNOWN);
        assert_eq!(known.of.values().map(VecDeque::len).sum::<usize>(), MAX_KNOWN);
        drop(known);
        assert!(tasks.named(bob, "0").is_some());
    }
}
