//! One caller that has many connections, each of them with something under way: the others find some all the same.

use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use socket2::SockRef;

use super::LARGE;
use crate::harness::config::{ALICE, callers, keys};
use crate::harness::http::{Reply, connect};
use crate::harness::{
    Client, Events, Files, Gate, GoServer, Request, Scripted, Sidecar, config, eventually, modern, scripted,
};

const BOB: Option<&str> = Some("key-b");
/// Of eight.
const PART: usize = 4;

/// A sidecar that has eight connections at the most.
fn sidecar(port: u16) -> Sidecar {
    let files = Files::new();
    files.write_with_keys(&config(port), &callers());
    Sidecar::with(files, &["--max-connections", "8"]).loaded().ready()
}

/// What a client is told that has too many, who asked for this.
fn refused(reply: &Reply, id: &Value) {
    let message = reply.message();
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")), "{message}");
    assert_eq!((&message["id"], &message["error"]["code"]), (id, &json!(-32603)), "{message}");
    assert!(message["error"]["message"].as_str().unwrap().contains("4 busy connections"), "{message}");
}

/// Somebody else has something done.
fn others_get_through(sidecar: &Sidecar, tool: &str) {
    let answer = Client::open(sidecar, BOB).call(tool, json!({"text": "b"}));
    assert!(answer["result"].is_object(), "{answer}");
}

#[test]
fn one_caller_who_listens_leaves_connections_to_others() {
    let server = GoServer::start(&[]);
    let sidecar = sidecar(server.port);
    let clients: Vec<_> = (0..=PART).map(|_| Client::open(&sidecar, ALICE)).collect();
    let last = &clients[PART];
    let listens: Vec<_> = clients[..PART].iter().map(|one| Events::open(&one.get(), sidecar.mcp)).collect();
    assert!(listens.iter().all(|events| events.status == 200));
    refused(&last.get().send(sidecar.mcp), &Value::Null);
    let line = sidecar.audit(|line| line["reason"] == "too many connections of one caller");
    assert_eq!(
        (&line["principal"], &line["method"], &line["decision"], &line["status"]),
        (&json!("alice"), &json!("GET"), &json!("deny"), &json!(429))
    );
    others_get_through(&sidecar, "echo");

    // Whoever is refused hears it as its revision has it, and the audit log of what.
    let call = json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": {"name": "echo"}});
    refused(&last.request(call.to_string()).send(sidecar.mcp), &json!("c"));
    let reason = |line: &Value| line["reason"] == "too many connections of one caller";
    sidecar.audit(|line| reason(line) && line["method"] == "tools/call");
    refused(&modern::request("m", "tools/list", json!({})).key("key-a").send(sidecar.mcp), &json!("m"));
    refused(
        &Request::new("GET", "/sse").header("accept", "text/event-stream").key("key-a").send(sidecar.mcp),
        &Value::Null,
    );
    // One that is sent slowly is not waited for as long as others are.
    let mut slow = connect(sidecar.mcp);
    let head = last.request("").head();
    write!(slow, "{head}content-length: 1000\r\n\r\n{{").unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    refused(&Reply::on(slow), &Value::Null);
    // What makes room is taken.
    let note = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    assert_eq!(last.request(note.to_string()).send(sidecar.mcp).status, 202);
    assert_eq!(clients[0].end().status, 204);
    eventually("there is room again", || last.send("ping", json!({})).status == 200);
    drop(listens);
}

/// How many there may be follows from what the container may have, unless somebody says how many.
#[test]
fn connections_follow_from_memory_unless_it_is_said_how_many() {
    let server = GoServer::start(&[]);
    for (flags, most) in [(&[][..], PART), (&["--max-connections", "10"][..], 5)] {
        let files = Files::new();
        files.write_with_keys(&config(server.port), &keys(&[("alice", "key-a")]));
        // Of very little memory a quarter is shared out, which is enough for eight.
        let cgroups = files.container(7_733_248);
        let flags = [&["--cgroups-dir", &cgroups][..], flags].concat();
        let sidecar = Sidecar::with(files, &flags).loaded().ready();
        let clients: Vec<_> = (0..=most).map(|_| Client::open(&sidecar, ALICE)).collect();
        let listens: Vec<_> =
            clients[..most].iter().map(|one| Events::open(&one.get(), sidecar.mcp)).collect();
        assert!(listens.iter().all(|events| events.status == 200), "{most}");
        assert_eq!(clients[most].get().send(sidecar.mcp).status, 429, "{most}");
    }
}

/// The same of those who are answered and do not read it, of calls that take their time, and of who listens without a session.
#[test]
fn one_caller_whose_connections_are_busy_leaves_some_to_others() {
    let gate = Gate::default();
    let waits = gate.clone();
    let tool = json!({"name": "t", "description": "x".repeat(LARGE), "inputSchema": {"type": "object"}});
    let server = Scripted::of_both(json!({"tools": {"listChanged": true}}), move |request, stream| {
        let message = scripted::message(request);
        let result = match message["method"].as_str() {
            Some("tools/list") => json!({"tools": [tool]}),
            Some("subscriptions/listen") => {
                scripted::begin_events(stream);
                let meta = json!({"io.modelcontextprotocol/subscriptionId": message["id"]});
                let params = json!({"notifications": {}, "_meta": meta});
                let method = "notifications/subscriptions/acknowledged";
                let first = json!({"jsonrpc": "2.0", "method": method, "params": params});
                scripted::say(stream, &first);
                return scripted::until_closed(stream);
            }
            _ => json!({"content": []}),
        };
        if message["params"]["arguments"]["waits"] == json!(true) {
            waits.pass();
        }
        scripted::reply(stream, request, &result);
    });
    let sidecar = sidecar(server.port);
    let client = Client::open(&sidecar, ALICE);
    let call = |method: &str, params: Value| client.request(client.message(method, &params));
    let waiting = json!({"name": "t", "arguments": {"waits": true}});
    let news = json!({"notifications": {"toolsListChanged": true}});
    let listen = || modern::request("l", "subscriptions/listen", news.clone()).key("key-a");
    for (name, request) in [
        ("unread answers", &(|| call("tools/list", json!({}))) as &dyn Fn() -> Request),
        ("calls", &|| call("tools/call", waiting.clone())),
        ("subscriptions", &listen),
    ] {
        let ask = || -> TcpStream {
            let mut stream = connect(sidecar.mcp);
            SockRef::from(&stream).set_recv_buffer_size(16 << 10).unwrap();
            request().write(&mut stream);
            stream
        };
        let busy: Vec<_> = (0..PART).map(|_| ask()).collect();
        eventually(&format!("there are too many {name}"), || {
            let one_more = ask();
            one_more.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            let head = Reply::read_head(&mut BufReader::new(one_more));
            head.is_ok_and(|(status, _)| status == 429)
        });
        // However many ask on.
        let more: Vec<_> = (0..2 * PART).map(|_| ask()).collect();
        others_get_through(&sidecar, "t");
        drop((busy, more));
        eventually(&format!("there is room after {name}"), || client.send("ping", json!({})).status == 200);
    }
    gate.open();
}
