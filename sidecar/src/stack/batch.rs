//! Batches of 2025-03-26: several messages in one body. Each walks the path by itself, as if it had come alone: what
//! decides on calls, counts them and writes lines about them knows nothing of batches. How many there may be at once is
//! bounded where they are read.

use std::pin::pin;
use std::rc::Rc;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::poll_fn;
use http::{Method, Response};
use longshore_mcp::batch::{Answers, Batch};
use longshore_mcp::envelope::{self, Malformed, Message};
use longshore_mcp::revision::Revision;
use longshore_mcp::sse;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, timeout_at};

use super::pump::{self, PIECES, Said, To, kept_alive, say};
use super::respond::{self, Body};
use super::session::InSession;
use super::{Authenticated, Passed, Trail, conversation, serve_one};
use crate::held::Share;
use crate::refusal::{Kind, Refusal};
use crate::streamed_body::Piece;
use crate::worker::{Serving, Worker};

/// How long the answers are waited for together. After that they come as events, one after the other.
const MOMENT: Duration = Duration::from_secs(1);

/// The answers to the requests of a batch, while they come.
struct Gathering {
    answers: Answers,
    /// What those that are there take of the bounds, and of what is not counted.
    held: Share,
    uncounted: Vec<OwnedSemaphorePermit>,
    /// What was said beside them.
    asides: Vec<Said>,
    incoming: mpsc::Receiver<Said>,
    tasks: JoinSet<()>,
}

/// Serves a batch.
pub(super) async fn serve(
    worker: &Rc<Worker>,
    caller: &Authenticated,
    session: Option<InSession>,
    batch: &Batch<'_>,
    body: &Bytes,
    trail: &mut Trail,
) -> Result<Passed, Refusal> {
    trail.kind = Kind::Other;
    trail.entry.method("batch");
    let session = session.ok_or(Refusal::NoSession)?;
    conversation::agrees(caller, session.revision, trail)?;
    if !session.revision.features().batches {
        return Err(Malformed::Batch.into());
    }
    let revision = session.revision;
    let Some(answers) = batch.answers() else {
        let response = tell(worker, caller, batch, body).await;
        // Each of them has a line of its own.
        trail.entry.hand_over().leave();
        return Ok(Passed::Handed(response));
    };
    let (out, incoming) = mpsc::channel(PIECES);
    let to = To::new(worker, caller, out);
    let held = to.nothing();
    let mut tasks = JoinSet::new();
    for (message, text) in batch.iter() {
        let id = message.request_id().map(|id| id.as_json().to_owned());
        tasks.spawn_local(ask(one(worker, caller, body, text), id, revision, to.clone()));
    }
    drop(to);
    trail.entry.hand_over().leave();
    let mut gathering =
        Gathering { answers, held, uncounted: Vec::new(), asides: Vec::new(), incoming, tasks };
    let response = if gathering.gather().await {
        // Notifications among them have no answer, and are delivered all the same.
        let Gathering { answers, held, incoming, mut tasks, .. } = gathering;
        let whole = answers.write();
        drop((answers, incoming));
        while tasks.join_next().await.is_some() {}
        respond::json(Body::whole(held.of(whole)), None)
    } else {
        let (out, body) = mpsc::channel(PIECES);
        // It ends with its client, or with the last answer.
        tokio::task::spawn_local(gathering.pass_on(out));
        respond::events(Body::Pieces(body), None)
    };
    Ok(Passed::Handed(response))
}

/// Serves messages that have no answers, side by side, so that all of them take no longer than one may: the response to
/// all is that to the first which is refused.
async fn tell(
    worker: &Rc<Worker>,
    caller: &Authenticated,
    batch: &Batch<'_>,
    body: &Bytes,
) -> Response<Body> {
    let served = batch.iter().map(|(_, text)| one(worker, caller, body, text));
    let responses = join_all(served).await;
    let refused = responses.into_iter().find(|response| !response.status().is_success());
    refused.unwrap_or_else(respond::accepted)
}

/// Serves one message, also if its client goes before anything was done for it: it had come, as the others have.
fn one(
    worker: &Rc<Worker>,
    caller: &Authenticated,
    body: &Bytes,
    text: &str,
) -> impl Future<Output = Response<Body>> + use<> {
    let (worker, caller) = (worker.clone(), caller.another(Method::POST).within());
    // All of what was read is held, and counts, for as long as any of it is under way.
    let body = body.slice_ref(text.as_bytes());
    Serving::new(|reading| serve_one(worker, caller, body, reading))
}

/// Has a message served. If it is a request, it is answered, whatever becomes of it.
async fn ask(served: impl Future<Output = Response<Body>>, id: Option<String>, revision: Revision, to: To) {
    let response = served.await;
    let Some(id) = id else { return };
    pump::answer(response, &id, revision, &to).await;
}

impl Gathering {
    /// Waits for the answers. False: they will take longer, or something else is said before them.
    async fn gather(&mut self) -> bool {
        let deadline = Instant::now() + MOMENT;
        loop {
            match timeout_at(deadline, self.incoming.recv()).await {
                Ok(Some(said)) => {
                    if let Some(aside) = self.take(said) {
                        self.asides.push(aside);
                        return false;
                    }
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
            if self.answers.is_complete() {
                return true;
            }
        }
    }

    /// Takes a message if it is an answer, and gives it back if it is none.
    fn take(&mut self, said: Said) -> Option<Said> {
        let Ok(Message::Response(response)) = envelope::read(&said.message) else { return Some(said) };
        // One that nobody wants is dropped.
        if let Some(id) = response.id
            && self.answers.take(id, String::from_utf8_lossy(&said.message).into_owned())
        {
            self.held.merge(said.share);
            self.uncounted.extend(said.uncounted);
        }
        None
    }

    /// Passes on what is there and what comes, as events.
    async fn pass_on(mut self, out: mpsc::Sender<Piece>) {
        // Each is gone with its reader, however long the others take.
        for answer in self.answers.into_answers() {
            let share = self.held.split(answer.len());
            if !say(&out, share.of(sse::message(answer.as_bytes()))).await {
                return;
            }
        }
        for aside in std::mem::take(&mut self.asides) {
            if !say(&out, aside.event()).await {
                return;
            }
        }
        let incoming = poll_fn(|context| self.incoming.poll_recv(context));
        let mut pieces = pin!(kept_alive(incoming.map(|said| Ok(said.event()))));
        while let Some(piece) = tokio::select! {
            () = out.closed() => return,
            piece = pieces.next() => piece,
        } {
            if out.send(piece).await.is_err() {
                return;
            }
        }
        while self.tasks.join_next().await.is_some() {}
    }
}
