//! Messages on their way to the server: several at once, since a server may answer the call before it answers the POST
//! that brought it, and what it asks meanwhile has to be answered too.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::BodyExt;
use longshore_mcp::headers::JSON;
use longshore_mcp::revision::Revision;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Duration, Instant, timeout};

use crate::headers::PROTOCOL_VERSION;
use crate::upstream::call::Caller;
use crate::upstream::http::{Connections, Unanswered};
use crate::upstream::letter::{self, Trace};
use crate::upstream::message::cancelled;
use crate::upstream::{Answer, call};

/// How many are on their way at once in a session. A server that takes none is not sent more.
const MAX_POSTS: usize = 64;
/// How many of them the sidecar's own, cancellations not counted: a server that asks and never listens is not answered for ever.
const MAX_OWN: usize = 16;
/// How long the server may take for a message that has no answer. Nobody computes anything for it.
const TELL: Duration = Duration::from_secs(10);
/// How long the answer to a POST is still waited for when that to the call has come.
const GRACE: Duration = Duration::from_secs(5);
/// How much of an answer to a POST is read, and how long, so that its connection can be used again. There should be
/// nothing in it.
const MAX_REST: usize = 16 * 1024;
const REST: Duration = Duration::from_secs(1);

/// Messages on their way.
pub(super) struct Posts {
    http: Rc<Connections>,
    port: u16,
    endpoint: Rc<str>,
    /// What the server has chosen to speak in its answer to the handshake.
    revision: Option<Revision>,
    tasks: JoinSet<Posted>,
    calls: HashMap<u64, AbortHandle>,
    /// Those of calls that are over.
    late: VecDeque<(Instant, AbortHandle)>,
    own: usize,
}

/// Where a message comes from.
pub(super) enum From {
    /// A call, known by its number.
    Call(u64),
    /// Somebody who waits until it is delivered.
    Caller(Caller),
    /// The sidecar itself, which answers the server.
    Own,
    /// The same, for a client that has taken a call back.
    TakenBack,
}

/// A message that was delivered or was not.
pub(super) struct Posted {
    pub(super) from: From,
    pub(super) outcome: Result<(), call::Failure>,
}

impl Posts {
    pub(super) fn new(http: Rc<Connections>, port: u16, endpoint: Rc<str>) -> Self {
        let (tasks, calls, late) = (JoinSet::new(), HashMap::new(), VecDeque::new());
        Self { http, port, endpoint, revision: None, tasks, calls, late, own: 0 }
    }

    pub(super) fn has_room(&self) -> bool {
        self.tasks.len() < MAX_POSTS
    }

    /// Whether calls are on their way.
    pub(super) fn have_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// The server has chosen a revision.
    pub(super) fn speak(&mut self, revision: Option<Revision>) {
        self.revision = revision;
    }

    /// The revision of the conversation, once it is known.
    pub(super) fn revision(&self) -> Option<Revision> {
        self.revision
    }

    /// Sends a message of the sidecar's own. Says whether there was room for it.
    pub(super) fn own(&mut self, message: String) -> bool {
        let room = self.own < MAX_OWN;
        if room {
            self.own += 1;
            self.send(From::Own, message.into(), None);
        }
        room
    }

    /// Says that nobody wants the answer to a call. There are no more of these than there were calls.
    pub(super) fn cancel(&mut self, number: u64, reason: &'static str) {
        self.send(From::TakenBack, cancelled(number, reason).into(), None);
    }

    /// Sends a message.
    pub(super) fn send(&mut self, from: From, message: bytes::Bytes, trace: Trace) {
        let mut post = Request::new(message);
        *post.method_mut() = Method::POST;
        let headers = post.headers_mut();
        headers.extend(trace.map(Arc::unwrap_or_clone).unwrap_or_default());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        if let Some(version) = self.revision.and_then(letter::version) {
            headers.insert(PROTOCOL_VERSION, version);
        }
        let (http, port, endpoint) = (self.http.clone(), self.port, self.endpoint.clone());
        let number = match &from {
            From::Call(number) => Some(*number),
            From::Caller(_) | From::Own | From::TakenBack => None,
        };
        let task = self.tasks.spawn_local(async move {
            let sent = http.send_to(port, &endpoint, post);
            let outcome = if number.is_some() {
                // For as long as its call.
                outcome(sent.await)
            } else {
                let late = call::Failure::Status(StatusCode::GATEWAY_TIMEOUT);
                timeout(TELL, sent).await.map_or(Err(late), outcome)
            };
            let outcome = match outcome {
                Ok(answer) => {
                    let _ = timeout(REST, rest(answer)).await;
                    Ok(())
                }
                Err(failure) => Err(failure),
            };
            Posted { from, outcome }
        });
        if let Some(number) = number {
            self.calls.insert(number, task);
        }
    }

    /// Waits until one has been delivered or was not. Never returns while none is on its way.
    pub(super) async fn next(&mut self) -> Posted {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(posted)) => {
                    match &posted.from {
                        From::Call(number) => drop(self.calls.remove(number)),
                        From::Own => self.own -= 1,
                        From::Caller(_) | From::TakenBack => {}
                    }
                    return posted;
                }
                // It was given up.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// A call is over: the answer to its POST is not waited for much longer.
    pub(super) fn over(&mut self, number: u64, now: Instant) {
        if let Some(task) = self.calls.remove(&number) {
            self.late.push_back((now + GRACE, task));
        }
    }

    /// When the next of those ends.
    pub(super) fn due(&self) -> Option<Instant> {
        self.late.front().map(|(until, _)| *until)
    }

    /// Ends those whose time is over.
    pub(super) fn end_late(&mut self, now: Instant) {
        while let Some((_, task)) = self.late.pop_front_if(|(until, _)| *until <= now) {
            task.abort();
        }
    }
}

fn outcome(sent: Result<Answer, Unanswered>) -> Result<Answer, call::Failure> {
    match sent {
        Ok(answer) if answer.status.is_success() => Ok(answer),
        Ok(answer) => Err(call::Failure::Status(answer.status)),
        Err(Unanswered::Refused { port, .. }) => Err(call::Failure::Absent { port }),
        Err(Unanswered::Lost(_)) => Err(call::Failure::Cut),
    }
}

/// Reads what is in an answer, so that its connection can be used again.
async fn rest(answer: Answer) {
    let Answer { mut body, lease, .. } = answer;
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return };
        length += frame.data_ref().map_or(0, bytes::Bytes::len);
        if length > MAX_REST {
            return;
        }
    }
    lease.give_back();
}
