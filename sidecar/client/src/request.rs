//! One request to a sidecar's admin port.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, ETAG, HOST, IF_NONE_MATCH};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{Instant, timeout};

use crate::{AdminAddress, TokenFile};

/// How long the sidecar may hold a request while nothing changes.
pub(crate) const WAIT: Duration = Duration::from_secs(30);
/// How much later than that it may answer.
const GRACE: Duration = Duration::from_secs(10);
/// An address that swallows packets must not hold a poll for the minutes that TCP would.
const CONNECT: Duration = Duration::from_secs(2);
/// So many bytes of an answer are read without a place among those in memory. Nearly all answers are shorter, so they wait
/// for none that comes slowly; and what is made of them is made at once.
const SHORT: usize = 64 << 10;
/// How long an answer may take from its first byte to its last, and once more if it is longer than that.
const TRANSFER: Duration = Duration::from_secs(10);
/// Why an answer is no inventory is told in so many bytes.
const LONGEST_WORDS: usize = 512;

/// How the words on a sidecar begin that was reached and gave no inventory. The HTTP status follows.
pub const ANSWERED: &str = "the sidecar answered ";

/// What a sidecar answered.
pub(crate) enum Answer<S> {
    /// Its inventory, new to us.
    Changed {
        /// What we keep of it.
        kept: S,
        /// Its tag, for the next request.
        tag: Option<String>,
        /// How long it took to make one of the other.
        took: Duration,
    },
    /// Nothing new.
    Unchanged,
}

/// Why a sidecar gave no inventory.
#[derive(Debug, Error)]
pub(crate) enum Error {
    #[error("the token for sidecars cannot be read: {0}")]
    Token(#[source] std::io::Error),
    #[error("the token for sidecars is not a header value")]
    TokenText(#[source] http::Error),
    #[error("cannot connect to the sidecar: {0}")]
    Connect(#[source] std::io::Error),
    #[error("the sidecar did not answer in time")]
    Timeout,
    #[error("the connection to the sidecar broke: {0}")]
    Broken(#[source] hyper::Error),
    #[error("{ANSWERED}{0}")]
    Status(StatusCode),
    #[error("the sidecar's answer is too long or broke off: {0}")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Not the error itself, which may quote the whole answer.
    #[error("the sidecar's answer is not an inventory: {words}")]
    Parse {
        /// Why it is none.
        words: String,
        /// How long it took to find out.
        took: Duration,
    },
    #[error("reading the sidecar's answer broke off")]
    BrokeOff(#[source] JoinError),
}

impl Error {
    /// Whether the sidecar did not believe the token.
    pub(crate) fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Status(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN))
    }

    /// How long it took to read what is no inventory.
    pub(crate) fn cost(&self) -> Duration {
        if let Self::Parse { took, .. } = self { *took } else { Duration::ZERO }
    }
}

/// What limits the reading of answers.
pub(crate) struct Limits<'a> {
    /// The longest answer, in bytes.
    pub(crate) answer_bytes: usize,
    /// The places for long answers in memory.
    pub(crate) answers: &'a Arc<Semaphore>,
    /// How many of them may be those of one namespace.
    pub(crate) of_namespace: &'a Arc<Semaphore>,
    /// Who of one server's sidecars may have such a place.
    pub(crate) turn: &'a Arc<Semaphore>,
}

/// Makes of the JSON of an answer what is kept of it.
pub(crate) type Keep<S> = Arc<dyn Fn(&[u8]) -> serde_json::Result<S> + Send + Sync>;

/// Asks for the inventory, and waits for so long for one other than `known` if a tag is given.
pub(crate) async fn ask<S: Send + 'static>(
    address: AdminAddress,
    token: &TokenFile,
    known: Option<&str>,
    wait: Duration,
    limits: Limits<'_>,
    keep: Keep<S>,
) -> Result<Answer<S>, Error> {
    let token = token.read().await.map_err(Error::Token)?;
    let mut request = Request::get("/v1/inventory")
        .header(HOST, address.socket().to_string())
        .header(ACCEPT, "application/json")
        .header(CONNECTION, "close")
        .header(AUTHORIZATION, sensitive(&token).map_err(|error| Error::TokenText(error.into()))?);
    if let Some(tag) = known {
        request = request.header(IF_NONE_MATCH, tag).header("prefer", format!("wait={}", wait.as_secs()));
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(Error::TokenText)?;

    let stream = timeout(CONNECT, TcpStream::connect(address.socket()))
        .await
        .map_err(|_| Error::Timeout)?
        .map_err(Error::Connect)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(Error::Broken)?;
    let exchange = async move {
        let response = timeout(wait + GRACE, sender.send_request(request))
            .await
            .map_err(|_| Error::Timeout)?
            .map_err(Error::Broken)?;
        match response.status() {
            StatusCode::OK => read(response, limits, keep).await,
            StatusCode::NOT_MODIFIED => Ok(Answer::Unchanged),
            other => Err(Error::Status(other)),
        }
    };
    // The connection has to be driven for the exchange to get on; whatever ends it shows in the exchange.
    let driven = async {
        let _ = connection.await;
        pending().await
    };
    tokio::select! {
        answer = exchange => answer,
        never = driven => never,
    }
}

async fn read<S: Send + 'static>(
    response: Response<Incoming>,
    limits: Limits<'_>,
    keep: Keep<S>,
) -> Result<Answer<S>, Error> {
    let tag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    let mut body = Limited::new(response.into_body(), limits.answer_bytes);
    let mut bytes = Vec::new();
    let in_time = |_| Error::Timeout;
    let places = if timeout(TRANSFER, gather(&mut body, &mut bytes, SHORT)).await.map_err(in_time)?? {
        None
    } else {
        // The semaphores are never closed; were they, reading without a place would still be bounded by the poll's pace.
        let Limits { turn, of_namespace, answers, .. } = limits;
        let places = (
            turn.clone().acquire_owned().await,
            of_namespace.clone().acquire_owned().await,
            answers.clone().acquire_owned().await,
        );
        if let Some(rest) = body.size_hint().exact().and_then(|rest| usize::try_from(rest).ok()) {
            bytes.reserve_exact(rest.min(limits.answer_bytes));
        }
        timeout(TRANSFER, gather(&mut body, &mut bytes, usize::MAX)).await.map_err(in_time)??;
        Some(places)
    };
    let is_short = places.is_none();
    let make = move || {
        let began = Instant::now();
        let kept =
            keep(&bytes).map_err(|error| Error::Parse { words: words(&error), took: began.elapsed() })?;
        drop(bytes);
        drop(places);
        Ok(Answer::Changed { kept, tag, took: began.elapsed() })
    };
    // A long one may take seconds, in which nothing else of this task would get on: neither the other sidecars nor what
    // whoever asks them does beside. The places are the answer's until it is gone, also if nobody waits for it any more.
    if is_short { make() } else { spawn_blocking(make).await.map_err(Error::BrokeOff)? }
}

/// Reads on until there are more than `enough` bytes. Whether that was all before. (Parts are not kept as they come: each
/// may be of one byte.)
async fn gather(body: &mut Limited<Incoming>, bytes: &mut Vec<u8>, enough: usize) -> Result<bool, Error> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(Error::Body)?.into_data() {
            bytes.extend_from_slice(&data);
            if bytes.len() > enough {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The words of an error, as much of them as is kept.
fn words(error: &serde_json::Error) -> String {
    let mut words = error.to_string();
    words.truncate(words.floor_char_boundary(LONGEST_WORDS));
    words.shrink_to_fit();
    words
}

/// The value of `Authorization`, which no log of a library may show.
fn sensitive(token: &str) -> Result<HeaderValue, http::header::InvalidHeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))?;
    value.set_sensitive(true);
    Ok(value)
}
