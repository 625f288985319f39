//! Streams that are cut anywhere, and taken up again at whichever replica the Service leads to.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use longshore_e2e::mcp_client::{Endpoint, McpClient, REVISION};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::row::{form, row};
use super::served::{Echo, Served};

/// How many notifications come before an answer.
const EVENTS: usize = 300;
/// How long one connection may take.
const DEADLINE: Duration = Duration::from_secs(20);
/// At most so many bytes are read before the next cut.
const MOST: u64 = 1_500;

#[test]
fn a_stream_that_is_cut_anywhere_is_taken_up_without_a_gap() {
    let cuts = form(60, 1_000);
    row("stream cut at random bytes, resumed through the Service", async |namespace, row| {
        for echo in [Echo::http("http"), Echo::stdio("stdio", "Session")] {
            let served = Served::up(namespace, echo).await;
            let client = McpClient::open(served.endpoint.clone(), None).await.expect("a session");
            let mut random = Random(0x5eed);
            let (mut done, mut calls) = (0, 0);
            while done < cuts / 2 {
                calls += 1;
                done += one_call(&served.endpoint, &client, calls, &mut random).await;
            }
            row.says(format!(
                "{}: {done} cuts in {calls} calls of {EVENTS} notifications: every event once, in order",
                served.echo.name
            ));
            served.down().await;
        }
    });
}

/// Makes a call, and cuts it until it is answered. Returns how often that was.
async fn one_call(endpoint: &Endpoint, client: &McpClient, number: usize, random: &mut Random) -> usize {
    let session = client.session().expect("a session has an id").to_owned();
    let id = format!("call-{number}");
    let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
        "name": "notify",
        "arguments": {"count": EVENTS, "padding": 40, "call": number},
        "_meta": {"progressToken": id},
    }})
    .to_string();
    let mut seen: Vec<Value> = Vec::new();
    let mut last: Option<String> = None;
    let mut cuts = 0;
    loop {
        let mut request = Request::builder()
            .uri(&endpoint.path)
            .header("host", &endpoint.host)
            .header("mcp-session-id", &session)
            .header("mcp-protocol-version", REVISION);
        request = match &last {
            None => request
                .method(Method::POST)
                .header("content-type", "application/json")
                .header("accept", "application/json, text/event-stream"),
            Some(last) => request
                .method(Method::GET)
                .header("accept", "text/event-stream")
                .header("last-event-id", last),
        };
        let body = if last.is_none() { call.clone() } else { String::new() };
        let request = request.body(Full::new(Bytes::from(body))).expect("a request");
        // A client that has not got the first event has nothing to come back for.
        let limit = random.below(MOST) + if last.is_none() { 500 } else { 1 };
        let read = tokio::time::timeout(DEADLINE, read(endpoint, request, limit)).await;
        let text = read.unwrap_or_else(|_| panic!("nothing more came after {} events", seen.len()));
        for event in events(&text) {
            last = event.id.or(last);
            seen.extend(event.data);
        }
        assert!(last.is_some(), "no event has an id: {text}");
        if seen.iter().any(|message| message["id"] == id.as_str()) {
            break;
        }
        cuts += 1;
        assert!(cuts < 10 * EVENTS, "it comes to no end: {} events", seen.len());
    }
    let answer = seen.pop().expect("an answer");
    assert_eq!(answer["result"]["structuredContent"]["echo"]["call"], number, "{answer}");
    let numbers: Vec<_> = seen.iter().map(|message| message["params"]["progress"].as_u64()).collect();
    let expected: Vec<_> = (1..=EVENTS as u64).map(Some).collect();
    assert_eq!(numbers, expected);
    cuts
}

/// Reads a stream until so many bytes have come, and closes the connection.
async fn read(endpoint: &Endpoint, request: Request<Full<Bytes>>, limit: u64) -> String {
    let stream = TcpStream::connect(endpoint.address).await.expect("a connection");
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.expect("HTTP");
    let reading = async {
        let response = sender.send_request(request).await.expect("an answer");
        let status = response.status();
        let mut body = response.into_body();
        let mut text = Vec::new();
        while (text.len() as u64) < limit {
            match body.frame().await {
                Some(frame) => {
                    text.extend_from_slice(&frame.expect("a frame").into_data().unwrap_or_default())
                }
                None => break,
            }
        }
        text.truncate(usize::try_from(limit).expect("a small number"));
        let text = String::from_utf8_lossy(&text).into_owned();
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

/// Xorshift: the same cuts in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
