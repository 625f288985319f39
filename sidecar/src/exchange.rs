//! One exchange with the server: a message goes there, and what comes back goes to the client.
//!
//! What is rarely needed is boxed, here and in `stack`: the future of an exchange is made and moved for every call, and
//! would be as large as its largest branch.
//!
//! A client that disconnects ends only its own end of it: the server's answer is read to its end all the same, since in
//! these revisions a disconnect is no cancellation; only a session that a process is begun for ends with its client, which
//! alone could have used it. What bounds an exchange is its deadline. Until the response begins the connection's task
//! carries it, which saves most calls a task of their own; what is left of it then, or when the client goes away before
//! that, goes on as one.
//!
//! * Of a session: the [`request`] to the server, what it comes back with ([`answer`], as [`events`] or whole), and the
//!   [`client`]'s end; the [`opening`] of a session; and what belongs to no call ([`mod@listen`]);
//! * of a request without one: a [`stateless`] call;
//! * on the way: what becomes of a message ([`carry`], [`mod@edit`]), what is [`asked`] back, and the [`deadline`].

mod answer;
mod asked;
mod carry;
mod client;
mod deadline;
mod edit;
mod events;
mod listen;
mod opening;
mod request;
mod stateless;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response};
use longshore_mcp::envelope::Id;
use longshore_mcp::method::{List, Method};
use longshore_mcp::pieces::IdInPieces;
use longshore_mcp::revision::Revision;
use longshore_sidecar_config::Upstream;
use tokio::sync::oneshot;
use tokio::time::{Duration, Instant};

use crate::access::Caller;
use crate::audit::Entry;
use crate::calls::CallGuard;
use crate::configuration::Snapshot;
use crate::detached_work::Carried;
use crate::held::Share;
use crate::metrics::SessionEnd;
use crate::refusal::{self, Kind, Refusal};
use crate::sessions::{self, Alias, Change, Place, Telling, Use};
use crate::shared::Shared;
use crate::stack::respond::Body;
use crate::stack::tasks;
use crate::tasks::Naming;
use crate::upstream::letter::Trace;
use crate::upstream::{Known, Tail};
use crate::worker::Worker;
use client::Client;
use deadline::Deadline;
pub(crate) use listen::listen;
pub(crate) use request::{end_named, end_upstream};
pub(crate) use stateless::{StatelessCall, call_stateless};

/// How long a notification or a response may take to be delivered: nobody computes anything for it.
const TELL_TIMEOUT: Duration = Duration::from_secs(10);

/// A message on its way to the server.
pub(crate) struct Call {
    pub(crate) worker: Rc<Worker>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) caller: Caller,
    /// In which session; none for a handshake.
    pub(crate) session: Option<Use>,
    /// What the server called that when it was sent last.
    pub(crate) within: RefCell<Option<HeaderValue>>,
    /// What a request in a session asks for.
    pub(crate) method: Option<Method>,
    /// What happens to the answer.
    pub(crate) edit: Edit,
    /// What it sets in the session, if the server does as it says.
    pub(crate) change: Option<Change>,
    /// What it means for its session that the server has it, where nothing is answered.
    pub(crate) telling: Option<Telling>,
    /// How the tasks are called that it is about.
    pub(crate) naming: Option<Naming>,
    /// Trace context that travels along.
    pub(crate) trace: Trace,
    pub(crate) body: Bytes,
    /// What that is, where it is known and has to be.
    pub(crate) known: Option<Known>,
    /// The id of a request, as JSON.
    pub(crate) id: Option<String>,
    /// What it is at the server, if that is another.
    pub(crate) alias: Option<Alias>,
    pub(crate) revision: Revision,
    pub(crate) entry: Entry,
}

/// What happens to an answer on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// Nothing.
    Pass,
    /// Entries that the caller may not call are taken out.
    Filter(List),
    /// A session is opened.
    OpenSession,
    /// There is none.
    Tell,
}

/// How an exchange ended well.
struct Done {
    /// The HTTP status that the client got.
    status: u16,
    /// The code, if the server's answer was an error.
    code: Option<i64>,
    /// What is left of the server's answer, when the client has it.
    rest: Option<Tail>,
}

/// Begins an exchange, one of so many.
pub(crate) fn begin(call: Call, place: Place) -> Begun {
    let (reply, response) = oneshot::channel();
    // From now on, so that those that come at the same moment are counted too.
    let shared = &call.worker.shared;
    let is_call = (call.edit != Edit::Tell).then(|| shared.calls.begin());
    let opens = (call.edit == Edit::OpenSession).then(|| shared.openings.begin());
    let under_way = [is_call, opens];
    Begun(Carried::new(response).with(run(Box::new(call), (under_way, place), reply)))
}

/// An exchange until the head of its response is there. Dropped before, it goes on.
pub(crate) struct Begun(Carried<Response<Body>>);

impl Begun {
    /// The response, when its head is there.
    pub(crate) async fn response(self) -> Response<Body> {
        // An exchange always answers, so this is never seen.
        self.0.await.unwrap_or_else(|| {
            let internal = Refusal::Internal;
            let answer =
                refusal::error_response(&internal, None, Kind::Request, Revision::NEWEST_WITH_INITIALIZE);
            refusal::response(&internal, answer)
        })
    }
}

async fn run(
    mut call: Box<Call>,
    held: ([Option<CallGuard>; 2], Place),
    reply: oneshot::Sender<Response<Body>>,
) {
    let usual = Duration::from_millis(call.snapshot.config.limits.request_timeout_ms);
    let timeout = match call.edit {
        Edit::Pass | Edit::Filter(_) => usual,
        Edit::OpenSession => call.worker.pool.opening_patience(&call.snapshot.config),
        Edit::Tell => usual.min(TELL_TIMEOUT),
    };
    let now = Instant::now();
    let deadline = Deadline::after(now, timeout);
    let mut client = Client::new(&call, reply, now);

    let mut result = answer::answer(&mut call, &mut client, deadline).await;
    if matches!(result, Err(Refusal::SessionLost)) && client.has_nothing() {
        result = match deadline.within(Box::pin(call.begin_again())).await.flatten() {
            // The server has not taken the call: it did not know the session.
            Ok(true) => match call.judge_tasks_again() {
                Ok(()) => Box::pin(answer::answer(&mut call, &mut client, deadline)).await,
                Err(refusal) => Err(refusal),
            },
            Ok(false) => Err(Refusal::SessionLost),
            Err(refusal) => Err(refusal),
        };
    }
    let rest = match result {
        Ok(done) => {
            client.forget_questions(&call);
            call.entry.answered(done.status, done.code);
            if let Some(telling) = call.telling.take() {
                telling.arrived();
            }
            call.note_change(&done).await;
            done.rest
        }
        Err(refusal) => {
            call.note_failure(&refusal, &client);
            client.withdraw_questions(&call, &refusal);
            let refusal = client.cause(refusal);
            let kind = if call.edit == Edit::Tell { Kind::Other } else { Kind::Request };
            let id = call.id.as_deref().map(Id::from_json);
            let answer = refusal::error_response(&refusal, id, kind, call.revision);
            let code = answer.code;
            call.entry.reason(refusal.reason());
            let status = Box::pin(client.refuse(&refusal, answer)).await;
            call.entry.answered(status.as_u16(), Some(code));
            None
        }
    };
    // Whatever follows, the call is over.
    drop((call, client, held));
    if let Some(rest) = rest {
        rest.leave();
    }
}

impl Call {
    /// Whether its answer may be edited, and has to be whole for it.
    fn edits(&self) -> bool {
        self.naming.is_some()
            || matches!(self.edit, Edit::Filter(_))
            || self.session.as_deref().and_then(carry::pair).is_some()
    }

    /// Whether a process is begun for it, or waited for. Nobody else can use the session, so that ends with the client; a
    /// server over HTTP may have begun one whose id nobody has heard yet.
    fn opens_process(&self) -> bool {
        self.edit == Edit::OpenSession && matches!(self.snapshot.config.upstream, Upstream::Stdio {})
    }

    /// Its id at the server, as JSON.
    fn id_at_server(&self) -> Option<&str> {
        self.alias.as_ref().map(Alias::as_json).or(self.id.as_deref())
    }

    /// What gives its answer the id that its client knows, while that comes; none if it asks for none.
    fn ids_in_pieces(&self) -> Option<IdInPieces> {
        Some(IdInPieces::new(self.id_at_server()?, self.id.as_deref()?))
    }

    /// A share of what is held for its client, of nothing yet.
    fn nothing_held(&self) -> Share {
        self.worker.shared.held.nothing(&self.caller.principal)
    }

    /// Counts what is held for its client, if there is room.
    fn hold(&self, bytes: Bytes) -> Option<Bytes> {
        self.worker.shared.held.hold(&self.caller.principal, bytes)
    }

    /// Begins the session again that its server has forgotten, if that may be. Says whether it is there again.
    async fn begin_again(&self) -> Result<bool, Refusal> {
        let Some(session) = &self.session else { return Ok(false) };
        let lost = self.within.take();
        sessions::begin_again(&self.worker.pool, &self.snapshot, session, lost).await
    }

    /// Whether the tasks that it names are its caller's also in the session as it is by now.
    fn judge_tasks_again(&mut self) -> Result<(), Refusal> {
        let Some(session) = &self.session else { return Ok(()) };
        tasks::in_session_again(&self.worker, session, self.naming.as_mut())
    }

    /// Keeps what the client has set.
    async fn note_change(&mut self, done: &Done) {
        if let (Some(change), Some(session), None) = (self.change.take(), &self.session, done.code) {
            let shared = &self.worker.shared;
            Box::pin(shared.sessions.change(session, change, &shared.peers)).await;
        }
    }

    /// What else follows from a failure.
    fn note_failure(&mut self, refusal: &Refusal, client: &Client) {
        match refusal {
            Refusal::Cancelled if client.is_unheard() => request::cancel(self),
            // It goes on at the server.
            Refusal::ServerTimedOut { .. }
            | Refusal::TooManyStreams { .. }
            | Refusal::AnswerNotHeld
            | Refusal::AnswerTooLarge { .. } => request::cancel(self),
            Refusal::SessionLost => {
                if let Some(session) = &self.session {
                    self.worker.shared.sessions.end(session, SessionEnd::Server);
                }
            }
            _ => {}
        }
        doubt(&self.worker.shared, refusal);
    }
}

/// Has the monitor ask the server how it is, instead of waiting for its next turn, if a failure says something of that.
fn doubt(shared: &Shared, refusal: &Refusal) {
    if is_absence(refusal) || matches!(refusal, Refusal::SessionLost) {
        shared.doubt.raise();
        tracing::debug!(reason = refusal.reason(), "a call failed");
    }
}

/// Whether a server may not be there at all, as far as a failure says.
pub(crate) fn is_absence(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::ServerDown | Refusal::ServerLost | Refusal::ServerTimedOut { .. } => true,
        Refusal::Process(gone) => gone.why.concerns_all(),
        _ => false,
    }
}
