//! Connections to a server over HTTP: HTTP/1.1 on loopback, kept and used again. Each thread has its own.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use ::http::header::HOST;
use ::http::{HeaderValue, Request, Response, Uri};
use bytes::Bytes;
use http_body::Body as _;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::{Also, Answer, Body, Form};
use crate::worker::{Pace, Watched};

/// How long an idle connection is used again. Node's servers close theirs after five seconds, and a close that
/// crosses a request loses it.
const IDLE: Duration = Duration::from_secs(3);
/// How long the rest of an answer may take of which everything has been delivered.
const REST: Duration = Duration::from_secs(1);
/// How often those are closed that are not used again.
const SWEEP: Duration = Duration::from_secs(1);
/// How much is read from a connection ahead of whoever takes it, and the largest head of an answer. A client that does not
/// read costs this for each of its calls.
const MAX_BUFFER: usize = 32 * 1024;
/// How much the kernel is to take of an answer that nobody reads, since its client does not, or since there is no room for it;
/// it doubles that. Left alone it takes megabytes, which count as the container's memory. A megabyte then takes 0.35 ms on
/// loopback in place of 0.5; what is smaller than this takes no longer.
pub(crate) const RECEIVED: usize = 64 * 1024;
/// How many answers that are not over yet are looked at for one that is. The oldest is, most likely.
const LOOK: usize = 4;
/// How many idle connections are kept: more than calls that end together, which would otherwise connect anew each time.
/// Those that are not used again close soon.
const MAX_IDLE: usize = 256;

/// The connections of one thread.
pub(super) struct Connections {
    /// Those that can be used again, the last one first.
    idle: RefCell<Vec<Connection>>,
    /// Those whose last answer has been delivered, and was not read to its very end by then; the oldest first.
    ending: RefCell<VecDeque<Connection>>,
    /// The server listens on the loopback address of IPv6 only.
    prefer_v6: Cell<bool>,
    /// The server's endpoint, which is nearly always the same.
    endpoint: RefCell<Option<Endpoint>>,
    /// How much is read of each at once.
    pace: Arc<Pace>,
}

/// Where something of a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) port: u16,
    pub(super) path: String,
}

/// An endpoint, as a request says it.
struct Endpoint {
    port: u16,
    path: String,
    uri: Uri,
    host: HeaderValue,
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    port: u16,
    since: Instant,
    /// What is left of the last answer.
    rest: Option<Incoming>,
}

/// Why a request got no answer.
#[derive(Debug, Error)]
pub(crate) enum Unanswered {
    /// Nothing listens.
    #[error("nothing listens on port {port}")]
    Refused { port: u16, source: io::Error },
    /// The connection broke, or what came is not HTTP.
    #[error("the connection broke")]
    Lost(#[from] hyper::Error),
}

/// A connection in use. Once the whole answer has been read it can be given back; dropped, it is closed.
pub(crate) struct Lease(Option<(Connection, Rc<Connections>)>);

impl Connections {
    /// None yet.
    pub(super) fn new(pace: Arc<Pace>) -> Self {
        let (idle, ending, prefer_v6, endpoint) = Default::default();
        Self { idle, ending, prefer_v6, endpoint, pace }
    }

    /// Sends a request to an endpoint and waits for the head of the answer.
    pub(super) fn send_to(
        self: &Rc<Self>,
        port: u16,
        path: &str,
        request: impl Into<Request<Bytes>>,
    ) -> impl Future<Output = Result<Answer, Unanswered>> {
        self.send(port, self.addressed(port, path, request.into()))
    }

    /// A request that says to which endpoint it goes.
    fn addressed(&self, port: u16, path: &str, mut request: Request<Bytes>) -> Request<Bytes> {
        let mut known = self.endpoint.borrow_mut();
        known.take_if(|known| known.port != port || known.path != path);
        let endpoint = known.get_or_insert_with(|| Endpoint::new(port, path));
        *request.uri_mut() = endpoint.uri.clone();
        request.headers_mut().insert(HOST, endpoint.host.clone());
        request
    }

    /// Sends a request and waits for the head of the answer. A request of which nothing was written is sent again on
    /// another connection; any other is not, since the server may have begun it.
    async fn send(self: &Rc<Self>, port: u16, request: Request<Bytes>) -> Result<Answer, Unanswered> {
        let mut request = request.map(Full::new);
        while let Some(mut connection) = self.take(port) {
            match connection.sender.try_send_request(request).await {
                Ok(response) => return Ok(self.answer(response, connection)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(error.into_error().into()),
                },
            }
        }
        let mut connection = Box::pin(self.connect(port)).await?;
        let response = connection.sender.send_request(request).await?;
        Ok(self.answer(response, connection))
    }

    fn answer(self: &Rc<Self>, response: Response<Incoming>, connection: Connection) -> Answer {
        let (head, body) = response.into_parts();
        let body = Body::Http(body, Form::of(&head.headers));
        let lease = Lease(Some((connection, self.clone())));
        Answer { status: head.status, also: Also::of(&head), body, lease }
    }

    /// The connection that was used last of those that are still good.
    fn take(&self, port: u16) -> Option<Connection> {
        let (mut idle, mut ending) = (self.idle.borrow_mut(), self.ending.borrow_mut());
        let now = Instant::now();
        let (mut at, mut unfinished) = (0, 0);
        while unfinished < LOOK
            && let Some(state) = ending.get_mut(at).map(|connection| connection.state(now))
        {
            match state {
                State::Good => idle.extend(ending.remove(at)),
                State::Useless => drop(ending.remove(at)),
                State::Unfinished => (at, unfinished) = (at + 1, unfinished + 1),
            }
        }
        while let Some(mut connection) = idle.pop() {
            if connection.port == port && matches!(connection.state(now), State::Good) {
                return Some(connection);
            }
        }
        None
    }

    /// Closes connections that are not used again, for as long as the process lives.
    pub(super) async fn sweep(&self) {
        loop {
            sleep(SWEEP).await;
            let now = Instant::now();
            let is_of_use = |connection: &mut Connection| !matches!(connection.state(now), State::Useless);
            self.idle.borrow_mut().retain_mut(is_of_use);
            self.ending.borrow_mut().retain_mut(is_of_use);
        }
    }

    async fn connect(&self, port: u16) -> Result<Connection, Unanswered> {
        let mut addresses: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        if self.prefer_v6.get() {
            addresses.reverse();
        }
        let [first, second] = addresses.map(|address| SocketAddr::new(address, port));
        let stream = match TcpStream::connect(first).await {
            Ok(stream) => stream,
            Err(source) => match TcpStream::connect(second).await {
                Ok(stream) => {
                    self.prefer_v6.set(second.is_ipv6());
                    stream
                }
                // What the first address said: a host without IPv6 says nothing useful about the second.
                Err(_) => return Err(Unanswered::Refused { port, source }),
            },
        };
        // Requests are small and written whole; waiting for more would only cost time.
        let options =
            stream.set_nodelay(true).and_then(|()| SockRef::from(&stream).set_recv_buffer_size(RECEIVED));
        if let Err(error) = options {
            tracing::debug!(%error, "cannot set the options of a connection to the server");
        }
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_BUFFER)
            .handshake(TokioIo::new(Watched::new(stream, self.pace.clone())))
            .await?;
        tokio::task::spawn_local(async move {
            // Whoever waits for an answer hears of the error too.
            if let Err(error) = connection.await {
                tracing::trace!(%error, "a connection to the server ended");
            }
        });
        Ok(Connection { sender, port, since: Instant::now(), rest: None })
    }
}

impl Endpoint {
    fn new(port: u16, path: &str) -> Self {
        // Checked when the configuration was loaded, or when a server over SSE named the endpoint.
        let uri = path.parse().unwrap_or_default();
        let host = HeaderValue::try_from(format!("127.0.0.1:{port}"));
        let host = host.unwrap_or(HeaderValue::from_static("127.0.0.1"));
        Self { port, path: path.to_owned(), uri, host }
    }
}

/// What can be done with an idle connection.
enum State {
    /// It can be used.
    Good,
    /// The last answer is not over.
    Unfinished,
    Useless,
}

impl Connection {
    fn state(&mut self, now: Instant) -> State {
        let age = now - self.since;
        if age >= IDLE || self.sender.is_closed() {
            State::Useless
        } else if self.is_read() && self.sender.is_ready() {
            State::Good
        } else if age < REST {
            State::Unfinished
        } else {
            State::Useless
        }
    }

    /// Reads what there is of the rest of the last answer, and says whether that was all.
    fn is_read(&mut self) -> bool {
        let Some(rest) = &mut self.rest else { return true };
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            match Pin::new(&mut *rest).poll_frame(&mut cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(_)) | None) => break,
                Poll::Pending => return false,
            }
        }
        self.rest = None;
        true
    }
}

impl Lease {
    /// Where there is no connection to be held.
    pub(super) fn nothing() -> Self {
        Self(None)
    }

    /// Gives the connection back, when the whole answer has been read.
    pub(crate) fn give_back(self) {
        self.back(None);
    }

    /// Gives it back when nothing more is wanted of the answer, of which this is left.
    pub(crate) fn give_back_with(self, rest: Incoming) {
        self.back(Some(rest));
    }

    fn back(self, rest: Option<Incoming>) {
        let Self(Some((mut connection, pool))) = self else { return };
        let now = Instant::now();
        (connection.since, connection.rest) = (now, rest);
        let (mut idle, mut ending) = (pool.idle.borrow_mut(), pool.ending.borrow_mut());
        if idle.len() + ending.len() >= MAX_IDLE {
            return;
        }
        // Asked for once, the rest comes by the time that the connection is wanted again.
        match connection.state(now) {
            State::Good => idle.push(connection),
            State::Unfinished => ending.push_back(connection),
            State::Useless => {}
        }
    }
}
