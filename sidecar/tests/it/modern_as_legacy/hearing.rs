//! What belongs to no call.

mod missed;
mod refusals;
mod searches;
mod subscriptions;

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{able, answer, everything, sidecar, tools};
use crate::harness::own::example_server;
use crate::harness::scripted::{self, message, method_of};
use crate::harness::{Client, Events, Request, Sessionless, eventually};
use crate::sse::Caller;

/// The open streams of a server, and what each was asked for.
type Streams = Arc<Mutex<Vec<(Value, Value, TcpStream)>>>;

/// A server that acknowledges what it is asked to tell, but for `test://refused`, and nothing if `test://mute` is in it.
fn telling() -> (Sessionless, Streams) {
    telling_unless(|_| false)
}

/// The same, which tells its clients something only while it can.
fn telling_while(can: Arc<AtomicBool>) -> (Sessionless, Streams) {
    telling_unless(move |_| !can.load(Ordering::SeqCst))
}

/// The same, which refuses some of what it is asked to tell its clients.
fn telling_unless(refuses: impl Fn(&Value) -> bool + Send + Sync + 'static) -> (Sessionless, Streams) {
    telling_so(refuses, true)
}

/// The same, which only `says` so what else it tells them of.
fn telling_so(
    refuses: impl Fn(&Value) -> bool + Send + Sync + 'static,
    says: bool,
) -> (Sessionless, Streams) {
    telling_as(move |wanted| match (refuses(wanted), says) {
        (true, _) => Says::No(400),
        (false, true) => Says::Tells(without(wanted, "test://refused")),
        (false, false) => Says::Tells(Value::Null),
    })
}

/// What a server says to what a client wants to be told.
enum Says {
    /// It refuses with this status, or breaks off without a word.
    No(u16),
    /// It tells of this.
    Tells(Value),
}

/// In place of a status: an answer that comes as an event, or does not come.
const AS_AN_EVENT: u16 = 0;

/// What is wanted but for one resource.
fn without(wanted: &Value, unknown: &str) -> Value {
    let mut wanted = wanted.clone();
    let uris = wanted.get_mut("resourceSubscriptions").and_then(Value::as_array_mut);
    uris.into_iter().for_each(|uris| uris.retain(|uri| uri != unknown));
    wanted
}

/// A server that says this to its clients, and nothing if `test://mute` is in it.
fn telling_as(says: impl Fn(&Value) -> Says + Send + Sync + 'static) -> (Sessionless, Streams) {
    let streams = Streams::default();
    let open = streams.clone();
    let server =
        Sessionless::start(everything(), tools(), move |request: &Request, stream: &mut TcpStream| {
            assert_eq!(method_of(request), "subscriptions/listen");
            let asked = message(request);
            let (id, wanted) = (asked["id"].clone(), asked["params"]["notifications"].clone());
            let is_own =
                asked["params"]["_meta"]["io.modelcontextprotocol/clientInfo"]["name"] == "longshore-sidecar";
            let said = if is_own { Says::Tells(wanted.clone()) } else { says(&wanted) };
            let honoured = match said {
                Says::No(AS_AN_EVENT) => {
                    scripted::begin_events(stream);
                    return stream.shutdown(std::net::Shutdown::Both).unwrap();
                }
                Says::No(status) => {
                    let error = json!({"code": -32602, "message": "not now"});
                    let refusal = json!({"jsonrpc": "2.0", "id": id, "error": error});
                    return scripted::json_with(stream, status, "", &refusal.to_string());
                }
                Says::Tells(honoured) => honoured,
            };
            scripted::begin_events(stream);
            // Nobody looks at them between this one and its acknowledgement.
            let mut all = open.lock().unwrap();
            if !is_own {
                all.push((id.clone(), wanted.clone(), stream.try_clone().unwrap()));
            }
            if !asks_for(&wanted, "test://mute") {
                acknowledge(stream, &id, &honoured);
            }
            drop(all);
            let mut rest = [0; 1];
            let _ = std::io::Read::read(stream, &mut rest);
            if !is_own {
                open.lock().unwrap().retain(|(other, ..)| *other != id);
            }
        });
    (server, streams)
}

/// Whether this is among the resources that a server is asked for.
fn asks_for(wanted: &Value, uri: &str) -> bool {
    wanted["resourceSubscriptions"].as_array().is_some_and(|uris| uris.contains(&json!(uri)))
}

fn acknowledge(stream: &mut TcpStream, id: &Value, honoured: &Value) {
    let acknowledged = json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
    "params": {"notifications": honoured, "_meta": {"io.modelcontextprotocol/subscriptionId": id}}});
    scripted::say(stream, &acknowledged);
}

/// Tells something on the newest stream: of lists, on the newest that they were asked for in.
fn tell(streams: &Streams, method: &str, mut params: Value) {
    let is_of_lists = method == "notifications/tools/list_changed";
    let mut streams = streams.lock().unwrap();
    let mut told =
        streams.iter_mut().filter(|(_, wanted, _)| !is_of_lists || wanted["toolsListChanged"] == true);
    let (id, _, stream) = told.next_back().unwrap();
    params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": id});
    let text = json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string();
    scripted::say(stream, &text);
}

/// The one stream that it has, or will have, breaks off.
fn breaks_off(streams: &Streams) {
    eventually("it listens", || wanted(streams).len() == 1);
    let (_, _, stream) = streams.lock().unwrap().pop().unwrap();
    stream.shutdown(std::net::Shutdown::Both).unwrap();
}

/// All that it has break off.
fn break_off(streams: &Streams) {
    while let Some((_, _, stream)) = streams.lock().unwrap().pop() {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
}

/// The resources that it is asked for with the newest stream.
fn last_wanted(streams: &Streams) -> Option<Value> {
    Some(wanted(streams).pop()?["resourceSubscriptions"].clone())
}

fn wanted(streams: &Streams) -> Vec<Value> {
    streams.lock().unwrap().iter().map(|(_, wanted, _)| wanted.clone()).collect()
}

/// Subscribes, and is taken or refused sooner than a server that says nothing is.
fn subscribes_at_once(client: &Client<'_>, uri: &str, is_taken: bool) {
    let began = Instant::now();
    let answer = client.ask("resources/subscribe", json!({"uri": uri}));
    assert!(began.elapsed() < Duration::from_secs(4), "{uri}: {:?}", began.elapsed());
    if is_taken {
        return assert_eq!(answer["result"], json!({}), "{uri}: {answer}");
    }
    assert_eq!(answer["error"]["code"], -32603, "{uri}: {answer}");
    let why = answer["error"]["message"].as_str().unwrap();
    assert_eq!(why, "the server refuses to tell of changes of this resource");
}

#[test]
fn r073_a_session_hears_what_it_wants_to_hear() {
    let (server, streams) = telling();
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    client.ask("resources/subscribe", json!({"uri": "test://a"}));
    assert!(wanted(&streams).is_empty(), "nobody listens yet");
    let mut events = Events::open(&client.get(), sidecar.mcp);
    assert_eq!(events.status, 200);
    let lists = json!({"toolsListChanged": true, "resourcesListChanged": true});
    let with = |uris: &[&str]| {
        let mut filter = lists.clone();
        if !uris.is_empty() {
            filter["resourceSubscriptions"] = json!(uris);
        }
        filter
    };
    assert_eq!(wanted(&streams), [with(&["test://a"])]);
    tell(&streams, "notifications/tools/list_changed", json!({}));
    let heard = events.next().unwrap().message();
    assert_eq!(heard["method"], "notifications/tools/list_changed");
    assert!(heard["params"].get("_meta").is_none(), "{heard}");
    // When the answer is there the server knows.
    client.ask("resources/subscribe", json!({"uri": "test://b"}));
    assert_eq!(wanted(&streams).last(), Some(&with(&["test://a", "test://b"])));
    for uri in ["test://c", "test://b"] {
        tell(&streams, "notifications/resources/updated", json!({"uri": uri}));
    }
    assert_eq!(events.next().unwrap().message()["params"], json!({"uri": "test://b"}), "and not of others");
    tell(&streams, "notifications/resources/updated", json!({"uri": "test://b/part"}));
    assert_eq!(events.next().unwrap().message()["params"], json!({"uri": "test://b/part"}));
    for uri in ["test://a", "test://b"] {
        client.ask("resources/unsubscribe", json!({"uri": uri}));
    }
    eventually("the server is asked for less", || wanted(&streams).last() == Some(&with(&[])));
    // The old ones are closed.
    eventually("one is open", || server.connections() <= 4);
    assert_eq!(client.end().status, 204);
}

/// Whatever it has promised: many clients give up their sessions at whatever is no stream and no 405.
#[test]
fn r073_a_server_that_refuses_to_tell_has_no_stream() {
    for status in [404, 200, 400, 501, AS_AN_EVENT] {
        let server =
            Sessionless::start(everything(), tools(), move |request: &Request, stream: &mut TcpStream| {
                if method_of(request) != "subscriptions/listen" {
                    return answer(request, stream, &json!({"content": []}));
                }
                let error = json!({"code": -32601, "message": "Method not found"});
                let refusal = json!({"jsonrpc": "2.0", "id": message(request)["id"], "error": error});
                match status {
                    AS_AN_EVENT => scripted::events(stream, &[&format!("data: {refusal}\n\n")]),
                    501 => scripted::json_with(stream, status, "", "{}"),
                    _ => scripted::json_with(stream, status, "", &refusal.to_string()),
                }
            });
        let sidecar = sidecar(&server);
        let client = able(&sidecar, "2025-11-25");
        let reply = client.get().send(sidecar.mcp);
        assert_eq!((reply.status, reply.header("allow")), (405, Some("POST, DELETE, OPTIONS")), "{status}");
        assert_eq!(client.call("echo", json!({}))["result"]["content"], json!([]), "the session goes on");
        // Nor is it asked again for those who cannot ask themselves.
        let _caller = Caller::open(&sidecar, None);
        eventually("it is known that there is none", || {
            let written = sidecar.written();
            let audited = written.lines().filter(|line| line.contains("\"audit\":"));
            let refused = audited.filter(|line| line.contains("server offers no GET stream"));
            refused.count() == 2
        });
    }
}

/// A moment later it may tell, and its clients do not ask again.
#[test]
fn r073_a_server_that_cannot_tell_now_is_asked_again() {
    let error = |code: i64| json!({"error": {"code": code, "message": "not now"}});
    for (status, said) in [
        (200, error(-32603)),
        (AS_AN_EVENT, error(-32603)),
        (400, error(-32602)),
        (200, error(-32000)),
        (AS_AN_EVENT, json!({"result": {"resultType": "complete"}})),
        (503, error(-32603)),
    ] {
        let asked = Arc::<Mutex<usize>>::default();
        let count = asked.clone();
        let refusal = said.clone();
        let server =
            Sessionless::start(everything(), tools(), move |request: &Request, stream: &mut TcpStream| {
                let message = message(request);
                let meta = &message["params"]["_meta"];
                if meta["io.modelcontextprotocol/clientInfo"]["name"] != "longshore-sidecar" {
                    let mut count = count.lock().unwrap();
                    *count += 1;
                    // The first of each of the two clients.
                    if *count % 2 == 1 {
                        let mut refusal = refusal.clone();
                        (refusal["jsonrpc"], refusal["id"]) = (json!("2.0"), message["id"].clone());
                        return match status {
                            AS_AN_EVENT => scripted::events(stream, &[&format!("data: {refusal}\n\n")]),
                            _ => scripted::json_with(stream, status, "", &refusal.to_string()),
                        };
                    }
                }
                scripted::begin_events(stream);
                acknowledge(stream, &message["id"], &message["params"]["notifications"]);
                scripted::until_closed(stream);
            });
        let sidecar = sidecar(&server);
        let client = able(&sidecar, "2025-11-25");
        let mut events = Events::open(&client.get(), sidecar.mcp);
        assert_eq!(events.status, 200, "{status} {said}");
        assert_eq!(events.next().unwrap().message()["method"], "notifications/tools/list_changed");
        let mut caller = Caller::open(&sidecar, None);
        assert_eq!(caller.hear()["method"], "notifications/tools/list_changed", "{status} {said}");
        assert_eq!(*asked.lock().unwrap(), 4);
    }
}

/// Who waits for such a server's stream is as one who does not listen yet.
#[test]
fn r073_who_subscribes_while_a_server_cannot_tell_does_not_wait_for_it() {
    let can = Arc::<AtomicBool>::default();
    let (server, streams) = telling_while(can.clone());
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    let mut events = Events::open(&client.get(), sidecar.mcp);
    assert_eq!(events.status, 200);
    let began = Instant::now();
    let is_done = |method| {
        let answer = client.ask(method, json!({"uri": "test://a"}));
        assert_eq!(answer["result"], json!({}), "{answer}");
    };
    while began.elapsed() < Duration::from_secs(1) {
        is_done("resources/unsubscribe");
        is_done("resources/subscribe");
    }
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    let times = server.seen("subscriptions/listen").len();
    assert!(times <= 5, "it is not asked for each of them: {times}");
    can.store(true, Ordering::SeqCst);
    assert_eq!(events.next().unwrap().message()["method"], "notifications/tools/list_changed");
    let asked = wanted(&streams).pop().unwrap();
    assert_eq!(asked["resourceSubscriptions"], json!(["test://a"]));
    let refused = client.ask("resources/subscribe", json!({"uri": "test://refused"}));
    assert_eq!(refused["error"]["code"], -32603, "it tells again: {refused}");
}

/// It has sessions of its own then, and this is none of them.
#[test]
fn who_listens_hears_that_the_server_has_become_an_older_one() {
    let (server, _streams) = telling();
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    let mut events = Events::open(&client.get(), sidecar.mcp);
    assert_eq!(events.status, 200);
    server.stop();
    let _older = example_server("2025-11-25", server.port);
    events.patience(Duration::from_secs(30));
    while events.try_any().expect("it ends").is_some() {}
    assert_eq!(client.get().send(sidecar.mcp).status, 404);
}

/// A server that ends each stream as soon as it has begun is asked less and less often: whoever listens reads all lists
/// anew each time.
#[test]
fn a_server_that_keeps_ending_its_stream_is_asked_less_and_less_often() {
    for says_so in [false, true] {
        let (heard, times) = (Arc::<Mutex<Vec<Instant>>>::default(), 4);
        let asked = heard.clone();
        let server =
            Sessionless::start(everything(), tools(), move |request: &Request, stream: &mut TcpStream| {
                let message = message(request);
                scripted::begin_events(stream);
                acknowledge(stream, &message["id"], &message["params"]["notifications"]);
                let meta = &message["params"]["_meta"];
                if meta["io.modelcontextprotocol/clientInfo"]["name"] == "longshore-sidecar" {
                    return scripted::until_closed(stream);
                }
                asked.lock().unwrap().push(Instant::now());
                if says_so {
                    let meta = json!({"io.modelcontextprotocol/subscriptionId": message["id"]});
                    let result = json!({"resultType": "complete", "_meta": meta});
                    let end = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
                    scripted::say(stream, &end);
                }
                scripted::chunk(stream, "");
            });
        let sidecar = sidecar(&server);
        let client = able(&sidecar, "2025-11-25");
        let _events = Events::open(&client.get(), sidecar.mcp);
        eventually("it is asked", || heard.lock().unwrap().len() >= times);
        let heard = heard.lock().unwrap();
        // Half a second, one, and two. It takes longer where the machine is busy.
        assert!(heard[times - 1] - heard[0] >= Duration::from_secs(3), "{says_so}: {heard:?}");
    }
}
