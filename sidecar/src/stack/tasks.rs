//! Requests for tasks: a task is there for the principal that began it, as long as that may call its tool, and for
//! nobody else. It is asked for where its server is.

use std::borrow::Cow;
use std::cell::LazyCell;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use longshore_mcp::capabilities::{ClientCapabilities, Need};
use longshore_mcp::detect::Modern;
use longshore_mcp::envelope::{self, Malformed, Message};
use longshore_mcp::meta::Outline;
use longshore_mcp::method::{Method, Subject};
use longshore_mcp::params::{Invalid, Params, Target};
use longshore_mcp::revision::{Era, Revision};
use longshore_mcp::tasks::{self, Place, Unnameable};
use longshore_mcp::translate::Pair;
use longshore_sessions::capsule::PrincipalDigest;
use longshore_sessions::{ServerSession, TaskId};

use super::access::{Asks, Authorised, Stateless};
use super::parked::Holder;
use super::session::InSession;
use super::standing::Now;
use super::translate::Outgoing;
use super::{Authenticated, Through, Trail, access};
use crate::configuration::Snapshot;
use crate::refusal::Refusal;
use crate::sessions::Session;
use crate::tasks::{At, Beginning, Named, Naming, Tasks};
use crate::worker::Worker;

/// What is known of the tasks of a request that stands alone.
#[derive(Default)]
pub(crate) struct OfRequest {
    /// How they are called. None: it is about none, and its client is told of none.
    pub(crate) naming: Option<Arc<Naming>>,
    /// The request with the names that the server knows, if it names any.
    pub(crate) body: Option<Bytes>,
}

/// Whether the two sides of a session have the same tasks.
pub(crate) fn are_in(session: &Session) -> bool {
    let pair = Pair { client: session.revision, server: session.server_revision };
    pair.client.features().tasks == longshore_mcp::revision::Tasks::Core
        && tasks::are_carried(pair)
        && session.capsule.server != ServerSession::KeptHere
}

/// Judges a request of a session by the task that it is about. `None`: it is about none.
pub(crate) fn in_session(
    worker: &Worker,
    caller: &Authenticated,
    message: &Message<'_>,
    params: &Params<'_>,
    session: Option<&InSession>,
    trail: &mut Trail,
) -> Result<Option<Naming>, Refusal> {
    let (Message::Request(request), Some(session)) = (message, session) else { return Ok(None) };
    let Some(method) = Method::parse(&request.method) else { return Ok(None) };
    let begins = method == Method::ToolsCall && params.wants_task();
    if !method.is_about_tasks() && !begins {
        return Ok(None);
    }
    if !method.is_in(session.revision) {
        return Err(Refusal::UnknownMethod);
    }
    if !are_in(session) {
        // A server without tasks answers a call in the usual way.
        return if begins {
            Ok(None)
        } else {
            Err(differ(worker, session.revision, session.server_revision))
        };
    }
    let tool = if begins { params.target(Subject::Tool)?.map(|tool| tool.as_str().to_owned()) } else { None };
    let mut asked = Vec::new();
    let within = session.upstream();
    let at = at(worker, within.as_ref());
    if method.subject() == Subject::Task {
        let name = params.task_id().ok_or(Refusal::InvalidParams(Invalid::Missing("taskId")))?;
        let task = open(worker, caller, name, &at).ok_or(Refusal::UnknownTask)?;
        permit(caller, &task, trail)?;
        asked.push(Named::of(&task, name.into()));
    }
    let place = tasks::place(method).unwrap_or(Place::Meta);
    let _beginning = begins.then(|| Beginning::of(&worker.shared, caller.principal()));
    let naming = naming(worker, caller, (place, at), asked, tool.unwrap_or_default());
    Ok(Some(Naming { _beginning, within, ..naming }))
}

/// Judges it once more, since the server calls the session otherwise by now: it may have another task of the same id there.
pub(crate) fn in_session_again(
    worker: &Worker,
    session: &Session,
    naming: Option<&mut Naming>,
) -> Result<(), Refusal> {
    let Some(naming) = naming else { return Ok(()) };
    naming.within = session.upstream();
    naming.at = at(worker, naming.within.as_ref());
    let tasks = &worker.shared.tasks;
    let are_still = naming.asked.iter().all(|task| tasks.is_still(&naming.principal, task, &naming.at));
    if are_still { Ok(()) } else { Err(Refusal::UnknownTask) }
}

/// Where the server keeps the tasks of a session that it calls so.
fn at(worker: &Worker, session: Option<&HeaderValue>) -> At {
    let Some(session) = session else { return At::Anywhere };
    worker.pool.process_of(session).map_or_else(|| At::Session(session.clone()), At::Process)
}

/// A client's message with the names that the server knows.
pub(crate) fn outgoing(
    worker: &Worker,
    authorised: &Authorised,
    naming: Option<&Naming>,
    outgoing: Outgoing,
    body: &[u8],
) -> Result<Outgoing, Refusal> {
    let session = match &authorised.asks {
        Asks::Answer { session, .. } | Asks::Nothing { session, .. } => session,
        Asks::Handshake | Asks::Ignored => return Ok(outgoing),
    };
    if !are_in(session) {
        return unrelated(outgoing, body);
    }
    let named = naming.and_then(|naming| naming.asked.first());
    if named.is_none() && !tasks::may_be_related(body) {
        return Ok(outgoing);
    }
    let (snapshot, principal) = (&authorised.snapshot, &authorised.caller.principal);
    // Between equals nothing was written anew before.
    let text = std::str::from_utf8(body).map_err(|_| Refusal::Malformed(Malformed::NotJson))?;
    let mut said = Cow::Borrowed(text);
    if let Some(task) = named {
        said = tasks::with_id(text, &task.id).map_err(unusable)?.into();
    }
    let at = at(worker, session.upstream().as_ref());
    let id = |name: &str| {
        let task = worker.shared.tasks.open_here(snapshot, principal, name, &at);
        task.map(|task| task.id)
    };
    let related = match tasks::related_to(&said, id).map_err(unusable)? {
        Cow::Owned(related) => Some(related),
        Cow::Borrowed(_) => None,
    };
    Ok(match (related, said) {
        (Some(text), _) | (None, Cow::Owned(text)) => Outgoing::Rewritten(text),
        (None, Cow::Borrowed(_)) => outgoing,
    })
}

/// A client's message where it can have no task of the server's, which may have some all the same, in another revision.
fn unrelated(outgoing: Outgoing, body: &[u8]) -> Result<Outgoing, Refusal> {
    if !tasks::may_be_related(body) {
        return Ok(outgoing);
    }
    let said = match tasks::related_to(outgoing.text(body)?, |_| None).map_err(unusable)? {
        Cow::Owned(text) => Some(text),
        Cow::Borrowed(_) => None,
    };
    Ok(said.map_or(outgoing, Outgoing::Rewritten))
}

fn unusable(_: Unnameable) -> Refusal {
    Refusal::Malformed(Malformed::NotMessage("the task cannot be named".to_owned()))
}

/// Refuses a call in a session of a tool that has to be a task, where the two sides have not the same ones. It is in no list
/// there, and to its server there is no such method.
pub(crate) async fn may_be_called(
    worker: &Worker,
    authorised: &Authorised,
    params: &Params<'_>,
) -> Result<(), Refusal> {
    match (&authorised.asks, params.target(Subject::Tool)) {
        (Asks::Answer { session, method: Method::ToolsCall, .. }, Ok(Some(tool))) => {
            let pair = Pair { client: session.revision, server: session.server_revision };
            may_be_called_between(worker, &authorised.snapshot, pair, tool.as_str()).await
        }
        _ => Ok(()),
    }
}

/// The same of one that stands alone.
pub(crate) async fn stateless_may_be_called(
    worker: &Worker,
    stateless: &Stateless,
    modern: &Modern<'_>,
) -> Result<(), Refusal> {
    if modern.method == Method::ToolsCall
        && let Some(server) = older(worker)
        && let Some(tool) = modern.outline.name(Subject::Tool)
    {
        let pair = Pair { client: modern.revision, server };
        return may_be_called_between(worker, &stateless.snapshot, pair, &tool).await;
    }
    Ok(())
}

async fn may_be_called_between(
    worker: &Worker,
    snapshot: &Arc<Snapshot>,
    pair: Pair,
    tool: &str,
) -> Result<(), Refusal> {
    let may_have_to = pair.server.features().tasks == longshore_mcp::revision::Tasks::Core;
    let has_to = || worker.marks.of(&worker.shared.view.borrow()).tasks.contains(tool);
    if tasks::are_carried(pair) || !may_have_to || !has_to() {
        return Ok(());
    }
    // Perhaps it has to be none any more.
    worker.shared.relist.ask().await;
    if access::is_current(worker, snapshot) && !has_to() {
        return Ok(());
    }
    Err(pair.down().unknown("a tool that has to be called as a task").into())
}

/// What the server speaks, if that is older than requests that stand alone.
fn older(worker: &Worker) -> Option<Revision> {
    worker.pool.speaks().get().filter(|spoken| spoken.modern.is_none())?.legacy
}

/// Judges a request that stands alone by the tasks that it is about.
pub(crate) fn stateless(
    worker: &Worker,
    caller: &Authenticated,
    modern: &Modern<'_>,
    body: &Bytes,
    trail: &mut Trail,
) -> Result<OfRequest, Refusal> {
    let listens = modern.method == Method::SubscriptionsListen;
    let about = modern.method.is_about_tasks();
    if !about && !listens && modern.method != Method::ToolsCall {
        return Ok(OfRequest::default());
    }
    // Most clients do not say so, and what they say is not read for that.
    let declared = tasks::may_be_declared(modern.envelope.capabilities)
        && ClientCapabilities::read(modern.envelope.capabilities).is_ok_and(|can| can.has(Need::Tasks));
    if about {
        // To declare it would help nobody there.
        if let Some(legacy) = older(worker) {
            return Err(differ(worker, modern.revision, legacy));
        }
        if !declared {
            return Err(Refusal::Lacking(Need::Tasks));
        }
    } else if !declared && !listens || older(worker).is_some() {
        // Whoever listens may name tasks without it: it hears of none.
        return Ok(OfRequest::default());
    }
    let text = std::str::from_utf8(body).map_err(|_| Refusal::Malformed(Malformed::NotJson))?;
    let mut asked = Vec::new();
    let mut said = None;
    let at = At::of_requests(&caller.snapshot, caller.principal());
    if about {
        let name = modern.outline.name(Subject::Task);
        let name = name.ok_or(Refusal::InvalidParams(Invalid::Missing("taskId")))?;
        let task = open(worker, caller, &name, &at).ok_or(Refusal::UnknownTask)?;
        permit(caller, &task, trail)?;
        said = Some(tasks::with_id(text, &task.id).map_err(|_| Refusal::UnknownTask)?.into());
        asked.push(Named::of(&task, name.as_str().into()));
    } else if listens {
        let listened = tasks::listened(text, |name| {
            let task = open(worker, caller, name, &at).filter(|_| declared)?;
            access::permitted(&caller.snapshot, &caller.caller, &Target::Tool(task.tool.as_str().into()))
                .ok()?;
            asked.push(Named::of(&task, name.into()));
            Some(task.id)
        });
        let unreadable = |error: Unnameable| Refusal::InvalidParams(Invalid::Unreadable(error.to_string()));
        if let Cow::Owned(text) = listened.map_err(unreadable)? {
            said = Some(text.into());
        }
    }
    if !declared {
        return Ok(OfRequest { naming: None, body: said });
    }
    let tool = modern.outline.name(Subject::Tool).filter(|_| modern.method == Method::ToolsCall);
    let place = tasks::place(modern.method).unwrap_or(Place::Meta);
    let tool = tool.map(|tool| tool.into_owned()).unwrap_or_default();
    let naming = naming(worker, caller, (place, at), asked, tool);
    Ok(OfRequest { naming: Some(Arc::new(naming)), body: said })
}

/// The other replica whose server has the task that a request is about. None: it is served here, if only to say that
/// there is no such task.
pub(crate) fn holder(worker: &Worker, caller: &Authenticated, modern: &Modern<'_>) -> Option<Holder> {
    let (Through::Client, Some(_)) = (caller.through, &caller.snapshot.replicas) else { return None };
    let mut tasks = named(caller, modern.method, &modern.request, &modern.outline);
    let peer = tasks.find(|task| !worker.shared.tasks.is_here(task))?.owner;
    // Otherwise the server went with it, unless all of them know each other's tasks.
    (!worker.shared.peers.is_gone(&peer)).then_some(Holder { peer, outlives: true })
}

/// Whether a request is for a task of the server here, or of another one that is there: no other could serve it. Who only
/// listens does not keep a replica that ends.
pub(crate) fn is_held(worker: &Worker, caller: &Authenticated, body: &[u8]) -> bool {
    let Ok(Message::Request(request)) = envelope::read(body) else { return false };
    let method = Method::of(Revision::V2026_07_28, &request.method);
    let (Some(method), Ok(outline)) = (method, Outline::read(request.params)) else { return false };
    named(caller, method, &request, &outline).any(|task| {
        if worker.shared.tasks.is_here(&task) {
            method != Method::SubscriptionsListen
        } else {
            !worker.shared.peers.is_gone(&task.owner)
        }
    })
}

/// The tasks that a request is about, as far as they are its caller's.
fn named(
    caller: &Authenticated,
    method: Method,
    request: &envelope::Request<'_>,
    outline: &Outline<'_>,
) -> impl Iterator<Item = TaskId> {
    let names: Vec<String> = match method {
        Method::SubscriptionsListen => {
            request.params.map(|params| tasks::of_listener(params.get())).unwrap_or_default()
        }
        method if method.is_about_tasks() => {
            outline.name(Subject::Task).map(|name| name.into_owned()).into_iter().collect()
        }
        _ => Vec::new(),
    };
    names.into_iter().filter_map(|name| Tasks::open(&caller.snapshot, caller.principal(), &name))
}

/// What a session's server says beside answers, with the names that its client knows. `None`: it is not for this client.
pub(crate) fn aside<'a>(
    worker: &Worker,
    principal: &str,
    session: &Session,
    data: &'a [u8],
) -> Option<Cow<'a, [u8]>> {
    let Some((text, method)) = about_task(session, data) else { return Some(Cow::Borrowed(data)) };
    let digest: PrincipalDigest = session.capsule.principal;
    let now = LazyCell::new(|| Now::of(&worker.shared, principal));
    let at = at(worker, session.upstream().as_ref());
    match tasks::aside(text, &method, |id| worker.shared.tasks.shown(digest, id, &at, now.as_ref())) {
        Ok(Some(Cow::Owned(text))) => Some(Cow::Owned(text.into_bytes())),
        Ok(Some(Cow::Borrowed(_))) => Some(Cow::Borrowed(data)),
        Ok(None) | Err(_) => {
            tracing::debug!("the server spoke of a task that is not known to be this client's");
            None
        }
    }
}

/// The task that such a message is about, by the server's own id and where that keeps it, if it has no name yet and a call
/// is under way that may have begun it.
pub(crate) fn not_begun(worker: &Worker, session: &Session, data: &[u8]) -> Option<(String, At)> {
    let (known, principal) = (&worker.shared.tasks, session.capsule.principal);
    if !known.is_beginning(principal) {
        return None;
    }
    let (text, method) = about_task(session, data)?;
    let at = at(worker, session.upstream().as_ref());
    let mut unknown = None;
    let named = tasks::aside(text, &method, |id| {
        if known.named(principal, id, &at).is_none() {
            unknown = Some(id.to_owned());
        }
        None
    });
    unknown.filter(|_| named.is_ok()).map(|id| (id, at))
}

/// What a session's server says beside answers, and its method, if that may be about a task. Nearly nothing is, and it is
/// read once more only if it may be.
fn about_task<'a>(session: &Session, data: &'a [u8]) -> Option<(&'a str, String)> {
    let text = std::str::from_utf8(data).ok().filter(|_| are_in(session))?;
    if !text.contains("/tasks") && !tasks::may_be_related(data) {
        return None;
    }
    match envelope::read(data) {
        Ok(Message::Request(request)) => Some((text, request.method.to_string())),
        Ok(Message::Notification(notification)) => Some((text, notification.method.to_string())),
        Ok(Message::Response(_)) | Err(_) => None,
    }
}

/// The task that a client names, if it is its own and the server here is to be asked for it.
fn open(worker: &Worker, caller: &Authenticated, name: &str, at: &At) -> Option<TaskId> {
    worker.shared.tasks.open_here(&caller.snapshot, caller.principal(), name, at)
}

/// Whoever may not call a tool any more does not see what came of it either.
fn permit(caller: &Authenticated, task: &TaskId, trail: &mut Trail) -> Result<(), Refusal> {
    let tool = Target::Tool(task.tool.as_str().into());
    trail.entry.target(tool.as_str());
    access::permitted(&caller.snapshot, &caller.caller, &tool).map(drop).map_err(|_| Refusal::UnknownTask)
}

fn naming(
    worker: &Worker,
    caller: &Authenticated,
    (place, at): (Place, At),
    asked: Vec<Named>,
    tool: String,
) -> Naming {
    Naming {
        shared: worker.shared.clone(),
        snapshot: caller.snapshot.clone(),
        principal: caller.principal().clone(),
        place,
        within: None,
        at,
        asked,
        tool,
        _beginning: None,
    }
}

/// That the two sides have no tasks in common. A session that is kept here has another server than it says.
fn differ(worker: &Worker, client: Revision, server: Revision) -> Refusal {
    let modern = worker.pool.speaks().get().and_then(|spoken| spoken.modern);
    let is_kept_here = client.era() == Era::Legacy && client == server;
    Refusal::TasksDiffer { client, server: modern.filter(|_| is_kept_here).unwrap_or(server) }
}
