//! A lane's connection: made when it is needed, and again when it was closed.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::report::{Kind, Tally};
use crate::mcp_client::Endpoint;

/// How long a call may take.
pub(super) const DEADLINE: Duration = Duration::from_secs(30);
/// How long one attempt at a connection may take: a packet to a pod that has gone is lost, and the next may not be.
const CONNECT: Duration = Duration::from_secs(3);
/// How long to wait before the next attempt.
const AGAIN: Duration = Duration::from_millis(20);

/// An answer, read to its end.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

#[derive(Debug, Default)]
pub(super) struct Connection {
    open: Option<Open>,
    calls: u64,
}

#[derive(Debug)]
struct Open {
    sender: SendRequest<Full<Bytes>>,
    /// Does the connection's work, as long as this is there.
    _driver: JoinSet<()>,
}

impl Connection {
    /// Sends a request and reads all of its answer. After `per_connection` of them it takes another connection.
    pub(super) async fn send(
        &mut self,
        endpoint: &Endpoint,
        per_connection: u64,
        request: Request<Full<Bytes>>,
        tally: &mut Tally,
    ) -> Result<Answer, (Kind, String)> {
        if self.calls >= per_connection {
            self.open = None;
        }
        let exchange = self.exchange(endpoint, request, tally);
        let answer = match tokio::time::timeout(DEADLINE, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err((Kind::TimedOut, format!("no answer within {DEADLINE:?}"))),
        };
        if answer.is_err() {
            self.open = None;
        }
        answer
    }

    async fn exchange(
        &mut self,
        endpoint: &Endpoint,
        mut request: Request<Full<Bytes>>,
        tally: &mut Tally,
    ) -> Result<Answer, (Kind, String)> {
        let response = loop {
            let open = self.opened(endpoint, tally).await?;
            match open.sender.try_send_request(request).await {
                Ok(response) => break response,
                Err(mut error) => {
                    self.open = None;
                    // What comes back was never sent.
                    let Some(unsent) = error.take_message() else {
                        return Err((Kind::Broken, error.into_error().to_string()));
                    };
                    tally.unsent += 1;
                    request = unsent;
                }
            }
        };
        self.calls += 1;
        let (head, body) = response.into_parts();
        match body.collect().await {
            Ok(body) => Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes() }),
            Err(error) => Err((Kind::Broken, format!("in the middle of an answer: {error}"))),
        }
    }

    /// The connection, which is ready to send. One that the other side closed after its last answer is no failure.
    async fn opened(&mut self, endpoint: &Endpoint, tally: &mut Tally) -> Result<&mut Open, (Kind, String)> {
        if let Some(open) = &mut self.open
            && open.sender.ready().await.is_err()
        {
            self.open = None;
        }
        let open = match self.open.take() {
            Some(open) => open,
            None => {
                self.calls = 0;
                connect(endpoint, tally).await?
            }
        };
        Ok(self.open.insert(open))
    }
}

async fn connect(endpoint: &Endpoint, tally: &mut Tally) -> Result<Open, (Kind, String)> {
    let began = Instant::now();
    loop {
        let trouble = match tokio::time::timeout(CONNECT, TcpStream::connect(endpoint.address)).await {
            Ok(Ok(stream)) => {
                tally.connections += 1;
                let _ = stream.set_nodelay(true);
                let (sender, connection) = handshake(TokioIo::new(stream))
                    .await
                    .map_err(|error| (Kind::Broken, format!("no handshake: {error}")))?;
                let mut driver = JoinSet::new();
                driver.spawn(async move {
                    // What goes wrong in it, the exchange is told.
                    let _ = connection.await;
                });
                return Ok(Open { sender, _driver: driver });
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "nobody answers".to_owned(),
        };
        tally.refused += 1;
        if began.elapsed() + AGAIN > DEADLINE {
            return Err((Kind::Unreachable, trouble));
        }
        tokio::time::sleep(AGAIN).await;
    }
}
