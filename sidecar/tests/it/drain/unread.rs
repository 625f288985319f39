//! Who listens to what belongs to no call, and does not read it: there is nothing to be waited for.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{SOON, sidecar};
use crate::harness::http::connect;
use crate::harness::replicas::Network;
use crate::harness::{Client, Request, Scripted, Sessionless, config, eventually, modern, scripted};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Begins events, and says as much as anybody takes, which is counted.
fn floods(stream: &mut TcpStream, first: Option<Value>, message: &Value, said: &AtomicUsize) {
    scripted::begin_events(stream);
    for message in first.iter().chain(std::iter::repeat_n(message, 3_000)) {
        scripted::say(stream, &message);
        said.fetch_add(1, Ordering::SeqCst);
    }
}

/// A server with sessions that does so in its stream.
fn flooding(said: &Arc<AtomicUsize>) -> Scripted {
    let said = said.clone();
    Scripted::offering(json!({"logging": {}}), move |request, stream| {
        if request.method != "GET" {
            return scripted::reply(stream, request, &json!({}));
        }
        let params = json!({"level": "info", "data": "x".repeat(10_000)});
        let log = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params});
        floods(stream, None, &log, &said);
    })
}

/// Asks for it, and reads nothing until nothing is taken any more.
fn leaves_unread(request: &Request, at: std::net::SocketAddr, said: &AtomicUsize) -> TcpStream {
    let mut stream = connect(at);
    request.write(&mut stream);
    let (mut before, mut since) = (0, Instant::now());
    eventually("nothing is taken any more", || {
        let now = said.load(Ordering::SeqCst);
        if before != now {
            (before, since) = (now, Instant::now());
        }
        now > 0 && since.elapsed() > Duration::from_secs(1)
    });
    stream
}

#[test]
fn who_listens_and_does_not_read_holds_no_end_up() {
    let said = Arc::default();
    let server = flooding(&said);
    let sidecar = sidecar(server.port, "300");
    let client = Client::open(&sidecar, None);
    let _unread = leaves_unread(&client.get(), sidecar.mcp, &said);
    sidecar.signal(Signal::TERM);
    assert!(sidecar.wait(SOON).success());
}

/// Nor does one without a session.
#[test]
fn who_listens_alone_and_does_not_read_holds_no_end_up() {
    let said = Arc::<AtomicUsize>::default();
    let count = said.clone();
    let server =
        Sessionless::start(json!({"tools": {"listChanged": true}}), json!([]), move |request, stream| {
            let meta = json!({SUBSCRIPTION: scripted::message(request)["id"], "x": "x".repeat(10_000)});
            let tells =
                |method: &str, params: Value| json!({"jsonrpc": "2.0", "method": method, "params": params});
            let params = json!({"notifications": {"toolsListChanged": true}, "_meta": meta});
            let first = tells("notifications/subscriptions/acknowledged", params);
            let changed = tells("notifications/tools/list_changed", json!({"_meta": meta}));
            floods(stream, Some(first), &changed, &count);
        });
    let sidecar = sidecar(server.port, "300");
    let wishes = json!({"notifications": {"toolsListChanged": true}});
    let listen = modern::request("l", "subscriptions/listen", wishes);
    let _unread = leaves_unread(&listen, sidecar.mcp, &said);
    sidecar.signal(Signal::TERM);
    assert!(sidecar.wait(SOON).success());
}

/// Nor at either of the replicas, where it is another one that has the session.
#[test]
fn who_listens_elsewhere_and_does_not_read_holds_no_end_up() {
    std::thread::scope(|scope| {
        for ends in [0, 1] {
            scope.spawn(move || {
                let said = Arc::default();
                let server = flooding(&said);
                let network = Network::new();
                let replicas = network.replicas(&config(0), &[server.port; 2]);
                let client = Client::of(&replicas[0], Some("key-a"), "2025-06-18");
                let _unread = leaves_unread(&client.get(), replicas[1].mcp, &said);
                replicas[ends].signal(Signal::TERM);
                assert!(replicas[ends].wait(SOON).success(), "{ends}");
            });
        }
    });
}
