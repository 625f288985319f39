//! How many sessions with the server there may be, and how many threads serve what shares them.

use serde_json::{Value, json};

use super::{again, asked, asking, call, is_error, request, roots, text};
use crate::harness::config::keys;
use crate::harness::http::connect;
use crate::harness::shim::{server, settled, stdio};
use crate::harness::{Events, Files, Shim, Sidecar, config, eventually};

/// A session that is used is not given up for another; one that is not is.
#[test]
fn sessions_with_the_server_are_bounded() {
    let server = asking();
    for (total, per_principal, key, status) in [(10, 1, "key-a", 429), (1, 1, "key-b", 503)] {
        let files = Files::new();
        let mut limited = config(server.port);
        (limited.sessions.total, limited.sessions.per_principal) = (total, per_principal);
        files.write_with_keys(&limited, &keys(&[("alice", "key-a"), ("bob", "key-b")]));
        let sidecar = Sidecar::with(files, &[]).loaded().ready();
        let before = server.seen("tools/call").len();
        let mut stream = connect(sidecar.mcp);
        call("hang", json!({}), &json!({})).key("key-a").write(&mut stream);
        eventually("a call is under way", || (server.seen("tools/call").len() > before).then_some(()));
        // What can share the session does; what cannot is refused.
        let other = || call("echo", json!({}), &roots()).key(key).send(sidecar.mcp);
        assert_eq!(text(&call("echo", json!({}), &json!({})).key("key-a").send(sidecar.mcp)), "echoed");
        let refused = other();
        assert!(is_error(&refused, status, -32603).contains("session"), "{}", refused.text());
        let ended = server.seen("DELETE").len();
        drop(stream);
        eventually("the session makes room", || (other().status == 200).then_some(()));
        eventually("the server is told", || (server.seen("DELETE").len() > ended).then_some(()));
    }
}

/// A client's next request may come to another thread than the one that its call waits on.
#[test]
fn calls_and_listeners_are_those_of_all_threads() {
    let files = Files::new();
    files.write(&stdio());
    let shim = Shim::start(&files, &server(&[]));
    let sidecar = Sidecar::with(files, &["--workers", "3"]).loaded().ready();
    settled(&shim, &sidecar, &stdio());
    let ask = json!({"method": "roots/list"});
    // Each connection is another one, and the kernel spreads them.
    let waiting: Vec<_> =
        (0..8).map(|_| asked(&call("ask", ask.clone(), &roots()).send(sidecar.mcp))).collect();
    for (at, (questions, state)) in waiting.iter().enumerate().rev() {
        let uri = format!("file:///{at}");
        let responses = json!({questions[0].0.clone(): {"roots": [{"uri": uri}]}});
        let reply = again("ask", ask.clone(), &roots(), state, responses).send(sidecar.mcp);
        assert!(text(&reply).contains(&uri), "{}", reply.text());
    }
    let wanted = json!({"notifications": {"resourceSubscriptions": ["a:b"]}});
    let mut listening: Vec<_> = (0..6)
        .map(|id| {
            let listen = request(id, "subscriptions/listen", wanted.clone(), &json!({}));
            let mut events = Events::open(&listen, sidecar.mcp);
            assert_eq!(events.next().unwrap().message()["params"]["notifications"], wanted["notifications"]);
            events
        })
        .collect();
    let say = json!({"method": "notifications/resources/updated", "params": {"uri": "a:b"}});
    text(&call("say", say, &json!({})).send(sidecar.mcp));
    for events in &mut listening {
        assert_eq!(events.next().unwrap().message()["params"]["uri"], "a:b");
    }
    let state = text(&call("state", json!({}), &json!({})).send(sidecar.mcp));
    let state: Value = serde_json::from_str(&state).unwrap();
    assert_eq!(state["subscriptions"], json!(["a:b"]), "one session serves all of them");
}
