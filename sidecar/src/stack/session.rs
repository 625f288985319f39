//! In which session a message is.

use http::{Response, StatusCode};
use longshore_mcp::envelope::Message;
use longshore_mcp::headers::SESSION_ID;
use longshore_mcp::method::Method;

use super::respond::Body;
use super::{Authenticated, Trail};
use crate::exchange;
use crate::rescue::Refusal;
use crate::sessions::Use;
use crate::worker::Worker;

/// A session in use by a message.
pub(crate) type InSession = Use;

/// Finds the session of a message. Only a handshake has none.
pub(crate) fn find(
    worker: &Worker,
    caller: &Authenticated,
    message: &Message<'_>,
) -> Result<Option<InSession>, Refusal> {
    let id = caller.header(SESSION_ID)?;
    let handshake = matches!(message, Message::Request(request) if request.method.as_str() == Method::Initialize.as_str());
    match (id, handshake) {
        (None, true) => Ok(None),
        (Some(_), true) => Err(Refusal::SecondInitialize),
        (id, false) => known(worker, caller, id).map(Some),
    }
}

/// Ends a session, because its client says so.
pub(crate) async fn end(
    worker: &Worker,
    caller: &Authenticated,
    trail: &mut Trail,
) -> Result<Response<Body>, Refusal> {
    let session = of(worker, caller)?;
    trail.entry.permit(None);
    // Here first: whatever the server says, nobody can use it any more.
    worker.shared.sessions.end(&session);
    exchange::end_upstream(&worker.pool, &caller.snapshot, &session).await;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// The session that a request without a message names.
pub(crate) fn of(worker: &Worker, caller: &Authenticated) -> Result<InSession, Refusal> {
    known(worker, caller, caller.header(SESSION_ID)?)
}

fn known(worker: &Worker, caller: &Authenticated, id: Option<&str>) -> Result<InSession, Refusal> {
    let id = id.ok_or(Refusal::NoSession)?;
    let sessions = &worker.shared.sessions;
    let session = sessions.find(id, caller.principal()).ok_or(Refusal::UnknownSession)?;
    Ok(sessions.enter(session))
}
