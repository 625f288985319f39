//! What belongs together is written at once: the head of an answer with its body or its first event, and the head of a
//! request with its body. Nothing waits for a second piece then, since what is written goes out as it is (TCP_NODELAY).

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::http::connect;
use crate::harness::shim::{self, server, serving};
use crate::harness::{Client, Request, Sidecar, SseServer, config, modern, schemas, scripted};

/// How often each is looked at. Two writes are now and then read as one.
const CALLS: usize = 50;

/// The kinds of clients.
const REVISIONS: [&str; 3] = ["2025-06-18", "2025-11-25", modern::REVISION];

/// How much of what a connection brings is there at once: what is read first, and all of it.
fn answer(stream: &mut TcpStream) -> (usize, String) {
    let (mut all, mut first, mut piece) = (String::new(), 0, [0; 64 * 1024]);
    while !is_whole(&all) {
        let length = stream.read(&mut piece).unwrap();
        assert_ne!(length, 0, "it ends after {all}");
        all.push_str(std::str::from_utf8(&piece[..length]).unwrap());
        first = if first == 0 { length } else { first };
    }
    (first, all)
}

/// Whether a message of HTTP is complete.
fn is_whole(text: &str) -> bool {
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    if head.contains("transfer-encoding: chunked") {
        body.ends_with("\r\n0\r\n\r\n")
    } else {
        body.len() == length.unwrap_or(0)
    }
}

/// Where the first message in an answer ends, whether it is an event or a body.
fn first_message(answer: &str) -> usize {
    match answer.find("data: {") {
        Some(begins) => begins + answer[begins..].find("\n\n").unwrap() + 2,
        None => answer.len(),
    }
}

/// The answers to a tool that is called over and over on one connection come with their first message at once.
fn comes_at_once(sidecar: &Sidecar, tool: &str, arguments: &Value, has_events: bool) {
    for revision in REVISIONS {
        let client = (revision != modern::REVISION).then(|| Client::of(sidecar, None, revision));
        let mut stream = connect(sidecar.mcp);
        for number in 0..CALLS {
            // Progress is asked for by whoever gets some.
            let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": format!("t{number}")}});
            let request = match &client {
                Some(client) => client.request(client.message("tools/call", &params)),
                None => modern::request(number, "tools/call", params),
            };
            request.write(&mut stream);
            let (first, answer) = answer(&mut stream);
            assert!(answer.starts_with("HTTP/1.1 200 "), "{revision}: {answer}");
            assert_eq!(answer.contains("text/event-stream"), has_events, "{revision}: {answer}");
            assert!(
                first >= first_message(&answer),
                "{revision}, call {number}: {}\n-- and then --\n{}",
                &answer[..first],
                &answer[first..]
            );
        }
    }
}

/// A server that answers with JSON, or with progress and an answer as events, and notes what it was not sent at once.
struct Raw {
    port: u16,
    pieces: Arc<Mutex<Vec<String>>>,
    requests: Arc<Mutex<usize>>,
}

impl Raw {
    fn start(is_modern: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (pieces, requests) = <(Arc<Mutex<Vec<String>>>, Arc<Mutex<usize>>)>::default();
        let (into, count) = (pieces.clone(), requests.clone());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let (into, count) = (into.clone(), count.clone());
                std::thread::spawn(move || {
                    stream.set_nodelay(true).unwrap();
                    while let Some((text, pieces)) = request(&mut stream) {
                        *count.lock().unwrap() += 1;
                        if pieces > 1 {
                            into.lock().unwrap().push(text.clone());
                        }
                        let asked = scripted::parse(&mut text.as_bytes()).unwrap();
                        schemas::server_reads(port, &asked);
                        respond(&mut stream, is_modern, &asked);
                    }
                });
            }
        });
        Self { port, pieces, requests }
    }
}

/// The next request, and in how many pieces it came.
fn request(stream: &mut TcpStream) -> Option<(String, usize)> {
    let (mut all, mut piece) = (String::new(), [0; 64 * 1024]);
    for pieces in 1.. {
        let length = stream.read(&mut piece).ok().filter(|length| *length > 0)?;
        all.push_str(std::str::from_utf8(&piece[..length]).ok()?);
        if is_whole(&all) {
            return Some((all, pieces));
        }
    }
    None
}

fn respond(stream: &mut TcpStream, is_modern: bool, request: &Request) {
    let asked = scripted::message(request);
    let (mut result, params) = (json!({}), &asked["params"]);
    match asked["method"].as_str() {
        Some("server/discover") if is_modern => {
            result = json!({"supportedVersions": [modern::REVISION], "capabilities": {"tools": {}}});
        }
        Some("initialize") if !is_modern => {
            result = json!({
                "protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "raw", "version": "1"},
            });
        }
        Some("tools/list") => result = json!({"tools": []}),
        Some("tools/call") => result = json!({"content": [{"type": "text", "text": "done"}]}),
        Some("ping") => {}
        Some("server/discover" | "initialize") => return scripted::json_with(stream, 404, "", "{}"),
        _ if request.method == "POST" => return scripted::accepted(stream),
        _ => return scripted::no_stream(stream),
    }
    if is_modern {
        result["resultType"] = json!("complete");
    }
    if is_modern && asked["method"] != "tools/call" {
        (result["ttlMs"], result["cacheScope"]) = (json!(0), json!("private"));
    }
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
    if params["name"] != "events" && params["name"] != "apart" {
        return scripted::json(stream, &answer.to_string());
    }
    let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {
        "progressToken": params["_meta"]["progressToken"], "progress": 1,
    }});
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let event = format!("data: {progress}\n\n");
    let event = format!("{:x}\r\n{event}\r\n", event.len());
    if params["name"] == "apart" {
        // As many servers do: the head says that there will be events.
        scripted::write(stream, head);
        std::thread::sleep(Duration::from_millis(2));
        scripted::write(stream, &event);
    } else {
        scripted::write(stream, &format!("{head}{event}"));
    }
    scripted::say(stream, &answer);
    scripted::write(stream, "0\r\n\r\n");
}

#[test]
fn in_front_of_a_server_over_http_both_sides_get_at_once_what_belongs_together() {
    for is_modern in [false, true] {
        let server = Raw::start(is_modern);
        let sidecar = Sidecar::start(&config(server.port)).ready();
        comes_at_once(&sidecar, "json", &json!({}), false);
        comes_at_once(&sidecar, "events", &json!({}), true);
        comes_at_once(&sidecar, "apart", &json!({}), true);
        let pieces = server.pieces.lock().unwrap();
        assert!(pieces.is_empty(), "{} requests came in pieces: {pieces:?}", pieces.len());
        assert!(*server.requests.lock().unwrap() > 2 * CALLS * REVISIONS.len());
    }
}

#[test]
fn in_front_of_a_server_over_stdio_a_client_gets_at_once_what_belongs_together() {
    let (_shim, sidecar) = serving(&shim::stdio(), &server(&[]), &[]);
    comes_at_once(&sidecar, "echo", &json!({"text": "a"}), false);
    comes_at_once(&sidecar, "progress", &json!({"steps": 2, "seconds": 0}), true);
}

#[test]
fn in_front_of_a_server_over_sse_a_client_gets_at_once_what_belongs_together() {
    let server = SseServer::start(|heard, say| {
        if heard["method"] == "tools/call" {
            say.answer(heard, &json!({"content": [{"type": "text", "text": "done"}]}));
        }
    });
    let sidecar = Sidecar::start(&server.config()).ready();
    comes_at_once(&sidecar, "t", &json!({}), false);
}
