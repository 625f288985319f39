//! Clients that take their time with what they send, and what all of them together may cost.

use std::io::{BufReader, Write};
use std::net::TcpStream;

use serde_json::json;

use crate::harness::http::connect;
use crate::harness::{Client, Files, Reply, Scripted, Sidecar, config, eventually, scripted};

/// How large the messages are that are sent slowly.
const LARGE: usize = 400_000;

#[test]
fn what_is_sent_slowly_is_held_within_a_bound() {
    let server = Scripted::start(|request, stream| {
        let answer = scripted::reply_to(request, &json!({"content": [{"type": "text", "text": "done"}]}));
        scripted::json(stream, &answer);
    });
    let files = Files::new();
    files.write(&config(server.port));
    let sidecar = Sidecar::with(files, &["--max-held-bytes", "1000000"]).loaded();
    let client = Client::open(&sidecar, None);
    let message = |size: usize| {
        let text = "x".repeat(size);
        client.message("tools/call", &json!({"name": "t", "arguments": {"text": text}}))
    };
    // All of a message but for its end.
    let begin = || -> (TcpStream, String) {
        let body = message(LARGE);
        let (start, end) = body.split_at(LARGE);
        let mut stream = connect(sidecar.mcp);
        let head = client.request("").head();
        write!(stream, "{head}content-length: {}\r\n\r\n{start}", body.len()).unwrap();
        (stream, end.to_owned())
    };
    let (mut first, end) = begin();
    let second = begin();
    let refused = eventually("there is no room for a third", || {
        let reply = client.request(message(LARGE)).send(sidecar.mcp);
        (reply.status == 503).then_some(reply)
    });
    assert!(
        refused.message()["error"]["message"].as_str().unwrap().contains("no room"),
        "{}",
        refused.text()
    );
    assert_eq!(sidecar.audit(|line| line["status"] == 503)["reason"], "too many bytes held");
    // What comes in one piece needs none, and what was begun goes on.
    client.call("t", json!({}));
    first.write_all(end.as_bytes()).unwrap();
    assert_eq!(Reply::read(&mut BufReader::new(first)).unwrap().status, 200);
    client.call("t", json!({"text": "x".repeat(LARGE)}));
    drop(second);
    let (both, others) = (begin(), begin());
    drop((both, others));
    eventually("they have gone", || {
        (client.request(message(2 * LARGE)).send(sidecar.mcp).status == 200).then_some(())
    });
}
