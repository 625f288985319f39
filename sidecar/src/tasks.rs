//! The tasks of the server, by the ids that their clients know them by. Such an id is sealed, and says whose the task is:
//! that is all that a request for one is judged by, on any replica.
//!
//! Where a server speaks of tasks on its own account, in lists above all, nothing says whose they are. Then only those
//! are named that were begun or asked for here; what is not known any more is left out, and still found by its id.

mod known;

use std::borrow::Cow;
use std::cell::LazyCell;
use std::pin::pin;
use std::sync::Arc;

use http::HeaderValue;
use longshore_mcp::method::ServerNotification;
use longshore_mcp::params::Target;
use longshore_mcp::tasks::{self, Place, Unnameable};
use longshore_sessions::capsule::PrincipalDigest;
use longshore_sessions::{Peer, TaskId};
use longshore_sidecar_config::Isolation;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::configuration::Snapshot;
use crate::counts_by_owner::Tally;
use crate::shared::Shared;
use crate::stack::standing::Now;
use known::All;
pub(crate) use known::At;

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
    tasks: All,
    /// How many calls are under way that may begin a task.
    beginning: Tally<PrincipalDigest>,
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
    /// In which session of the server it is asked, as that calls it, and where that keeps them. It may be another one by
    /// the time that the request is sent.
    pub(crate) within: Option<HeaderValue>,
    pub(crate) at: At,
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
        let task = snapshot.keyring.open_task(name)?;
        (task.principal == PrincipalDigest::of(principal)).then_some(task)
    }

    /// The same for whoever asks the server here for it, if that has no other task of this id there.
    pub(crate) fn open_here(
        &self,
        snapshot: &Snapshot,
        principal: &str,
        name: &str,
        at: &At,
    ) -> Option<TaskId> {
        let task = Self::open(snapshot, principal, name)?;
        let mut known = self.known.lock();
        if known.tasks.is_another(task.principal, &task.tool, &task.id, at) {
            return None;
        }
        if self.is_here(&task) {
            known.tasks.note(task.principal, Named::of(&task, name.into()));
            drop(known);
            self.changed.notify_waiters();
        }
        Some(task)
    }

    /// Whether the server has no other task of this id there than this one of a principal's.
    pub(crate) fn is_still(&self, principal: &str, task: &Named, at: &At) -> bool {
        !self.known.lock().tasks.is_another(PrincipalDigest::of(principal), &task.tool, &task.id, at)
    }

    /// Whether the server that began a task is the one here. The pod may have had another address then.
    pub(crate) fn is_here(&self, task: &TaskId) -> bool {
        task.owner.pod == self.me.pod
    }

    /// Names a task that the server has begun for a principal.
    fn begun(&self, snapshot: &Snapshot, principal: &str, tool: &str, id: &str, at: &At) -> Option<Arc<str>> {
        let principal = PrincipalDigest::of(principal);
        let task = TaskId { owner: self.me.clone(), principal, tool: tool.to_owned(), id: id.to_owned() };
        // What is asked for elsewhere first may have been named already.
        let again = self.known.lock().tasks.again(principal, tool, id, at).map(|task| task.name.clone());
        let name = again.filter(|name| opens(snapshot, name)).or_else(|| seal(snapshot, &task))?;
        self.known.lock().tasks.begin(principal, Named::of(&task, name.clone()), at.clone());
        self.changed.notify_waiters();
        Some(name)
    }

    /// What a principal knows a task by that the server keeps there.
    pub(crate) fn named(&self, principal: PrincipalDigest, id: &str, at: &At) -> Option<Named> {
        self.known.lock().tasks.named(principal, id, at).cloned()
    }

    /// The same where it is shown unasked, to somebody who may do this now: whoever may not call its tool any more does
    /// not hear of it either. Where the key has gone by which it was named, it has another name from then on.
    pub(crate) fn shown(
        &self,
        principal: PrincipalDigest,
        id: &str,
        at: &At,
        now: Option<&Now>,
    ) -> Option<String> {
        let (task, now) = (self.named(principal, id, at)?, now?);
        if !now.permits(&Target::Tool((*task.tool).into())) {
            return None;
        }
        if opens(now.snapshot(), &task.name) {
            return Some((*task.name).to_owned());
        }
        let Named { id, name: former, tool } = task;
        let task = TaskId { owner: self.me.clone(), principal, tool: (*tool).to_owned(), id: id.into() };
        let name = seal(now.snapshot(), &task)?;
        self.known.lock().tasks.rename(principal, &former, &name);
        Some((*name).to_owned())
    }

    /// Whether a call of this principal is under way that may begin a task.
    pub(crate) fn is_beginning(&self, principal: PrincipalDigest) -> bool {
        self.known.lock().beginning.of(&principal) > 0
    }

    /// Waits until it is known how a task is called, or no call is under way that may have begun it: servers may speak of
    /// it before they answer that call.
    pub(crate) async fn begun_or_not(&self, principal: PrincipalDigest, id: &str, at: &At) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.named(principal, id, at).is_some() || !self.is_beginning(principal) {
                return;
            }
            changed.await;
        }
    }
}

/// Whether whoever knows a task by this name finds it still.
fn opens(snapshot: &Snapshot, name: &str) -> bool {
    snapshot.keyring.open_task(name).is_some()
}

/// What a client knows a task by.
fn seal(snapshot: &Snapshot, task: &TaskId) -> Option<Arc<str>> {
    let mut nonce = [0; 12];
    getrandom::fill(&mut nonce).ok()?;
    let sealed = snapshot.keyring.seal_task(task, nonce).inspect_err(|error| {
        tracing::warn!(%error, "cannot seal a task's id: its client cannot ask for it");
    });
    Some(sealed.ok()?.into())
}

// === impl At ===

impl At {
    /// Where the tasks of requests are that stand alone.
    pub(crate) fn of_requests(snapshot: &Snapshot, principal: &str) -> Self {
        match snapshot.config.limits.processes {
            Some(processes) if processes.isolation != Isolation::Shared => {
                Self::Principal(PrincipalDigest::of(principal))
            }
            _ => Self::Anywhere,
        }
    }
}

// === impl Beginning ===

impl Beginning {
    /// From now on.
    pub(crate) fn of(shared: &Arc<Shared>, principal: &str) -> Self {
        let principal = PrincipalDigest::of(principal);
        shared.tasks.known.lock().beginning.more(principal, 1);
        Self { shared: shared.clone(), principal }
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        let tasks = &self.shared.tasks;
        tasks.known.lock().beginning.less(&self.principal, 1);
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
        // Nothing else that the server says makes a task its client's.
        tasks::answer(message, self.place, |id| self.begun(id), |id| self.known(id, || now.as_ref()))
    }

    /// What the server says beside answers. `None`: it is not for this client.
    pub(crate) fn aside<'a>(
        &self,
        message: &'a str,
        method: &str,
    ) -> Result<Option<Cow<'a, str>>, Unnameable> {
        let now = LazyCell::new(|| self.now());
        if method == ServerNotification::SubscriptionsAcknowledged.as_str() {
            return tasks::listened(message, |id| self.known(id, || now.as_ref())).map(Some);
        }
        tasks::aside(message, method, |id| self.known(id, || now.as_ref()))
    }

    fn now(&self) -> Option<Now> {
        Now::of(&self.shared, &self.principal)
    }

    /// The name of a task that the call has become.
    fn begun(&self, id: &str) -> Option<String> {
        let name = self.shared.tasks.begun(&self.snapshot, &self.principal, &self.tool, id, &self.at)?;
        Some((*name).to_owned())
    }

    /// That of one that the request is about, or that is known to be its principal's.
    fn known<'a>(&self, id: &str, now: impl FnOnce() -> Option<&'a Now>) -> Option<String> {
        if let Some(task) = self.asked.iter().find(|task| &*task.id == id) {
            return Some((*task.name).to_owned());
        }
        self.shared.tasks.shown(PrincipalDigest::of(&self.principal), id, &self.at, now())
    }
}
