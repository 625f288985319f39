//! Handshakes with a server over HTTP that nobody waits for any more. The server may have begun the session all the
//! same, and only its answer says which one is to be ended. So it may for what is no handshake at all.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::HeaderValue;
use http_body_util::BodyExt;
use longshore_mcp::initialize;
use longshore_mcp::object;
use longshore_mcp::revision::Revision;
use longshore_mcp::sse::Decoder;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Duration, timeout};

use super::http::{Connections, Place, Unanswered};
use super::{Also, Answer, Body, Form, Letter, Post};
use crate::whole_body::Gathered;

/// How long the answer may take from when nobody waits for it any more.
const UNHEARD: Duration = Duration::from_secs(30);
/// How long the server may take to hear of the end.
const ERRAND: Duration = Duration::from_secs(5);
/// How many are waited for at once, in each thread: each has a connection. A server that answers none of so many is told
/// nothing.
const MAX_UNHEARD: usize = 64;
/// The most of an answer that is read to find the revision in it.
const MAX_ANSWER: usize = 64 * 1024;

/// The revision that is spoken where none was chosen. It has no header for that: a server refuses one that says what it does
/// not know, and takes it for this without.
const UNSAID: Revision = Revision::V2025_03_26;

type Sending = Pin<Box<dyn Future<Output = Result<Answer, Unanswered>>>>;

/// A handshake under way. If this is dropped before the head of the answer has come, the session ends when it comes.
pub(super) struct Handshake {
    sending: Option<Sending>,
    http: Rc<Connections>,
    endpoint: Place,
    unheard: Arc<Semaphore>,
}

/// Places for the handshakes of one thread that nobody waits for.
pub(super) fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MAX_UNHEARD))
}

impl Handshake {
    /// Sends one to an endpoint. `unheard` has the [`places`] of this thread.
    pub(super) fn begin(
        http: &Rc<Connections>,
        unheard: &Arc<Semaphore>,
        endpoint: Place,
        post: Post,
    ) -> Self {
        let sending = {
            let (http, Place { port, path }) = (http.clone(), endpoint.clone());
            async move { http.send_to(port, &path, post).await }
        };
        Self { sending: Some(Box::pin(sending)), http: http.clone(), endpoint, unheard: unheard.clone() }
    }
}

impl Future for Handshake {
    type Output = Result<Answer, Unanswered>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(sending) = &mut self.sending else { return Poll::Pending };
        let answer = std::task::ready!(sending.as_mut().poll(cx));
        self.sending = None;
        Poll::Ready(answer)
    }
}

/// A session that a server has begun with its answer to something else. It ends when this is dropped.
pub(crate) struct Unwanted {
    id: HeaderValue,
    http: Rc<Connections>,
    endpoint: Place,
    unheard: Arc<Semaphore>,
}

impl Unwanted {
    /// The one that this endpoint calls so. `unheard` has the [`places`] of this thread.
    pub(super) fn new(
        http: &Rc<Connections>,
        unheard: &Arc<Semaphore>,
        endpoint: Place,
        id: HeaderValue,
    ) -> Self {
        Self { id, http: http.clone(), endpoint, unheard: unheard.clone() }
    }
}

impl Drop for Unwanted {
    fn drop(&mut self) {
        let Some(place) = place(&self.unheard) else { return };
        let (http, endpoint, id) = (self.http.clone(), self.endpoint.clone(), self.id.clone());
        tokio::task::spawn_local(async move {
            let _place = place;
            tell(&http, endpoint, id, None).await;
        });
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        let Some(sending) = self.sending.take() else { return };
        let Some(place) = place(&self.unheard) else { return };
        let (http, endpoint) = (self.http.clone(), self.endpoint.clone());
        // It ends with the answer, or with its time.
        tokio::task::spawn_local(async move {
            let _place = place;
            if let Ok(Ok(answer)) = timeout(UNHEARD, sending).await {
                end(&http, endpoint, answer).await;
            }
        });
    }
}

/// Room for one more of what nobody waits for.
fn place(unheard: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    let place = unheard.clone().try_acquire_owned().ok();
    if place.is_none() {
        tracing::warn!(
            MAX_UNHEARD,
            "the server answers no handshakes, and may keep sessions that nobody has"
        );
    }
    place
}

/// Ends the session that an answer has begun, if it has.
async fn end(http: &Rc<Connections>, endpoint: Place, answer: Answer) {
    let Answer { also: Also::Begins(id), body, lease: _lease, .. } = answer else { return };
    let revision = timeout(ERRAND, chosen(body)).await.ok().flatten();
    tell(http, endpoint, id, revision).await;
}

/// Tells a server that a session has ended, in the revision that it has chosen there, if it has.
async fn tell(http: &Rc<Connections>, endpoint: Place, id: HeaderValue, revision: Option<Revision>) {
    let letter = Letter::End(id, revision.unwrap_or(UNSAID));
    // Whether it ends sessions on request is the server's business; many do not.
    if !matches!(timeout(ERRAND, http.send_to(endpoint.port, &endpoint.path, letter)).await, Ok(Ok(_))) {
        tracing::debug!("the server could not be told that a session has ended");
    }
}

/// The revision that the server has chosen: it may refuse to be told anything in another one.
async fn chosen(mut body: Body) -> Option<Revision> {
    if body.form() == Form::Events {
        let mut decoder = Decoder::new(MAX_ANSWER);
        let mut found = None;
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            let each = |event: longshore_mcp::sse::Event<'_>| {
                found = found.or_else(|| event.message().and_then(version));
            };
            if decoder.push(&data, each).is_err() || found.is_some() {
                break;
            }
        }
        return found;
    }
    version(&Gathered::whole(body, MAX_ANSWER).await.ok()?)
}

fn version(message: &[u8]) -> Option<Revision> {
    let result = object::at(std::str::from_utf8(message).ok()?, &["result"])?;
    initialize::chosen(result).filter(|revision| revision.features().handshake)
}
