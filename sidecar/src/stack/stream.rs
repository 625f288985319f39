//! A GET: a client that wants to hear what belongs to no call, or the rest of a stream that it has lost.

use std::rc::Rc;

use bytes::Bytes;
use http::Response;

use super::respond::Body;
use super::{Authenticated, Trail, conversation, session};
use crate::exchange;
use crate::rescue::{Kind, Refusal};
use crate::worker::Worker;

/// Opens the stream, which needs no rule: the server speaks in a session whose client was let in, and what a call is
/// answered with was decided on when it was made. News of resources and tasks is decided on as it comes.
pub(crate) async fn open(
    worker: &Rc<Worker>,
    caller: Authenticated,
    trail: &mut Trail,
) -> Result<Response<Body>, Refusal> {
    trail.kind = Kind::Other;
    let session = match session::find(worker, &caller, &Bytes::new(), trail).await? {
        session::Found::Here(session) => session.ok_or(Refusal::NoSession)?,
        session::Found::Elsewhere(response) => return Ok(response),
    };
    conversation::agrees(&caller, &session, trail)?;
    trail.entry.permit(None);
    exchange::listen(worker, caller, session).await.inspect_err(|refusal| {
        // It is the call that has this answer.
        if let Refusal::AnswerGone { request, .. } = refusal {
            (trail.id, trail.kind) = (Some(request.to_string()), Kind::Request);
        }
    })
}
