//! The ids of events, and when a response begins as events.

use std::time::Duration;

use serde_json::json;

use super::{answer, event, note};
use crate::harness::shim::{self, serving, stdio};
use crate::harness::{Client, Events, Gate, Scripted, Sidecar, client, config, scripted};

/// How a server answers.
#[derive(Clone, Copy, Debug)]
enum How {
    /// With events, of which this is the text; `ANSWER` stands for the answer.
    Events(&'static [&'static str]),
    /// With JSON, at once or when the response has begun.
    Json(When),
    /// With an error as JSON.
    Error(When),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    AtOnce,
    /// When the client has the head of its response.
    Begun,
    /// After longer than others begin to respond.
    Late,
}

const NOTE: &str =
    r#"data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#;

/// The same in two lines, as a message may be that has white space in it.
const TWO_LINES: &str = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\ndata: \"params\":{\"progressToken\":1,\"progress\":1}}\n\n";

/// What came, with `E` for the epoch, `N` for the note and `A` for the answer.
fn shape(text: &str, message: &str, epoch: &mut String) -> String {
    if epoch.is_empty()
        && let Some((_, rest)) = text.split_once("id: ")
    {
        *epoch = rest[..8].to_owned();
    }
    let text = text.replace(message, "A").replace(NOTE, "data: N");
    if epoch.is_empty() { text } else { text.replace(epoch.as_str(), "E") }
}

#[test]
fn r057_responses_are_numbered_as_their_revision_wants() {
    const NEW: &str = "2025-11-25";
    const OLD: &str = "2025-06-18";
    let prime = "id: E-1-1-1\ndata: \n\n";
    for (revision, how, expected) in [
        (NEW, How::Json(When::AtOnce), "A".to_owned()),
        (NEW, How::Error(When::AtOnce), "A".to_owned()),
        // One event is all there is: whoever has seen it needs nothing more.
        (NEW, How::Events(&["data: ANSWER\n\n"]), "id: E-1-0\ndata: A\n\n".to_owned()),
        (OLD, How::Events(&["data: ANSWER\n\n"]), "id: E-1-0\ndata: A\n\n".to_owned()),
        // Something comes before the answer.
        (
            NEW,
            How::Events(&[NOTE, "\n\n", "data: ANSWER\n\n"]),
            format!("{prime}id: E-1-1-2\ndata: N\n\nid: E-1-0\ndata: A\n\n"),
        ),
        (
            OLD,
            How::Events(&[NOTE, "\n\n", "data: ANSWER\n\n"]),
            "id: E-1-1-1\ndata: N\n\nid: E-1-0\ndata: A\n\n".to_owned(),
        ),
        // However many lines one has, it is one message, and one event.
        (
            OLD,
            How::Events(&[TWO_LINES, "data: ANSWER\n\n"]),
            format!("id: E-1-1-1\n{TWO_LINES}id: E-1-0\ndata: A\n\n"),
        ),
        // What the server says of its own stream is not for the client, nor what is in events of other types.
        (
            NEW,
            How::Events(&[
                ": hello\n\nretry: 5\nid: 77-1\ndata:\n\n",
                "id: 77-2\r\nevent: message\r\nretry: 7\r\n",
                NOTE,
                "\r\n\r\nevent: other\ndata: {}\n\nid: 77-3\ndata: ANSWER\n\ndata: more\n\n",
            ]),
            format!("{prime}id: E-1-1-2\ndata: N\n\nid: E-1-0\ndata: A\n\n"),
        ),
        // An answer that takes its time.
        (NEW, How::Json(When::Begun), format!("{prime}id: E-1-0\ndata: A\n\n")),
        (NEW, How::Error(When::Begun), format!("{prime}id: E-1-0\ndata: A\n\n")),
        (OLD, How::Json(When::Late), "A".to_owned()),
    ] {
        let gate = Gate::default();
        let begun = gate.clone();
        let server = Scripted::start(move |request, stream| match how {
            How::Events(pieces) => {
                let answer = answer(request);
                let pieces: Vec<_> = pieces.iter().map(|piece| piece.replace("ANSWER", &answer)).collect();
                scripted::events(stream, &pieces.iter().map(String::as_str).collect::<Vec<_>>());
            }
            How::Json(_) => {
                begun.pass();
                scripted::json(stream, &answer(request));
            }
            How::Error(_) => {
                begun.pass();
                scripted::json(stream, r#"{"jsonrpc":"2.0","id":1,"error":{"code":-5,"message":"m"}}"#);
            }
        });
        let sidecar = Sidecar::start(&config(server.port));
        let client = Client::of(&sidecar, None, revision);
        let mut epoch = String::new();
        let message = match how {
            How::Error(_) => r#"{"jsonrpc":"2.0","id":1,"error":{"code":-5,"message":"m"}}"#.to_owned(),
            _ => {
                json!({"id": 1, "jsonrpc": "2.0", "result": {"content": [{"text": "done", "type": "text"}]}})
                    .to_string()
            }
        };
        match how {
            How::Json(When::Begun) | How::Error(When::Begun) => {}
            How::Json(When::Late) => {
                let gate = gate.clone();
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(1500));
                    gate.open();
                });
            }
            _ => gate.open(),
        }
        let stream = client.stream("t", json!({}));
        gate.open();
        assert_eq!(shape(&stream.text(), &message, &mut epoch), expected, "{revision} {how:?}");
        // The next stream of the session has the next number, and so has its request.
        if let How::Events(_) = how {
            let text = client.stream("t", json!({})).text();
            let message = message.replace("\"id\":1", "\"id\":2");
            assert_eq!(
                shape(&text, &message, &mut epoch),
                expected.replace("E-1-1-", "E-2-2-").replace("E-1-0", "E-2-0")
            );
        }
    }
}

#[test]
fn filtered_lists_are_events_too() {
    let server = Scripted::start(|request, stream| {
        let tools = json!({"tools": [{"name": "a", "inputSchema": {}}, {"name": "b", "inputSchema": {}}]});
        let beat = "event: heartbeat\ndata: {\"t\":1}\n\n";
        scripted::events(stream, &[beat, &event(&note(1)), &event(&scripted::reply_to(request, &tools))]);
    });
    let mut config = config(server.port);
    config.tools.exclude = vec!["b".to_owned()];
    let sidecar = Sidecar::start(&config);
    let client = Client::open(&sidecar, None);
    let events = Events::open(&client.request(client.message("tools/list", &json!({}))), sidecar.mcp).all();
    assert!(events[0].id.ends_with("-1-2") && events[1].id.ends_with("-1-0"), "{events:?}");
    assert_eq!(events[1].message()["result"]["tools"].as_array().unwrap().len(), 1);
}

#[test]
fn what_comes_before_a_session_has_no_ids() {
    let port = scripted::bare(|request, stream| {
        if scripted::method_of(request) != "initialize" {
            return scripted::accepted(stream);
        }
        let result = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "serverInfo": {"name": "n", "version": "1"}});
        let answer = scripted::reply_to(request, &result);
        let first = format!("id: 1\nretry: 10\n{NOTE}\n\n");
        scripted::events(stream, &[&first, &format!("id: 2\ndata: {answer}\n\n")]);
    });
    let sidecar = Sidecar::start(&config(port));
    let reply = crate::harness::Request::post(client::initialize("2025-11-25")).send(sidecar.mcp);
    assert_eq!(reply.events().len(), 2);
    assert!(!reply.text().contains("id: ") && !reply.text().contains("retry"), "{}", reply.text());
}

#[test]
fn processes_answer_in_the_same_way() {
    let (_shim, sidecar) = serving(&stdio(), &shim::server(&[]), &[]);
    for (revision, events) in [("2025-11-25", true), ("2025-06-18", false)] {
        let client = Client::of(&sidecar, None, revision);
        // It begins with what is there, which is the answer for one of them.
        let (tool, arguments) = if events { ("wait", json!({})) } else { ("later", json!({"seconds": 1.5})) };
        let reply = client.stream(tool, arguments);
        if events {
            client.call("release", json!({}));
        }
        let json = reply.headers.contains(&("content-type".to_owned(), "application/json".to_owned()));
        assert_eq!(!json, events, "{revision}");
        if events {
            let events = reply.all();
            assert!(events[0].id.ends_with("-1-0"), "{events:?}");
            assert_eq!(events.len(), 1);
        }
    }
}
