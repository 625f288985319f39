//! One request to a sidecar's admin port.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, ETAG, HOST, IF_NONE_MATCH};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use longshore_sidecar_config::ports;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Summary, TokenFile};

/// How long the sidecar may hold a request while nothing changes.
const WAIT_SECONDS: u64 = 30;
/// An address that swallows packets must not hold a poll for the minutes that TCP would.
const CONNECT: Duration = Duration::from_secs(2);
/// A sidecar bounds its inventory far below this; what is at the address of a pod may be anything.
const LARGEST_ANSWER: usize = 32 << 20;

/// What a sidecar answered.
pub(super) enum Answer {
    /// Its inventory, new to us.
    Changed {
        /// What we keep of it.
        summary: Arc<Summary>,
        /// Its tag, for the next request.
        tag: Option<String>,
    },
    /// Nothing new.
    Unchanged,
}

/// Why a sidecar gave no inventory.
#[derive(Debug, Error)]
pub(super) enum Error {
    #[error("the operator's own token for sidecars cannot be read: {0}")]
    Token(#[source] std::io::Error),
    #[error("the operator's own token for sidecars is not a header value")]
    TokenText(#[source] http::Error),
    #[error("cannot connect to the sidecar: {0}")]
    Connect(#[source] std::io::Error),
    #[error("the sidecar did not answer in time")]
    Timeout,
    #[error("the connection to the sidecar broke: {0}")]
    Broken(#[source] hyper::Error),
    #[error("the sidecar answered {0}")]
    Status(StatusCode),
    #[error("the sidecar's answer is too long or broke off: {0}")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the sidecar's answer is not an inventory: {0}")]
    Parse(#[source] serde_json::Error),
}

impl Error {
    /// Whether the sidecar did not believe the token.
    pub(super) fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Status(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN))
    }
}

/// Asks for the inventory, and waits for one other than `known` if a tag is given.
pub(super) async fn ask(address: IpAddr, token: &TokenFile, known: Option<&str>) -> Result<Answer, Error> {
    let token = token.read().await.map_err(Error::Token)?;
    let host = std::net::SocketAddr::new(address, ports::ADMIN);
    let mut request = Request::get("/v1/inventory")
        .header(HOST, host.to_string())
        .header(ACCEPT, "application/json")
        .header(CONNECTION, "close")
        .header(AUTHORIZATION, sensitive(&token).map_err(|error| Error::TokenText(error.into()))?);
    if let Some(tag) = known {
        request = request.header(IF_NONE_MATCH, tag).header("prefer", format!("wait={WAIT_SECONDS}"));
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(Error::TokenText)?;

    let stream = timeout(CONNECT, TcpStream::connect(host))
        .await
        .map_err(|_| Error::Timeout)?
        .map_err(Error::Connect)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(Error::Broken)?;
    let exchange = async move {
        let response = sender.send_request(request).await.map_err(Error::Broken)?;
        match response.status() {
            StatusCode::NOT_MODIFIED => return Ok(Answer::Unchanged),
            StatusCode::OK => {}
            other => return Err(Error::Status(other)),
        }
        let tag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await.map_err(Error::Body)?;
        let summary = serde_json::from_slice(&body.to_bytes()).map_err(Error::Parse)?;
        Ok(Answer::Changed { summary: Arc::new(summary), tag })
        // The sender ends here, and with it the connection's future below.
    };
    let both = async { tokio::join!(exchange, connection).0 };
    timeout(Duration::from_secs(WAIT_SECONDS + 10), both).await.map_err(|_| Error::Timeout)?
}

/// The value of `Authorization`, which no log of a library may show.
fn sensitive(token: &str) -> Result<HeaderValue, http::header::InvalidHeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))?;
    value.set_sensitive(true);
    Ok(value)
}
