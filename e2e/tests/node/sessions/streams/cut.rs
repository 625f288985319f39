//! A client whose every connection is cut, and that comes back at another replica each time.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use longshore_e2e::mcp_client::{Endpoint, McpClient, REVISION};
use longshore_e2e::testing::eventually;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::sessions::random::Random;

/// How many notifications there are in a stream.
const EVENTS: usize = 300;
/// How many bytes each carries in addition.
const PADDING: usize = 40;
/// How long one connection may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// At most so many bytes are read before the next cut.
const MOST: u64 = 1_500;

/// What is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// That of a call, which was posted.
    OfCalls,
    /// The client's own, which it asks for.
    OfItsOwn,
}

/// A client, and where its streams are begun and taken up.
pub(super) struct Cut<'a> {
    pub(super) began: Endpoint,
    pub(super) others: Vec<Endpoint>,
    pub(super) service: &'a Endpoint,
    pub(super) client: &'a McpClient,
}

/// What has come of a stream.
#[derive(Default)]
struct Come {
    messages: Vec<Value>,
    last: Option<String>,
}

impl Cut<'_> {
    /// Has the server say something, and cuts that until all of it has come. Returns how often it was taken up, and how
    /// often of these at another replica than where it began.
    pub(super) async fn until_all_has_come(
        &self,
        stream: Stream,
        number: usize,
        random: &mut Random,
    ) -> (usize, usize) {
        let arguments = json!({"count": EVENTS, "padding": PADDING, "call": number});
        let mut come = Come::default();
        match stream {
            Stream::OfCalls => {
                let call = call(number, arguments);
                // A client that has not got the first event has nothing to come back for.
                let limit = 500 + random.below(MOST);
                come.add(&self.read(&self.began, Method::POST, call, None, limit, |_| false).await);
            }
            Stream::OfItsOwn => {
                // It begins with an id, and with nothing to say yet.
                let begun = |text: &str| text.contains("\n\n");
                come.add(&self.read(&self.began, Method::GET, String::new(), None, u64::MAX, begun).await);
                self.client.call("announce", arguments).await.expect("an answer");
            }
        }
        let (mut resumed, mut elsewhere, mut wanted) = (0, 0, EVENTS);
        while come.messages.len() <= EVENTS {
            let at = resumed % (self.others.len() + 1);
            let to = self.others.get(at).unwrap_or(self.service);
            elsewhere += usize::from(at < self.others.len());
            resumed += 1;
            let last = come.last.clone().expect("the first event has an id");
            let limit = 1 + random.below(MOST);
            // A call's stream ends, and the client's own does not.
            let missing = wanted - come.messages.len();
            let all = |text: &str| stream == Stream::OfItsOwn && messages(text) >= missing;
            come.add(&self.read(to, Method::GET, String::new(), Some(&last), limit, all).await);
            if stream == Stream::OfItsOwn && come.messages.len() == EVENTS && wanted == EVENTS {
                // It comes after all of them, and shows that none of them comes again.
                self.client.call("announce", json!({"count": 1})).await.expect("an answer");
                wanted += 1;
            }
            assert!(resumed < 10 * EVENTS, "it comes to no end: {} messages", come.messages.len());
        }
        come.is_right(stream, number);
        (resumed, elsewhere)
    }

    /// Reads a stream until it ends, so many bytes have come or it is enough, and closes the connection.
    async fn read(
        &self,
        at: &Endpoint,
        method: Method,
        body: String,
        last: Option<&str>,
        limit: u64,
        is_enough: impl Fn(&str) -> bool,
    ) -> String {
        let accepted = if method == Method::POST { "application/json, " } else { "" };
        let mut request = Request::builder()
            .method(method)
            .uri(&at.path)
            .header("host", &at.host)
            .header("content-type", "application/json")
            .header("accept", format!("{accepted}text/event-stream"))
            .header("mcp-session-id", self.client.session().expect("a session has an id"))
            .header("mcp-protocol-version", REVISION);
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let request = request.body(Full::new(Bytes::from(body))).expect("a request");
        let reading = tokio::time::timeout(DEADLINE, read(at, request, limit, is_enough)).await;
        reading.unwrap_or_else(|_| panic!("nothing more came after {last:?}"))
    }
}

impl Come {
    fn add(&mut self, text: &str) {
        for event in events(text) {
            self.last = event.id.or(self.last.take());
            self.messages.extend(event.data);
        }
    }

    /// Every notification is there once, in order, and after them what ends them.
    fn is_right(&self, stream: Stream, call: usize) {
        let (said, rest) = self.messages.split_at(EVENTS);
        let numbers: Vec<_> = said.iter().map(number).collect();
        let expected: Vec<_> = (1..=EVENTS as u64).map(Some).collect();
        assert_eq!(numbers, expected);
        let [end] = rest else { panic!("something comes after the end: {rest:?}") };
        match stream {
            Stream::OfCalls => assert_eq!(end["result"]["structuredContent"]["echo"]["call"], call, "{end}"),
            Stream::OfItsOwn => assert_eq!(number(end), Some(1), "{end}"),
        }
    }
}

fn call(number: usize, arguments: Value) -> String {
    let call = json!({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {
        "name": "notify", "arguments": arguments, "_meta": {"progressToken": number},
    }});
    call.to_string()
}

/// The number of a notification, of either kind.
fn number(notification: &Value) -> Option<u64> {
    let parameters = &notification["params"];
    parameters["progress"].as_u64().or_else(|| parameters["data"].as_u64())
}

async fn read(
    at: &Endpoint,
    request: Request<Full<Bytes>>,
    limit: u64,
    is_enough: impl Fn(&str) -> bool,
) -> String {
    let stream =
        eventually(&format!("{} takes a connection", at.address), || TcpStream::connect(at.address)).await;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.expect("HTTP");
    let reading = async {
        let response = sender.send_request(request).await.expect("an answer");
        let status = response.status();
        let mut body = response.into_body();
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < limit && !is_enough(&String::from_utf8_lossy(&bytes)) {
            match body.frame().await {
                Some(frame) => {
                    bytes.extend_from_slice(&frame.expect("a frame").into_data().unwrap_or_default());
                }
                None => break,
            }
        }
        bytes.truncate(usize::try_from(limit).expect("a number"));
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert_eq!(status, 200, "{text}");
        text
    };
    tokio::pin!(reading, connection);
    tokio::select! {
        biased;
        text = &mut reading => text,
        _ = &mut connection => reading.await,
    }
}

struct Event {
    id: Option<String>,
    data: Option<Value>,
}

/// The events that are complete.
fn events(text: &str) -> Vec<Event> {
    let Some(end) = text.rfind("\n\n") else { return Vec::new() };
    let field = |event: &str, name: &str| {
        event
            .lines()
            .find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim_start().to_owned()))
    };
    let events = text[..end].split("\n\n");
    let parsed = events.map(|event| Event {
        id: field(event, "id"),
        data: field(event, "data").and_then(|data| serde_json::from_str(&data).ok()),
    });
    parsed.collect()
}

/// How many of them say something.
fn messages(text: &str) -> usize {
    events(text).iter().filter(|event| event.data.is_some()).count()
}
