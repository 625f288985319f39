//! In which order a server over HTTP is asked what it speaks.

mod pinned;

use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{
    Client, Cluster, Request, Scripted, Sessionless, Sidecar, config, eventually, modern, scripted,
};

/// How a server takes a question that it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Error,
    Status(u16),
    Silence,
    Hangup,
    /// With a status, after so long, and with a session that it has begun.
    Begins(Duration),
}

/// A server with sessions that knows nothing newer, and the methods that it was asked for, in order.
fn older(manner: Manner) -> (u16, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let into = asked.clone();
    let port = scripted::bare(move |request, stream| {
        let method = match &*request.method {
            "DELETE" => {
                let headers = ["mcp-session-id", "mcp-protocol-version"];
                format!("DELETE {:?}", headers.map(|name| request.value(name)))
            }
            _ => scripted::method_of(request),
        };
        into.lock().unwrap().push(method.clone());
        let result = match method.as_str() {
            "initialize" => json!({
                "protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"},
            }),
            "tools/list" => json!({"tools": []}),
            "ping" => json!({}),
            "server/discover" => return take(manner, request, stream),
            "" => return scripted::no_stream(stream),
            _ => return scripted::accepted(stream),
        };
        scripted::reply(stream, request, &result);
    });
    (port, asked)
}

/// Takes a question that it does not know.
fn take(manner: Manner, request: &Request, stream: &mut TcpStream) {
    match manner {
        Manner::Error => {
            let error = json!({"code": -32601, "message": "Method not found"});
            let text = json!({"jsonrpc": "2.0", "id": scripted::message(request)["id"], "error": error});
            scripted::json(stream, &text.to_string());
        }
        Manner::Status(status) => scripted::json_with(stream, status, "", "{}"),
        Manner::Begins(after) => {
            std::thread::sleep(after);
            scripted::json_with(stream, 400, "mcp-session-id: unwanted\r\n", "{}");
        }
        Manner::Silence => scripted::until_closed(stream),
        Manner::Hangup => stream.shutdown(Shutdown::Both).unwrap(),
    }
}

/// 65: a question that a server does not know costs it nothing, and one that never answers it is greeted all the same.
#[test]
fn r065_a_server_over_http_is_asked_first_and_greeted_if_it_has_to_be() {
    for manner in [
        Manner::Error,
        Manner::Status(400),
        Manner::Status(404),
        Manner::Status(405),
        Manner::Silence,
        Manner::Hangup,
    ] {
        let (port, asked) = older(manner);
        let began = Instant::now();
        let sidecar = Sidecar::start(&config(port)).ready();
        assert!(began.elapsed() < Duration::from_secs(20), "{manner:?}");
        let first = asked.lock().unwrap()[..3].to_vec();
        assert_eq!(first, ["server/discover", "initialize", "notifications/initialized"], "{manner:?}");
        let client = Client::of(&sidecar, None, "2025-06-18");
        assert_eq!(client.names("tools/list", "tools", "name"), [""; 0], "{manner:?}");
        let questions = asked.lock().unwrap().iter().filter(|method| *method == "server/discover").count();
        // Once more at most, while it serves: what it has said in time it is not asked again.
        assert!((1..=2).contains(&questions), "{manner:?}");
    }
}

/// Each restart would leave one at the server, and so would each quarter of an hour.
#[test]
fn a_session_that_a_server_begins_for_a_question_is_ended() {
    // At the latter the question is not waited for any more.
    for after in [Duration::ZERO, Duration::from_secs(1)] {
        let (port, asked) = older(Manner::Begins(after));
        let sidecar = Sidecar::start(&config(port)).ready();
        let ended = || asked.lock().unwrap().iter().find(|asked| asked.starts_with("DELETE")).cloned();
        // Nobody knows in which revision, so none is said.
        assert_eq!(eventually("it is ended", ended), r#"DELETE [Some("unwanted"), None]"#, "{after:?}");
        let client = Client::of(&sidecar, None, "2025-06-18");
        assert_eq!(client.names("tools/list", "tools", "name"), [""; 0], "{after:?}");
    }
}

/// 65: a server whose requests stand alone hears nothing else, until a client with a session comes.
#[test]
fn r065_a_server_without_sessions_is_greeted_for_clients_with_sessions_only() {
    // On a busy machine one may take so long to say what it is that it is greeted first, though not each time.
    let started = (0..5).find_map(|_| {
        let server = Sessionless::start(json!({"tools": {}}), json!([]), |_, _| {});
        let sidecar = Sidecar::start(&config(server.port)).ready();
        let listed = modern::request(1, "tools/list", json!({})).send(sidecar.mcp).message();
        assert_eq!(listed["result"]["tools"], json!([]));
        server.all("initialize").is_empty().then_some((server, sidecar))
    });
    let (server, sidecar) = started.expect("it is not greeted each time");
    for _ in 0..2 {
        let client = Client::open(&sidecar, None);
        assert!(client.names("tools/list", "tools", "name").is_empty());
        assert_eq!(server.all("initialize").len(), 1, "once for all of them");
    }
}

/// 65, 21: one that has sessions, and has not said so, is spoken to in both ways.
#[test]
fn r065_a_server_of_both_eras_is_found_to_be_one_when_somebody_needs_it() {
    let server = Scripted::of_both(json!({"tools": {}}), |request, stream| {
        let result = json!({"tools": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "public"});
        scripted::reply(stream, request, &result);
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let client = Client::open(&sidecar, None);
    client.ask("tools/list", json!({}));
    let session = ("mcp-session-id".to_owned(), scripted::UPSTREAM_SESSION.to_owned());
    assert!(
        server.seen("tools/list").iter().any(|request| request.headers.contains(&session)),
        "its own session"
    );
    let alone = modern::request("m", "tools/list", json!({})).send(sidecar.mcp).message();
    assert_eq!(alone["id"], "m");
    eventually("it stays connected", || sidecar.get("/readyz").status == 200);
    client.ask("tools/list", json!({}));
}

/// Some servers refuse a handshake in a revision that they do not speak, and do not say which they do in the place for
/// that. What is found out is what clients' sessions are opened in.
#[test]
fn a_server_that_refuses_a_revision_is_asked_for_older_ones() {
    for (words, tried) in [
        ("Unsupported protocol version: 2025-11-25", vec!["2025-11-25", "2025-06-18", "2025-03-26"]),
        ("2025-11-25? I speak 2025-03-26.", vec!["2025-11-25", "2025-03-26"]),
    ] {
        let server = Scripted::strict_saying("2025-03-26", words, |request, stream| {
            scripted::reply(stream, request, &json!({"content": []}));
        });
        let sidecar = Sidecar::start(&config(server.port)).ready();
        let shaken =
            server.seen_all().into_iter().filter(|request| scripted::method_of(request) == "initialize");
        let asked: Vec<_> = shaken
            .map(|request| {
                scripted::message(&request)["params"]["protocolVersion"].as_str().unwrap().to_owned()
            })
            .collect();
        assert_eq!(asked, tried, "{words}");
        for revision in ["2025-11-25", "2025-03-26"] {
            let client = Client::of(&sidecar, None, revision);
            assert!(client.call("t", json!({}))["result"].is_object(), "{words}: {revision}");
        }
    }
    // Where it is a client's that is older than its own, it is asked for its own.
    let server = Scripted::strict("2025-06-18", |request, stream| {
        scripted::json(stream, &scripted::reply_to(request, &json!({"content": []})));
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    for (revision, tried) in [
        ("2024-11-05", &["2024-11-05", "2025-06-18"][..]),
        ("2025-03-26", &["2025-03-26", "2025-06-18"]),
        ("2025-06-18", &["2025-06-18"]),
        ("2025-11-25", &["2025-06-18"]),
    ] {
        let before = server.seen("initialize").len();
        let client = Client::of(&sidecar, None, revision);
        assert!(client.call("t", json!({}))["result"].is_object(), "{revision}");
        let asked: Vec<_> = server.seen("initialize")[before..].iter().map(scripted::message).collect();
        let asked: Vec<_> = asked.iter().map(|asked| &asked["params"]["protocolVersion"]).collect();
        assert_eq!(asked, tried, "{revision}");
    }
    // One that speaks none of them is told of in its own words, and with the way out.
    let server = Scripted::strict_saying("2199-01-01", "not yours", |_, stream| scripted::no_stream(stream));
    let (mut config, cluster) = (config(server.port), Cluster::new());
    cluster.trust(&mut config);
    let sidecar = Sidecar::start(&config);
    let token = cluster.token(|_| {});
    eventually("it is known why", || {
        let inventory = Request::new("GET", "/v1/inventory").key(&token).send(sidecar.admin);
        let said = inventory.text();
        said.contains("not yours") && said.contains("transport.protocol")
    });
}
