//! Connections to other replicas: HTTP/1.1 over TLS, kept and used again. Each thread has its own.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::tls::Tls;
use crate::worker::UNSENT;

/// How long it may take until a connection stands. A replica is in the same cluster; what takes longer is a network
/// that is broken, or a process that is stopped.
const CONNECT: Duration = Duration::from_secs(2);
/// How long an idle connection is used again: well below the time after which the other end closes it.
const IDLE: Duration = Duration::from_secs(30);
/// How many idle connections to one replica are kept. As many calls at once need no new one.
const MAX_IDLE: usize = 256;
/// How much is read from a connection ahead of whoever takes it, and the largest head of an answer.
const MAX_BUFFER: usize = 32 * 1024;
/// How much the kernel takes of an answer that nobody reads, since behind it is a client that does not: within a cluster
/// it is enough for any speed.
const RECEIVED: usize = 128 * 1024;
/// How long a request may stay unconfirmed, before the other end counts as gone.
const UNCONFIRMED: Duration = Duration::from_secs(10);
/// After how long without anything it is looked whether the other end is there still, and how often again while nothing
/// comes. Heartbeats go by another connection, which a network may know that has forgotten this one: then nobody would tell
/// whoever only waits for what comes. It is asked several times within `UNCONFIRMED`: once nothing has come for that long, the
/// kernel gives the connection up at the first question without an answer, and one packet may be lost.
const SILENT: Duration = Duration::from_secs(4);
const AGAIN: Duration = Duration::from_secs(2);

/// The connections of one thread.
#[derive(Default)]
pub(crate) struct Connections {
    lines: RefCell<HashMap<IpAddr, Rc<Line>>>,
}

/// All connections to one address.
struct Line {
    idle: RefCell<Vec<Connection>>,
    /// The tasks behind all of them, those in use included.
    drivers: RefCell<Vec<AbortHandle>>,
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    since: Instant,
    driver: AbortHandle,
    /// The keys that it was made with.
    tls: Tls,
}

/// A connection in use. Once the whole answer has been read it can be given back; dropped, it is closed at once,
/// which the other end sees.
pub(crate) struct Lease {
    connection: Option<Connection>,
    line: Rc<Line>,
}

/// Why a replica did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Failure {
    /// Nothing listens there: no replica, or one that is just starting.
    #[error("the connection was refused")]
    Refused,
    /// Nothing came in time, or there is no way there. It may be alive.
    #[error("it did not answer in time")]
    TimedOut,
    /// The connection broke, or the other end is no replica of this server.
    #[error("the connection broke")]
    Broken,
    /// It said something, and nothing that answers the question: it may be of another release.
    #[error("it gave no answer")]
    Declined,
}

/// A request was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unanswered {
    pub(crate) failure: Failure,
    /// Whether the replica may have read something of it. If not, it can be sent elsewhere.
    pub(crate) written: bool,
}

impl Connections {
    /// Sends a request and waits for the head of the answer. Where nothing of it was written on a connection that had
    /// been idle, it is sent on another one; otherwise it never is.
    pub(crate) async fn send(
        &self,
        tls: &Tls,
        to: SocketAddr,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Lease), Unanswered> {
        let line = self.line(to.ip());
        while let Some(connection) = line.take(tls) {
            let mut lease = Lease { connection: Some(connection), line: line.clone() };
            let Some(connection) = &mut lease.connection else { break };
            match connection.sender.try_send_request(request).await {
                Ok(response) => return Ok((response, lease)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(Unanswered { failure: Failure::Broken, written: true }),
                },
            }
        }
        let unwritten = |failure| Unanswered { failure, written: false };
        let connecting = async {
            match line.connect(tls, to).await {
                // A process that ends resets what it has not accepted yet. The next one is refused, or there again.
                Err(Failure::Broken) => line.connect(tls, to).await,
                result => result,
            }
        };
        let connected = timeout(CONNECT, connecting).await;
        let connection = connected.map_err(|_| unwritten(Failure::TimedOut))?.map_err(unwritten)?;
        let mut lease = Lease { connection: Some(connection), line };
        let Some(connection) = &mut lease.connection else { return Err(unwritten(Failure::Broken)) };
        match connection.sender.try_send_request(request).await {
            Ok(response) => Ok((response, lease)),
            Err(mut error) => {
                Err(Unanswered { failure: Failure::Broken, written: error.take_message().is_none() })
            }
        }
    }

    /// Ends every connection to the addresses of which `keep` says no, also those in use: whoever waits for an answer
    /// there hears that the connection broke. And those that have been idle for too long.
    pub(crate) fn tidy(&self, keep: impl Fn(IpAddr) -> bool) {
        self.lines.borrow_mut().retain(|address, line| {
            line.idle.borrow_mut().retain(|connection| connection.since.elapsed() < IDLE);
            let kept = keep(*address);
            if !kept {
                line.cut();
            }
            kept && (Rc::strong_count(line) > 1 || !line.idle.borrow().is_empty())
        });
    }

    fn line(&self, address: IpAddr) -> Rc<Line> {
        self.lines.borrow_mut().entry(address).or_insert_with(Line::new).clone()
    }
}

impl Line {
    fn new() -> Rc<Self> {
        Rc::new(Self { idle: RefCell::default(), drivers: RefCell::default() })
    }

    /// Ends all connections. Whoever waits for an answer hears that the connection broke.
    fn cut(&self) {
        self.drivers.borrow_mut().drain(..).for_each(|driver| driver.abort());
    }

    /// An idle connection that is still good: made with the keys of now, and not too old.
    fn take(&self, tls: &Tls) -> Option<Connection> {
        let mut idle = self.idle.borrow_mut();
        while let Some(connection) = idle.pop() {
            if connection.since.elapsed() >= IDLE {
                // The newest is at the end: the others are older still.
                idle.clear();
            } else if connection.sender.is_ready() && connection.tls.is_as(tls) {
                return Some(connection);
            }
        }
        None
    }

    async fn connect(&self, tls: &Tls, to: SocketAddr) -> Result<Connection, Failure> {
        let stream = TcpStream::connect(to).await.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => Failure::Refused,
            // No route, say: the replica may be alive behind it.
            _ => Failure::TimedOut,
        })?;
        set_options(&stream, UNCONFIRMED);
        let name = ServerName::IpAddress(to.ip().into());
        let stream = tls.connector.connect(name, stream).await.map_err(|error| {
            tracing::debug!(%error, "no connection to another replica");
            Failure::Broken
        })?;
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_BUFFER)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|_| Failure::Broken)?;
        let driver = tokio::task::spawn_local(async move {
            // Whoever waits for an answer hears of the error too.
            let _ = connection.await;
        })
        .abort_handle();
        let mut drivers = self.drivers.borrow_mut();
        drivers.retain(|driver| !driver.is_finished());
        drivers.push(driver.clone());
        Ok(Connection { sender, since: Instant::now(), driver, tls: tls.clone() })
    }
}

/// The options of a connection between replicas, at both ends. Whoever sends something there waits for as long until it is
/// taken.
pub(super) fn set_options(stream: &TcpStream, untaken: Duration) {
    let socket = SockRef::from(stream);
    let alive = TcpKeepalive::new().with_time(SILENT).with_interval(AGAIN);
    // Messages are small and written whole; and a node that is gone says nothing, so somebody has to notice.
    let options = stream
        .set_nodelay(true)
        .and_then(|()| socket.set_recv_buffer_size(RECEIVED))
        .and_then(|()| socket.set_tcp_notsent_lowat(UNSENT))
        .and_then(|()| socket.set_tcp_user_timeout(Some(untaken)))
        .and_then(|()| socket.set_tcp_keepalive(&alive));
    if let Err(error) = options {
        tracing::debug!(%error, "cannot set the options of a connection");
    }
}

impl Lease {
    /// Gives the connection back, when the whole answer has been read.
    pub(crate) fn give_back(mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        if connection.sender.is_closed() {
            return;
        }
        connection.since = Instant::now();
        let mut idle = self.line.idle.borrow_mut();
        if idle.len() < MAX_IDLE {
            idle.push(connection);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
