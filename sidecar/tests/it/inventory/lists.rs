//! Servers that list, greet and stream in ways of their own, and what the sidecar makes of it.

use std::io::{BufReader, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longshore_sidecar_config::inventory::{self, ConnectionReason, ConnectionState};
use serde_json::{Value, json};

use super::{ask, read};
use crate::harness::schemas::Watch;
use crate::harness::scripted::{
    accepted, begin_events, chunk, json, json_with, message, method_of, no_stream, reply_to, write,
};
use crate::harness::{Cluster, Gate, Request, Sidecar, config, eventually, scripted, within};

/// What the servers speak. They take nothing in another revision.
const REVISION: &str = "2025-06-18";

/// A server that keeps its sessions apart, and answers by the test whatever is not about them; pings too, if it has
/// something experimental.
struct Server {
    port: u16,
    seen: Arc<Mutex<Vec<String>>>,
    _watch: Watch,
}

impl Server {
    fn start(
        capabilities: Value,
        answer: impl Fn(&str, &Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Self { port, seen: Arc::default(), _watch: Watch::over(port) };
        let (answer, seen) = (Arc::new(answer), server.seen.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (answer, seen, capabilities) = (answer.clone(), seen.clone(), capabilities.clone());
                std::thread::spawn(move || serve(stream, &capabilities, &*answer, &seen));
            }
        });
        server
    }

    /// How often it was asked this.
    fn asked(&self, method: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|seen| *seen == method).count()
    }
}

fn serve(
    mut stream: TcpStream,
    capabilities: &Value,
    answer: &dyn Fn(&str, &Request, &mut TcpStream),
    seen: &Mutex<Vec<String>>,
) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(request) = scripted::read(&mut reader) {
        let chosen = ("mcp-protocol-version".to_owned(), REVISION.to_owned());
        let method = match &*request.method {
            "POST" => method_of(&request),
            "DELETE" if !request.headers.contains(&chosen) => "DELETE in another revision".to_owned(),
            method => method.to_owned(),
        };
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.push(method.clone());
            seen.len()
        };
        match &*method {
            "initialize" => {
                let result = json!({
                    "protocolVersion": REVISION, "capabilities": capabilities,
                    "serverInfo": {"name": "odd", "version": "1"}, "instructions": "odd HALF",
                });
                let session = format!("mcp-session-id: session-{number}\r\n");
                json_with(&mut stream, 200, &session, &halved(&reply_to(&request, &result)));
            }
            "server/discover" => json_with(&mut stream, 400, "", "{}"),
            "ping" if capabilities.get("experimental").is_none() => {
                json(&mut stream, &reply_to(&request, &json!({})));
            }
            "notifications/initialized" => accepted(&mut stream),
            "DELETE in another revision" => json_with(&mut stream, 400, "", "{}"),
            "DELETE" => write(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
            method => answer(method, &request, &mut stream),
        }
    }
}

/// JSON with half a character in some of its texts.
fn halved(json: &str) -> String {
    json.replace("HALF", r"\ud83d")
}

fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

fn beside(server: &Server) -> (Sidecar, String) {
    pinned_beside(server, None)
}

fn pinned_beside(server: &Server, pin: Option<&str>) -> (Sidecar, String) {
    let (mut config, cluster) = (config(server.port), Cluster::new());
    config.protocol = pin.map(str::to_owned);
    cluster.trust(&mut config);
    (Sidecar::start(&config).loaded(), cluster.token(|_| {}))
}

#[test]
fn what_a_server_lists_twice_is_there_once_and_circles_end() {
    for (goes, next, pages) in [
        (
            "in circles",
            (|cursor| if cursor == "b" { "a".to_owned() } else { "b".to_owned() }) as fn(&str) -> _,
            3,
        ),
        ("nowhere, by ever new cursors", |cursor| format!("{cursor}x"), 3),
    ] {
        let server = Server::start(json!({"tools": {}}), move |method, request, stream| match method {
            "tools/list" => {
                let cursor = message(request)["params"]["cursor"].as_str().unwrap_or_default().to_owned();
                let tools =
                    if cursor.is_empty() { [tool("one"), tool("two")] } else { [tool("two"), tool("three")] };
                let page = json!({"tools": tools, "nextCursor": next(&cursor)});
                json(stream, &reply_to(request, &page));
            }
            _ => no_stream(stream),
        });
        let (sidecar, token) = beside(&server);
        let sidecar = sidecar.ready();
        let inventory = read(&ask(&token).send(sidecar.admin));
        let names: Vec<_> = inventory.tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["one", "two", "three"], "{goes}");
        assert!(server.asked("tools/list") <= pages, "{goes}: {} pages", server.asked("tools/list"));
    }
}

#[test]
fn lists_that_are_too_long_together_are_cut_to_what_an_inventory_holds() {
    const MANY: usize = 12;
    let capabilities = json!({"tools": {}, "prompts": {}, "resources": {}});
    let server = Server::start(capabilities, |method, request, stream| {
        let (member, name, many) = match method {
            "tools/list" => ("tools", "name", MANY),
            "prompts/list" => ("prompts", "name", MANY),
            "resources/list" => ("resources", "uri", MANY),
            "resources/templates/list" => ("resourceTemplates", "uriTemplate", 0),
            _ => return no_stream(stream),
        };
        let long = "x".repeat(1 << 20);
        let entry = |number| format!(r#"{{"{name}":"{number}","description":"{long}"}}"#);
        let entries: Vec<_> = (0..many).map(entry).collect();
        list(stream, request, member, &entries);
    });
    let (sidecar, token) = beside(&server);
    let sidecar = sidecar.ready();
    let reply = ask(&token).send(sidecar.admin);
    assert!(reply.body.len() <= inventory::LONGEST, "{} bytes", reply.body.len());
    let inventory = read(&reply);
    // What comes first is kept.
    assert_eq!((inventory.tools.len(), inventory.resources.len()), (MANY, 0));
}

/// Answers with a long list, past what judges messages, which would take its time.
fn list(stream: &mut TcpStream, request: &Request, member: &str, entries: &[String]) {
    let id = message(request)["id"].clone();
    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"{member}":[{}]}}}}"#, entries.join(","));
    let length = text.len();
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(text.as_bytes()));
}

/// A small object takes a hundred times as much memory as its text.
#[test]
fn tools_with_thousands_of_properties_are_listed_and_do_not_fill_the_memory() {
    const MANY: usize = 16;
    /// The sidecar itself, and what it reads and keeps. As values the tools alone would be more.
    const MOST: u64 = 160 << 20;
    let server = Server::start(json!({"tools": {}}), |method, request, stream| {
        if method != "tools/list" {
            return no_stream(stream);
        }
        let tool = |name: usize, objects: usize| {
            let objects = vec![r#"{"a":0}"#; objects].join(",");
            format!(r#"{{"name":"{name}","inputSchema":{{"type":"object","x":[{objects}]}}}}"#)
        };
        // What no memory would hold is left out.
        let mut tools = vec![tool(MANY, 1 << 16)];
        tools.extend((0..MANY).map(|name| tool(name, 1 << 14)));
        list(stream, request, "tools", &tools);
    });
    let (sidecar, token) = beside(&server);
    let sidecar = sidecar.ready();
    let inventory = read(&ask(&token).send(sidecar.admin));
    let names = inventory.tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
    assert!(names.eq((0..MANY).map(|name| name.to_string())), "{} tools", inventory.tools.len());
    assert!(sidecar.peak() < MOST, "{} bytes", sidecar.peak());
}

/// A server that has no stream at first, for one reason or another: it has one nevertheless.
#[test]
fn a_stream_that_is_cut_off_or_refused_is_opened_again() {
    for refused in [None, Some(409), Some(429), Some(500), Some(503)] {
        let tools = Arc::new(Mutex::new(vec![tool("one")]));
        let (listed, streams) = (tools.clone(), Arc::new(AtomicUsize::new(0)));
        let server =
            Server::start(json!({"tools": {"listChanged": true}}), move |method, request, stream| {
                match (method, refused) {
                    ("tools/list", _) => {
                        json(stream, &reply_to(request, &json!({"tools": *listed.lock().unwrap()})));
                    }
                    (_, refused) if streams.fetch_add(1, Ordering::Relaxed) == 0 => match refused {
                        Some(status) => json_with(stream, status, "", "{}"),
                        None => {
                            begin_events(stream);
                            stream.shutdown(Shutdown::Both).unwrap();
                        }
                    },
                    _ => {
                        // A list that is read before it is open tells nothing of this.
                        std::thread::sleep(Duration::from_secs(1));
                        listed.lock().unwrap().push(tool("two"));
                        begin_events(stream);
                    }
                }
            });
        let (sidecar, token) = beside(&server);
        let sidecar = sidecar.ready();
        eventually(&format!("it is opened again after {refused:?}"), || server.asked("GET") > 1);
        // What may have changed meanwhile is looked at.
        eventually("the new tool is known", || read(&ask(&token).send(sidecar.admin)).tools.len() == 2);
        assert_eq!(server.asked("initialize"), 1, "it is the same session");
    }
}

/// Each stream costs the server its lists too.
#[test]
fn a_server_that_ends_its_streams_at_once_is_asked_when_it_says_or_ever_later() {
    for (says, streams, between) in [("retry: 3000\n\n", 3, 3000), (": hello\n\n", 8, 2500)] {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let times = asked.clone();
        let server =
            Server::start(json!({"tools": {"listChanged": true}}), move |method, request, stream| {
                if method == "tools/list" {
                    return json(stream, &reply_to(request, &json!({"tools": [tool("one")]})));
                }
                times.lock().unwrap().push(Instant::now());
                scripted::events(stream, &[says]);
            });
        let (_sidecar, _token) = beside(&server);
        let times = within(Duration::from_secs(60), "it was asked some times", || {
            Some(asked.lock().unwrap().clone()).filter(|times| times.len() >= streams)
        });
        let last = times[streams - 1] - times[streams - 2];
        assert!(last >= Duration::from_millis(between), "{says}: asked again after {last:?}");
        assert!(server.asked("tools/list") <= server.asked("GET"), "{says}: listed more often than heard");
    }
}

/// Many have a page for whoever looks with a browser.
#[test]
fn a_server_that_answers_with_a_page_has_no_stream() {
    let server = Server::start(json!({"tools": {"listChanged": true}}), |method, request, stream| {
        if method == "tools/list" {
            return json(stream, &reply_to(request, &json!({"tools": [tool("one")]})));
        }
        write(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>");
    });
    let (sidecar, _token) = beside(&server);
    let _sidecar = sidecar.ready();
    // By then it would have been asked some times, and each time for its lists too.
    eventually("it is asked whether it is there", || server.asked("ping") > 0);
    assert_eq!((server.asked("GET"), server.asked("tools/list")), (1, 1));
}

#[test]
fn a_server_that_is_of_no_use_is_not_left_with_session_after_session() {
    for (pin, reason) in
        [(None, ConnectionReason::ListFailed), (Some("2025-03-26"), ConnectionReason::UnsupportedRevision)]
    {
        let server = Server::start(json!({"tools": {}}), |method, request, stream| match method {
            "tools/list" => {
                let error = json!({"jsonrpc": "2.0", "id": message(request)["id"], "error": {"code": -32603, "message": "no"}});
                json(stream, &error.to_string());
            }
            _ => no_stream(stream),
        });
        let (sidecar, token) = pinned_beside(&server, pin);
        eventually("it was tried some times", || server.asked("initialize") > 4);
        let begun = server.asked("initialize");
        eventually("and each try was ended", || server.asked("DELETE") >= begun);
        let failed = eventually("it is known", || {
            let inventory = read(&ask(&token).send(sidecar.admin));
            Some(inventory.connection).filter(|connection| connection.state == ConnectionState::Failed)
        });
        assert_eq!(failed.reason, Some(reason), "{}", failed.message);
    }
}

/// What it refuses to list is asked for again, and stays what it was meanwhile.
#[test]
fn a_server_that_lists_its_tools_serves_whatever_else_it_does_not_list() {
    for refused in ["prompts/list", "resources/list", "resources/templates/list"] {
        let refuses = Arc::new(Mutex::new(true));
        let now = refuses.clone();
        let capabilities = json!({"tools": {"listChanged": true}, "prompts": {}, "resources": {}});
        let server = Server::start(capabilities, move |method, request, stream| {
            let result = match method {
                "tools/list" => json!({"tools": [tool("one")]}),
                "prompts/list" => json!({"prompts": [{"name": "a"}]}),
                "resources/list" => json!({"resources": [{"uri": "a:b", "name": "b"}]}),
                "resources/templates/list" => {
                    json!({"resourceTemplates": [{"uriTemplate": "a:{b}", "name": "b"}]})
                }
                _ => return no_stream(stream),
            };
            if method == refused && *now.lock().unwrap() {
                let error = json!({"jsonrpc": "2.0", "id": message(request)["id"], "error": {"code": -32603, "message": "no"}});
                return json(stream, &error.to_string());
            }
            json(stream, &reply_to(request, &result));
        });
        let (sidecar, token) = beside(&server);
        let sidecar = sidecar.ready();
        let lengths = || {
            let inventory = read(&ask(&token).send(sidecar.admin));
            let others =
                [inventory.prompts, inventory.resources, inventory.resource_templates].map(|list| list.len());
            (inventory.tools.len(), others.iter().sum::<usize>(), inventory.connection.state)
        };
        assert_eq!(lengths(), (1, 2, ConnectionState::Connected), "{refused}");
        // More often than would be believed of its tools.
        within(Duration::from_secs(60), "it is asked again", || server.asked(refused) > 3);
        assert_eq!(
            (lengths(), server.asked("initialize")),
            ((1, 2, ConnectionState::Connected), 1),
            "{refused}"
        );
        *refuses.lock().unwrap() = false;
        within(Duration::from_secs(60), "it lists that too", || lengths().1 == 3);
        assert_eq!(server.asked("initialize"), 1, "{refused}: it is the same session");
        assert!(sidecar.written().contains(refused), "{refused}: it was told once");
    }
}

/// Whoever has no time has lost nothing: neither its session nor its tools.
#[test]
fn a_server_that_is_busy_when_it_is_to_list_is_asked_again_and_not_lost() {
    let (busy, tools) = (Arc::new(Mutex::new(false)), Arc::new(Mutex::new(vec![tool("one")])));
    let (is_busy, listed) = (busy.clone(), tools.clone());
    let server = Server::start(json!({"tools": {"listChanged": true}}), move |method, request, stream| {
        match method {
            "tools/list" if *is_busy.lock().unwrap() => json_with(stream, 429, "", "{}"),
            "tools/list" => json(stream, &reply_to(request, &json!({"tools": *listed.lock().unwrap()}))),
            _ => {
                // From the first list on.
                *is_busy.lock().unwrap() = true;
                let news = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
                begin_events(stream);
                chunk(stream, &format!("data: {news}\n\n"));
            }
        }
    });
    let (sidecar, token) = beside(&server);
    let sidecar = sidecar.ready();
    let state = || {
        let inventory = read(&ask(&token).send(sidecar.admin));
        (inventory.tools.len(), inventory.connection.state)
    };
    // More often than is believed of one that refuses.
    within(Duration::from_secs(60), "it is asked again", || {
        assert_eq!(state(), (1, ConnectionState::Connected));
        server.asked("tools/list") > 4
    });
    tools.lock().unwrap().push(tool("two"));
    *busy.lock().unwrap() = false;
    within(Duration::from_secs(60), "it lists them", || state().0 == 2);
    assert_eq!(server.asked("initialize"), 1, "it is the same session");
}

/// Many servers cut their texts within a character, and write half of it.
#[test]
fn half_a_character_keeps_no_server_from_being_ready() {
    let server = Server::start(json!({"tools": {}}), |method, request, stream| match method {
        "tools/list" => {
            let tools = json!([{"name": "one", "description": "HALF"}, tool("two")]);
            json(stream, &halved(&reply_to(request, &json!({"tools": tools}))));
        }
        _ => no_stream(stream),
    });
    let (sidecar, token) = beside(&server);
    let sidecar = sidecar.ready();
    let inventory = read(&ask(&token).send(sidecar.admin));
    assert_eq!(inventory.tools, [json!({"name": "one", "description": "\u{fffd}"}), tool("two")]);
    assert_eq!(inventory.server.unwrap().instructions.as_deref(), Some("odd \u{fffd}"));
}

#[test]
fn a_server_that_shakes_hands_and_does_not_list_is_said_to() {
    let gate = Gate::default();
    let held = gate.clone();
    let server = Server::start(json!({"tools": {}}), move |method, request, stream| match method {
        "tools/list" => {
            held.pass();
            json(stream, &reply_to(request, &json!({"tools": []})));
        }
        _ => no_stream(stream),
    });
    let (sidecar, token) = beside(&server);
    let failed = eventually("it is known", || {
        let inventory = read(&ask(&token).send(sidecar.admin));
        Some(inventory.connection).filter(|connection| connection.state == ConnectionState::Failed)
    });
    assert_eq!(failed.reason, Some(ConnectionReason::ListFailed), "{}", failed.message);
    assert!(failed.message.contains("has shaken hands"), "{}", failed.message);
    gate.open();
    sidecar.ready();
}

/// Each list takes its time, so that whoever asks for it again at once would do nothing else.
#[test]
fn a_server_whose_long_lists_change_all_the_time_is_left_alone_most_of_it() {
    const TAKES: Duration = Duration::from_millis(300);
    let listed = Arc::new(Mutex::new(Vec::new()));
    let times = listed.clone();
    let server = Server::start(json!({"tools": {"listChanged": true}}), move |method, request, stream| {
        if method == "tools/list" {
            times.lock().unwrap().push(Instant::now());
            std::thread::sleep(TAKES);
            return json(stream, &reply_to(request, &json!({"tools": [tool("one")]})));
        }
        begin_events(stream);
        let news = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n";
        let chunk = format!("{:x}\r\n{news}\r\n", news.len());
        while stream.write_all(chunk.as_bytes()).is_ok() {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let (_sidecar, _token) = beside(&server);
    // The first is that of the handshake, and the second has nothing to rest from. One that takes long on a busy machine is
    // rested from for as many times longer.
    let times = within(Duration::from_secs(200), "it was listed some times", || {
        Some(listed.lock().unwrap().clone()).filter(|times| times.len() > 4)
    });
    for two in times[1..].windows(2) {
        let between = two[1] - two[0];
        assert!(between >= TAKES * 8, "listed again after {between:?}");
    }
}

#[test]
fn a_server_that_has_never_heard_of_pings_is_not_greeted_again_and_again() {
    let capabilities = json!({"tools": {}, "experimental": {"pingless": {}}});
    let server = Server::start(capabilities, |method, request, stream| match method {
        "tools/list" => json(stream, &reply_to(request, &json!({"tools": [tool("one")]}))),
        "ping" => {
            let error = json!({"jsonrpc": "2.0", "id": message(request)["id"], "error": {"code": -32601, "message": "what?"}});
            json_with(stream, 404, "", &error.to_string());
        }
        _ => no_stream(stream),
    });
    let (_sidecar, _token) = beside(&server);
    eventually("it was asked some times whether it is there", || server.asked("ping") > 3);
    // It could have become another one the first time.
    assert_eq!(server.asked("initialize"), 2);
}
