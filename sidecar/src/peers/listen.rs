//! The port for the other replicas. Each worker listens there, since what is forwarded is served where any other
//! request is.
//!
//! The port is bound from the start, but nobody listens until there is a configuration with replicas in it: whoever
//! tries to connect is refused, and knows that nobody can hold a session here yet.

use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::rc::Rc;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use longshore_mcp::headers::JSON;
use longshore_sessions::{Message, Peer, Question};
use socket2::Socket;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Duration, sleep, timeout};

use super::connection::set_options;
use super::tls::Tls;
use super::wire::{self, Notice};
use crate::stack;
use crate::stack::respond::Body;
use crate::worker::{Heads, Reading, Serving, UNREAD, Worker, converse};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// How many connections there are at once that have not shown a key yet. The oldest makes room, since nobody is to be kept
/// out by strangers.
const STRANGERS: usize = 256;
/// How long a handshake may take. It costs the other end nothing to be slow, so it has an end.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long a connection may be idle: longer than the other end keeps it.
const IDLE: Duration = Duration::from_secs(75);
/// The largest head: a client's own, and who it is.
const MAX_HEAD: usize = 80 * 1024;
/// The largest question: a page of ended sessions is a fifth of it.
pub(super) const MAX_MESSAGE: usize = 1024 * 1024;
/// How much is held that is encrypted and not taken by the kernel yet: a record.
const ENCRYPTED: usize = 16 * 1024;
/// How long accepting pauses when the process has no descriptors left.
const BREATHER: Duration = Duration::from_millis(50);

/// Serves the other replicas until `stop` says so. Connections that are open then are ended by whoever owns the task.
pub(crate) async fn serve(
    socket: Socket,
    worker: Rc<Worker>,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut changed = worker.shared.config_changed.subscribe();
    while tls(&worker).is_none() {
        tokio::select! {
            // Whether the sender is gone or says stop: both mean the end.
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
            result = changed.changed() => {
                if result.is_err() {
                    return Ok(());
                }
            }
        }
    }
    socket.listen(BACKLOG)?;
    let listener = TcpListener::from_std(socket.into())?;
    let limit = worker.shared.connections_of_a_thread();
    let mut connections = JoinSet::new();
    // The oldest first, each until it is known.
    let mut strangers: VecDeque<(AbortHandle, Rc<Cell<bool>>)> = VecDeque::new();
    let stopped = stop.clone();
    loop {
        strangers.retain(|(task, known)| !known.get() && !task.is_finished());
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    // From before its keys are looked at, so that no change of them is missed in the handshake.
                    let changed = worker.shared.config_changed.subscribe();
                    // Without keys there is nobody to talk to.
                    if let Some(tls) = tls(&worker) {
                        let (stop, known) = (stopped.clone(), Rc::<Cell<bool>>::default());
                        // Whoever came would look for a dead replica where it was left to wait. What is too much is said.
                        let stays = connections.len() - strangers.len() < limit;
                        let accepted = Accepted { stream, stays, known: known.clone() };
                        let served = connection(worker.clone(), accepted, tls, changed, stop);
                        strangers.push_back((connections.spawn_local(served), known));
                        if strangers.len() > STRANGERS
                            && let Some((oldest, _)) = strangers.pop_front()
                        {
                            oldest.abort();
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection of another replica");
                    sleep(BREATHER).await;
                }
            },
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    Ok(())
}

fn tls(worker: &Worker) -> Option<Tls> {
    Some(worker.shared.config().as_ref()?.replicas.as_ref()?.tls.clone())
}

/// A connection that has come.
struct Accepted {
    stream: TcpStream,
    /// Whether it goes on after its first answer: that is so of as many as there are places for.
    stays: bool,
    /// Set when its other end has shown that it is a replica.
    known: Rc<Cell<bool>>,
}

/// Serves one.
async fn connection(
    worker: Rc<Worker>,
    accepted: Accepted,
    tls: Tls,
    changed: watch::Receiver<u64>,
    stop: watch::Receiver<bool>,
) {
    let Accepted { stream, stays, known } = accepted;
    // Behind an answer that is not taken is a client that pauses: it gets as long as one that is here.
    set_options(&stream, UNREAD);
    let mut stream = match timeout(HANDSHAKE, tls.acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "a connection at the port for replicas was refused");
            return;
        }
        Err(_) => return,
    };
    known.set(true);
    stream.get_mut().1.set_buffer_limit(Some(ENCRYPTED));
    let shown = stream.get_ref().1.peer_certificates().and_then(|keys| keys.first());
    let shown = shown.map(|key| key.to_vec()).unwrap_or_default();
    let service = {
        let worker = worker.clone();
        service_fn(move |request| {
            let worker = worker.clone();
            Serving::new(|reading| async move {
                let mut response = answer(&worker, request, reading).await;
                if !stays {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response)
            })
        })
    };
    // They send what comes too late on another connection, or to another replica.
    let delivering = Rc::downgrade(&worker.delivering);
    let shared = worker.shared.clone();
    let heads = Heads { wait: IDLE, size: MAX_HEAD, last: Duration::ZERO, unfinished: &shared.unfinished };
    let (end, ended) = watch::channel(false);
    // A task of its own: nothing of it is to be asked for each request.
    let mut guard = JoinSet::new();
    guard.spawn_local(look_after(worker, shown, changed, stop, end));
    tokio::select! {
        result = converse(stream, heads, service, ended, &delivering) => {
            if let Err(error) = result {
                tracing::debug!(%error, "a connection of another replica ended");
            }
        }
        _ = guard.join_next() => {}
    }
}

/// Has a connection take no more requests when `stop` says so, or when nobody accepts the key any more that its other end
/// has shown. Returns when it is to be closed whatever is under way.
async fn look_after(
    worker: Rc<Worker>,
    shown: Vec<u8>,
    mut changed: watch::Receiver<u64>,
    mut stop: watch::Receiver<bool>,
    end: watch::Sender<bool>,
) {
    loop {
        tokio::select! {
            // Whether the sender is gone or says stop: both mean the end, which has its own limit.
            _ = stop.wait_for(|stop| *stop) => break,
            Ok(()) = changed.changed() => {
                // A key that nobody accepts any more opens nothing, and keeps nothing open: what is under way is answered.
                if !tls(&worker).is_some_and(|tls| tls.accepts(&shown)) {
                    end.send_replace(true);
                    sleep(worker.shared.longest_call()).await;
                    // Streams have no end of their own. Their clients come back for the rest.
                    return;
                }
            }
        }
    }
    end.send_replace(true);
    std::future::pending::<()>().await;
}

async fn answer(worker: &Rc<Worker>, request: Request<Incoming>, reading: Reading) -> Response<Body> {
    let path = request.uri().path();
    if path != wire::FORWARD {
        reading.end();
    }
    match path {
        wire::FORWARD => {
            worker.shared.peers.arrived();
            if !wire::is_for(request.headers(), worker.shared.peers.pod()) {
                return notice(&Notice::OtherPod);
            }
            match wire::principal(request.headers()) {
                Some(principal) => {
                    stack::serve_forwarded(worker, Forwarded { request, principal }, reading).await
                }
                None => status(StatusCode::BAD_REQUEST),
            }
        }
        wire::ASK if request.method() == Method::POST => reply(worker, request).await,
        _ => status(StatusCode::NOT_FOUND),
    }
}

/// A request that another replica has authenticated. Only this module makes one, of what came over a connection whose
/// other end has shown a replica's key.
pub(crate) struct Forwarded {
    request: Request<Incoming>,
    principal: String,
}

impl Forwarded {
    /// The request, and who sent it.
    pub(crate) fn into_parts(self) -> (Request<Incoming>, String) {
        (self.request, self.principal)
    }
}

/// Answers a question.
async fn reply(worker: &Worker, request: Request<Incoming>) -> Response<Body> {
    let Ok(body) = Limited::new(request.into_body(), MAX_MESSAGE).collect().await else {
        return status(StatusCode::BAD_REQUEST);
    };
    let question: Message<Question> = match serde_json::from_slice(&body.to_bytes()) {
        Ok(question) => question,
        Err(error) => {
            // One that only a newer release knows.
            tracing::debug!(%error, "another replica asked something that is not understood");
            return status(StatusCode::BAD_REQUEST);
        }
    };
    let answer = worker.shared.peers.answer(question);
    match serde_json::to_vec(&answer) {
        Ok(text) => {
            let mut response = Response::new(Body::whole(Bytes::from(text)));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
            response
        }
        Err(_) => status(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// Tells the replica that forwarded a request that its session is not served here, but perhaps there.
pub(crate) fn moved(holder: Option<Peer>) -> Response<Body> {
    notice(&Notice::Moved(holder))
}

/// Tells it that there is no room here for the session, but perhaps there.
pub(crate) fn full(next: Option<Peer>) -> Response<Body> {
    notice(&Notice::Full(next))
}

fn notice(notice: &Notice) -> Response<Body> {
    let (mut head, body) = Response::new(Body::empty()).into_parts();
    notice.write(&mut head.status, &mut head.headers);
    Response::from_parts(head, body)
}

fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}
