//! A server in this process, and a client that keeps no rules.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use longshore_example_server::{Server, Settings, over_http, over_sse};
use longshore_mcp::revision::Revision;
use longshore_mcp::sse::Decoder;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::schema;

/// How long anything may take that is to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A server over HTTP. It ends with this.
pub(crate) struct Fixture {
    pub(crate) revision: Revision,
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

/// A response whose body has been read to its end.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) text: String,
}

/// A response that is a stream of events.
pub(crate) struct Events {
    revision: Revision,
    body: Incoming,
    decoder: Decoder,
    /// What has come: ids and data.
    waiting: std::collections::VecDeque<(Option<String>, Option<Value>)>,
    /// The last id.
    pub(crate) last: Option<String>,
    pub(crate) retry: Option<u64>,
}

/// Fails if it does not happen in time.
pub(crate) async fn within<T>(what: &str, happens: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, happens).await.unwrap_or_else(|_| panic!("not in time: {what}"))
}

impl Fixture {
    pub(crate) async fn start(revision: Revision) -> Self {
        Self::with(Settings::of(revision)).await
    }

    pub(crate) async fn with(settings: Settings) -> Self {
        let revision = settings.revision;
        let server = Server::new(&settings);
        let (stop, stopped) = oneshot::channel::<()>();
        let (started, listens) = oneshot::channel();
        let task = tokio::spawn(serve(server, started, async move { drop(stopped.await) }));
        let address = within("it listens", listens).await.unwrap();
        Self { revision, address, stop: Some(stop), task }
    }

    /// Has it end, and waits until it has.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        let task = std::mem::replace(&mut self.task, tokio::spawn(async {}));
        within("it ends", task).await.unwrap();
    }

    /// Sends a request as it is told to.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Response<Incoming> {
        let stream = tokio::net::TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request = request.header("host", self.address.to_string());
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        within("an answer", sender.send_request(request.body(Full::new(body.into())).unwrap())).await.unwrap()
    }

    pub(crate) async fn whole(
        &self,
        method: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Whole {
        let response = self.send(method, "/mcp", headers, body).await;
        let (parts, body) = response.into_parts();
        let body = within("a body", body.collect()).await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        Whole { status: parts.status.as_u16(), headers: parts.headers, text }
    }

    /// Begins a session, and says its id.
    pub(crate) async fn begin(&self, capabilities: Value) -> String {
        let hello = initialize(self.revision, capabilities);
        let answer = self.whole("POST", &POST, hello.to_string()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        schema::check(self.revision, "InitializeResult", &answer.json()["result"]);
        let session = answer.headers["mcp-session-id"].to_str().unwrap().to_owned();
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let told = self.whole("POST", &self.of(&session), ready.to_string()).await;
        assert_eq!((told.status, told.text.as_str()), (202, ""), "{told:?}");
        session
    }

    /// The headers of a message of a session.
    pub(crate) fn of<'a>(&self, session: &'a str) -> Vec<(&'a str, &'a str)> {
        let mut headers = POST.to_vec();
        headers.extend([("mcp-session-id", session), ("mcp-protocol-version", self.revision.as_str())]);
        headers
    }

    /// Sends a request and reads events.
    pub(crate) async fn events(
        &self,
        method: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Events {
        let response = self.send(method, "/mcp", headers, body).await;
        assert_eq!(response.status(), 200);
        Events::of(self.revision, response)
    }
}

async fn serve(
    server: Arc<Server>,
    started: oneshot::Sender<SocketAddr>,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let tell = |served: longshore_example_server::Served| assert!(started.send(served.address).is_ok());
    if server.revision() == Revision::V2024_11_05 {
        over_sse(server, address, tell, stop).await.unwrap();
    } else {
        over_http(server, address, tell, stop).await.unwrap();
    }
}

impl Events {
    pub(crate) fn of(revision: Revision, response: Response<Incoming>) -> Self {
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self {
            revision,
            body: response.into_body(),
            decoder: Decoder::new(1 << 20),
            waiting: Default::default(),
            last: None,
            retry: None,
        }
    }

    /// The next event, with data or without; `None` at the end.
    pub(crate) async fn event(&mut self) -> Option<Option<Value>> {
        loop {
            if let Some((id, data)) = self.waiting.pop_front() {
                self.last = id.or(self.last.take());
                return Some(data);
            }
            let frame = within("an event", self.body.frame()).await?.unwrap();
            let Ok(bytes) = frame.into_data() else { continue };
            let (waiting, retry) = (&mut self.waiting, &mut self.retry);
            let each = |event: longshore_mcp::sse::Event<'_>| {
                *retry = event.retry.or(*retry);
                if let Some(data) = &event.data {
                    let id = event.id.map(|id| id.into_owned());
                    waiting.push_back((id, serde_json::from_slice(data).ok()));
                }
            };
            self.decoder.push(&bytes, each).unwrap();
        }
    }

    /// The path that the first event of HTTP+SSE names.
    pub(crate) async fn endpoint(&mut self) -> String {
        let frame = within("an event", self.body.frame()).await.unwrap().unwrap();
        let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
        let path = text.strip_prefix("event: endpoint\ndata: ").unwrap();
        path.trim_end().to_owned()
    }

    /// The next message, checked by the schema.
    pub(crate) async fn message(&mut self) -> Option<Value> {
        loop {
            if let Some(message) = self.event().await? {
                schema::check_message(self.revision, &message);
                return Some(message);
            }
        }
    }
}

impl Whole {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// The headers of every `POST`.
pub(crate) const POST: [(&str, &str); 2] =
    [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];

pub(crate) fn initialize(revision: Revision, capabilities: Value) -> Value {
    let client = json!({"name": "test", "version": "1"});
    let params =
        json!({"protocolVersion": revision.as_str(), "capabilities": capabilities, "clientInfo": client});
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
}

pub(crate) fn request(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// A request of 2026-07-28, and its headers.
pub(crate) fn lone(method: &str, mut params: Value, capabilities: Value) -> (Vec<(String, String)>, Value) {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    let mut headers: Vec<(String, String)> =
        POST.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    headers.push(("mcp-protocol-version".into(), "2026-07-28".into()));
    headers.push(("mcp-method".into(), method.into()));
    let name = match method {
        "tools/call" | "prompts/get" => params["name"].as_str(),
        "resources/read" => params["uri"].as_str(),
        _ => None,
    };
    headers.extend(name.map(|name| ("mcp-name".to_owned(), name.to_owned())));
    (headers, request(1, method, params))
}

pub(crate) fn borrowed(headers: &[(String, String)]) -> Vec<(&str, &str)> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}
