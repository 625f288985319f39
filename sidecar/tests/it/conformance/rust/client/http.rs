//! HTTP for the releases that have none without further libraries.

use std::io;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http::{Request, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use sse_stream::{Sse, SseStream};
use tokio::net::TcpStream;

pub(super) struct Answer {
    pub(super) session: Option<String>,
    pub(super) body: Body,
}

pub(super) enum Body {
    Nothing,
    Json(Bytes),
    Events(BoxStream<'static, Result<Sse, sse_stream::Error>>),
}

/// Sends a request on a connection of its own. An answer that is an error is one here.
pub(super) async fn send(
    method: &str,
    url: &str,
    headers: &[(&str, Option<&str>)],
    body: String,
) -> io::Result<Answer> {
    let uri: Uri = url.parse().map_err(io::Error::other)?;
    let authority = uri.authority().expect("a URL in full").as_str();
    let stream = TokioIo::new(TcpStream::connect(authority).await?);
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(stream).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    let mut request = Request::builder()
        .method(method)
        .uri(uri.path_and_query().map_or("/", |path| path.as_str()))
        .header(header::HOST, authority)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "text/event-stream, application/json");
    for (name, value) in headers {
        if let Some(value) = value {
            request = request.header(*name, *value);
        }
    }
    let request = request.body(Full::new(Bytes::from(body))).map_err(io::Error::other)?;
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    if !response.status().is_success() {
        return Err(io::Error::other(format!("{method} {url}: {}", response.status())));
    }
    let header = |name: &str| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
    let session = header("mcp-session-id");
    let body = match header("content-type").as_deref() {
        Some(kind) if kind.starts_with("text/event-stream") => {
            Body::Events(SseStream::new(response.into_body()).boxed())
        }
        Some(kind) if kind.starts_with("application/json") => {
            Body::Json(response.into_body().collect().await.map_err(io::Error::other)?.to_bytes())
        }
        _ => Body::Nothing,
    };
    Ok(Answer { session, body })
}
