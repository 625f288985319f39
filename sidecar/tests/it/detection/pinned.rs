//! A server over HTTP that is spoken to in the one revision that is said (`transport.protocol`).

use std::net::Shutdown;
use std::sync::{Arc, Mutex};

use longshore_sidecar_config::Config;
use serde_json::{Value, json};

use crate::harness::client::initialize;
use crate::harness::scripted::{self, message};
use crate::harness::sse_server::Say;
use crate::harness::{Client, Request, Scripted, Sessionless, Sidecar, SseServer, config, modern};

const MODERN: &str = "2026-07-28";
const CLAIM: &str = "io.modelcontextprotocol/protocolVersion";

fn pinned(config: Config, pin: &str) -> Config {
    Config { protocol: Some(pin.to_owned()), ..config }
}

/// A server of both eras, which answers calls with the era of their requests.
fn of_both() -> Scripted {
    Scripted::of_both(json!({"tools": {}}), |request, stream| {
        let message = message(request);
        let is_alone = !message["params"]["_meta"][CLAIM].is_null();
        let mut result = match message["method"].as_str() {
            Some("server/discover") => json!({"supportedVersions": [MODERN], "capabilities": {"tools": {}}}),
            Some("tools/list") => json!({"tools": []}),
            _ => {
                json!({"content": [{"type": "text", "text": if is_alone { "modern" } else { "legacy" }}]})
            }
        };
        if is_alone {
            result["resultType"] = json!("complete");
        }
        if is_alone && message["method"] != "tools/call" {
            (result["ttlMs"], result["cacheScope"]) = (json!(0), json!("private"));
        }
        scripted::reply(stream, request, &result);
    })
}

/// All clients are served, in whatever revision they speak.
fn serves_all(sidecar: &Sidecar, text: &str) {
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let said = Client::of(sidecar, None, revision).call("t", json!({}));
        assert_eq!(said["result"]["content"][0]["text"], text, "{revision}: {said}");
    }
    let said = modern::request("m", "tools/call", json!({"name": "t"})).send(sidecar.mcp).message();
    assert_eq!(said["result"]["content"][0]["text"], text, "{said}");
}

/// The revisions that these requests name, wherever one can.
fn named(requests: &[Request]) -> Vec<String> {
    let mut named: Vec<_> = requests
        .iter()
        .flat_map(|request| {
            let headers = request.headers.iter().filter(|(name, _)| name == "mcp-protocol-version");
            let params = &message(request)["params"];
            let offered = [&params["protocolVersion"], &params["_meta"][CLAIM]]
                .map(|name| name.as_str().map(str::to_owned));
            headers.map(|(_, name)| name.clone()).chain(offered.into_iter().flatten()).collect::<Vec<_>>()
        })
        .collect();
    named.sort();
    named.dedup();
    named
}

#[test]
fn a_server_over_http_is_spoken_to_in_the_revision_that_is_said() {
    for pin in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN] {
        let server = of_both();
        let sidecar = Sidecar::start(&pinned(config(server.port), pin)).ready();
        sidecar.log(|line| line["message"] == "the MCP server is connected" && line["revision"] == pin);
        serves_all(&sidecar, if pin == MODERN { "modern" } else { "legacy" });
        let heard = server.seen_all();
        assert_eq!(named(&heard), [pin]);
        // It is not tried in the words of the other era either.
        let methods: Vec<_> = heard.iter().map(scripted::method_of).collect();
        let is_asked = |method: &str| methods.iter().any(|asked| asked == method);
        assert_eq!(
            (is_asked("initialize"), is_asked("server/discover")),
            (pin != MODERN, pin == MODERN),
            "{pin}"
        );
    }
}

#[test]
fn a_server_over_sse_is_spoken_to_in_the_revision_that_is_said() {
    for pin in ["2024-11-05", "2025-03-26", "2025-11-25"] {
        let server = SseServer::start(|heard: &Value, say: &Say<'_>| {
            if heard["method"] == "tools/call" {
                say.answer(heard, &json!({"content": [{"type": "text", "text": "done"}]}));
            }
        });
        let sidecar = Sidecar::start(&pinned(server.config(), pin)).ready();
        serves_all(&sidecar, "done");
        assert_eq!(named(&server.seen_all()), [pin]);
    }
}

/// Where a client asks all the same, there is no session in what it speaks instead, and it hears no word of another era.
#[test]
fn a_server_over_http_that_does_not_speak_what_is_said_is_reported_with_both() {
    let of = |revision| Scripted::of(revision, |_, stream| scripted::no_stream(stream));
    let over_sse = |revision| {
        let server = SseServer::start(|_: &Value, _: &Say<'_>| {});
        server.restarts_with(revision);
        server
    };
    let (chooses, refuses) =
        (of("2025-11-25"), Scripted::strict("2025-03-26", |_, stream| scripted::no_stream(stream)));
    let (old, new) = (over_sse("2024-11-05"), Sessionless::start(json!({}), json!([]), |_, _| {}));
    for (server, config, pin, speaks) in [
        ("chooses", config(chooses.port), "2025-03-26", "2025-11-25"),
        ("refuses", config(refuses.port), "2025-11-25", "2025-03-26"),
        ("has a handshake", config(chooses.port), MODERN, "with a handshake"),
        ("has none", config(new.port), "2025-06-18", MODERN),
        ("over SSE", old.config(), "2025-11-25", "2024-11-05"),
        ("over SSE, which is older", old.config(), MODERN, "with a handshake"),
    ] {
        let sidecar = Sidecar::start(&pinned(config, pin));
        let failed = sidecar.log(|line| line["message"] == "the MCP server is not connected");
        assert_eq!(failed["reason"], "UnsupportedRevision", "{server}: {failed}");
        let words = failed["detail"].as_str().unwrap();
        assert!(
            words.contains(&format!("transport.protocol says {pin}")) && words.contains(speaks),
            "{server}: {words}"
        );
        assert_ne!(sidecar.get("/readyz").status, 200, "{server}");
        let greeted = || chooses.seen("initialize").len() + old.seen("initialize").len();
        let before = greeted();
        let refused = Request::post(initialize("2025-11-25")).send(sidecar.mcp).message();
        assert!(refused["error"]["message"].is_string(), "{server}: {refused}");
        if pin == MODERN {
            assert_eq!(greeted(), before, "{server}");
        }
    }
}

/// Before the sidecar itself has heard from it too.
#[test]
fn a_server_over_http_that_is_said_to_have_no_handshake_hears_none() {
    let (port, asked) = silent_to_the_sidecar();
    let serves = |answer: Value, what: &str| {
        assert_eq!(answer["result"]["content"][0]["text"], "modern", "{what}: {answer}");
    };
    let sidecar = Sidecar::start(&pinned(config(port), MODERN));
    serves(modern::request("m", "tools/call", json!({"name": "t"})).send(sidecar.mcp).message(), MODERN);
    for revision in ["2024-11-05", "2025-11-25"] {
        serves(Client::of(&sidecar, None, revision).call("t", json!({})), revision);
    }
    let asked = asked.lock().unwrap();
    assert!(
        asked.iter().all(|method| ["server/discover", "tools/list", "tools/call"].contains(&&**method)),
        "{asked:?}"
    );
}

/// A server without a handshake that never tells the sidecar itself what it speaks, and the methods that it was asked
/// for.
fn silent_to_the_sidecar() -> (u16, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let into = asked.clone();
    let port = scripted::bare(move |request, stream| {
        let method = scripted::method_of(request);
        into.lock().unwrap().push(method.clone());
        let result = match method.as_str() {
            "server/discover" if String::from_utf8_lossy(&request.body).contains("longshore-sidecar") => {
                // It hangs up.
                return stream.shutdown(Shutdown::Both).unwrap();
            }
            "server/discover" => json!({
                "resultType": "complete", "supportedVersions": [MODERN], "capabilities": {"tools": {}},
                "ttlMs": 0, "cacheScope": "private",
            }),
            "tools/list" => json!({
                "resultType": "complete", "tools": [], "ttlMs": 0, "cacheScope": "private",
            }),
            "tools/call" => json!({
                "resultType": "complete", "content": [{"type": "text", "text": "modern"}],
            }),
            _ => return scripted::json_with(stream, 404, "", "{}"),
        };
        scripted::reply(stream, request, &result);
    });
    (port, asked)
}
