//! Streamable HTTP: each message a request at `/mcp`, and `/healthz` for the probe.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::answer::{Notifications, Reply, Session};

/// The largest message.
const MAX_MESSAGE: usize = 16 << 20;
/// How many sessions there may be; a test that forgets to end its own shall not fill the memory.
const MAX_SESSIONS: usize = 100_000;
/// How long the probe waits.
const PROBE: Duration = Duration::from_secs(1);
/// The header of a session's id.
const SESSION: &str = "mcp-session-id";

type Body = UnsyncBoxBody<Bytes, Infallible>;

struct Server {
    instance: Arc<str>,
    /// By their ids; `None`: there are none.
    sessions: Option<Mutex<HashMap<String, Session>>>,
    opened: AtomicU64,
    /// Where those of each session's own stream take what is announced; `None`: there are no such streams.
    listeners: Option<Mutex<HashMap<String, UnboundedSender<Notifications>>>>,
    sick: AtomicBool,
}

/// Serves until it is told to end.
pub(crate) fn serve(listen: SocketAddr, sessions: bool, streams: bool) -> io::Result<()> {
    let server = Arc::new(Server {
        instance: instance()?,
        sessions: sessions.then(Mutex::default),
        opened: AtomicU64::new(0),
        listeners: streams.then(Mutex::default),
        sick: AtomicBool::new(false),
    });
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(accept(listen, server))
}

async fn accept(listen: SocketAddr, server: Arc<Server>) -> io::Result<()> {
    let listener = TcpListener::bind(listen).await?;
    // As the first process of a container it has no default action for the signal.
    let (mut end, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = tokio::select! {
            accepted = listener.accept() => accepted?,
            Some(_) = connections.join_next() => continue,
            _ = end.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
        };
        let _ = stream.set_nodelay(true);
        let server = server.clone();
        let service = service_fn(move |request| {
            let server = server.clone();
            async move { server.respond(request).await }
        });
        connections.spawn(async move {
            // A client that has gone away, which is its own business.
            let _ = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// Asks the server at that address whether it is well.
pub(crate) fn check(address: SocketAddr) -> io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&address, PROBE)?;
    stream.set_read_timeout(Some(PROBE))?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.starts_with("HTTP/1.1 200"))
}

/// What this process is known by: its host, which in a pod is called as the pod, and something random.
pub(crate) fn instance() -> io::Result<Arc<str>> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    Ok(format!("{}/{}", host.trim(), random()?).into())
}

/// Something that nobody else has drawn, as hexadecimal digits.
fn random() -> io::Result<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    Ok(text.trim().replace('-', ""))
}

// === impl Server ===

impl Server {
    async fn respond(&self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let session = request.headers().get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
        Ok(match (request.method().clone(), request.uri().path()) {
            (Method::POST, "/mcp") => match Limited::new(request.into_body(), MAX_MESSAGE).collect().await {
                Ok(body) => self.message(session, &body.to_bytes()).await,
                Err(_) => status(StatusCode::PAYLOAD_TOO_LARGE),
            },
            (Method::DELETE, "/mcp") => self.end(session.as_deref()),
            (Method::GET, "/mcp") => self.listen(session),
            (_, "/mcp") => status(StatusCode::METHOD_NOT_ALLOWED),
            (Method::GET, "/healthz") if !self.sick.load(Ordering::Relaxed) => status(StatusCode::OK),
            (Method::GET, "/healthz") => status(StatusCode::INTERNAL_SERVER_ERROR),
            _ => status(StatusCode::NOT_FOUND),
        })
    }

    async fn message(&self, id: Option<String>, message: &[u8]) -> Response<Body> {
        let (reply, opened) = match self.answer(id.clone(), message) {
            Ok(answered) => answered,
            Err(refusal) => return status(refusal),
        };
        match reply {
            // Whoever wants events no more closes their connection.
            Reply::Nothing | Reply::Cancelled(_) => status(StatusCode::ACCEPTED),
            Reply::Now(answer) => json(answer, opened),
            Reply::Sick(answer) => {
                self.sick.store(true, Ordering::Relaxed);
                json(answer, opened)
            }
            Reply::Later(time, answer) => {
                tokio::time::sleep(time).await;
                json(answer, opened)
            }
            Reply::Notified(notifications, answer) => events(notifications, answer),
            Reply::Announced(notifications, answer) => {
                if self.announce(id, notifications) {
                    json(answer, opened)
                } else {
                    status(StatusCode::CONFLICT)
                }
            }
            Reply::Exit(code) => std::process::exit(code.into()),
        }
    }

    /// The answer, and the id of the session that was opened with it.
    fn answer(&self, id: Option<String>, message: &[u8]) -> Result<(Reply, Option<String>), StatusCode> {
        let Some(sessions) = &self.sessions else {
            return Ok((Session::new(&self.instance, 0).answer(message), None));
        };
        if let Some(id) = id {
            let mut sessions = sessions.lock();
            let session = sessions.get_mut(&id).ok_or(StatusCode::NOT_FOUND)?;
            return Ok((session.answer(message), None));
        }
        // Whoever has no session can only open one.
        let mut session = Session::new(&self.instance, self.opened.fetch_add(1, Ordering::Relaxed) + 1);
        let reply = session.answer(message);
        if session.who == "null" {
            return Err(StatusCode::BAD_REQUEST);
        }
        let id = random().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
        let mut sessions = sessions.lock();
        if sessions.len() >= MAX_SESSIONS {
            return Err(StatusCode::TOO_MANY_REQUESTS);
        }
        sessions.insert(id.clone(), session);
        Ok((reply, Some(id)))
    }

    /// Opens the session's own stream; one that it had ends.
    fn listen(&self, id: Option<String>) -> Response<Body> {
        let Some(listeners) = &self.listeners else { return status(StatusCode::METHOD_NOT_ALLOWED) };
        let known =
            |id: &String| self.sessions.as_ref().is_some_and(|sessions| sessions.lock().contains_key(id));
        let Some(id) = id.filter(known) else { return status(StatusCode::NOT_FOUND) };
        let (sender, announced) = unbounded_channel();
        listeners.lock().insert(id, sender);
        announcements(announced)
    }

    /// Says something in the session's own stream, if it has one.
    fn announce(&self, id: Option<String>, notifications: Notifications) -> bool {
        let listener = |id: String| self.listeners.as_ref()?.lock().get(&id).cloned();
        id.and_then(listener).is_some_and(|listener| listener.send(notifications).is_ok())
    }

    fn end(&self, id: Option<&str>) -> Response<Body> {
        if let Some((listeners, id)) = self.listeners.as_ref().zip(id) {
            listeners.lock().remove(id);
        }
        let ended = self.sessions.as_ref().zip(id).and_then(|(sessions, id)| sessions.lock().remove(id));
        status(if ended.is_some() { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND })
    }
}

fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Full::default().boxed_unsync());
    *response.status_mut() = status;
    response
}

fn json(text: String, opened: Option<String>) -> Response<Body> {
    let mut response = Response::new(Full::from(text).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    if let Some(id) = opened.and_then(|id| id.try_into().ok()) {
        headers.insert(SESSION, id);
    }
    response
}

/// Notifications and the answer, as fast as they are read and no faster.
fn events(notifications: Notifications, answer: String) -> Response<Body> {
    event_stream(stream::unfold((1, Some(answer)), move |(number, answer)| {
        let notifications = notifications.clone();
        async move {
            let answer = answer?;
            if number > notifications.count {
                return Some((answer, (number + 1, None)));
            }
            Some((notifications.in_time(number).await, (number + 1, Some(answer))))
        }
    }))
}

/// What is announced, as fast as it is read.
fn announcements(announced: UnboundedReceiver<Notifications>) -> Response<Body> {
    event_stream(stream::unfold((announced, None), async |(mut announced, under_way)| {
        let (notifications, number): (Notifications, u64) = match under_way {
            Some(under_way) => under_way,
            None => (announced.recv().await?, 1),
        };
        let data = notifications.in_time(number).await;
        let next = (number < notifications.count).then_some((notifications, number + 1));
        Some((data, (announced, next)))
    }))
}

fn event_stream(messages: impl Stream<Item = String> + Send + 'static) -> Response<Body> {
    let events = messages.map(|data| {
        Ok::<_, Infallible>(Frame::data(Bytes::from(format!("event: message\ndata: {data}\n\n"))))
    });
    let mut response = Response::new(StreamBody::new(events).boxed_unsync());
    let kind = header::HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

impl Notifications {
    /// The notification of this number, when it is its turn.
    async fn in_time(&self, number: u64) -> String {
        if !self.pause.is_zero() {
            tokio::time::sleep(self.pause).await;
        }
        self.number(number)
    }
}
