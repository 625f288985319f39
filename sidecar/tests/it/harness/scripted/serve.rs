//! A connection, by the server's manners, and the rest as the test says.

use std::io::BufReader;
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use serde_json::json;

use super::manners::{Greeting, Manners};
use super::wire::{
    accepted, begin_events_with, chunk, json_with, message, method_of, no_stream, read, reply, reply_to, say,
    write,
};
use super::{AGAIN_SESSION, Heard, OWN_SESSION, UPSTREAM_SESSION};
use crate::harness::{Gate, Request};

pub(super) fn serve(
    mut stream: TcpStream,
    manners: &Manners,
    answer: &dyn Fn(&Request, &mut TcpStream),
    seen: &Mutex<Vec<Heard>>,
) {
    // Its answers go out in pieces, none of which is to wait for the other side to have read the last one.
    stream.set_nodelay(true).expect("an option");
    let mut reader = BufReader::new(stream.try_clone().expect("a clone"));
    while let Some(request) = read(&mut reader) {
        let method = method_of(&request);
        let asked = method == "initialize" || method == "server/discover";
        let version = &message(&request)["params"]["protocolVersion"];
        let begins_again = manners.begins_again.is_some_and(|revision| version == revision);
        let own = asked && String::from_utf8_lossy(&request.body).contains("longshore-sidecar")
            || request.headers.iter().any(|(_, value)| value == OWN_SESSION);
        seen.lock().expect("no panic").push(Heard { request: request.clone(), own });
        match method.as_str() {
            "initialize"
                if manners.strict
                    && message(&request)["params"]["protocolVersion"] != json!(manners.revision) =>
            {
                let requested = &message(&request)["params"]["protocolVersion"];
                let error = match manners.says {
                    Some(words) => json!({"code": -32602, "message": words}),
                    None => json!({"code": -32602, "message": "Unsupported protocol version", "data": {
                        "supported": [manners.revision, "2199-01-01"], "requested": requested,
                    }}),
                };
                let refusal = json!({"jsonrpc": "2.0", "id": message(&request)["id"], "error": error});
                json_with(&mut stream, 200, "", &refusal.to_string());
            }
            "initialize" => {
                let asked = message(&request)["params"]["protocolVersion"].clone();
                let again = manners.greets_again.as_ref().filter(|(revision, _)| own && asked == *revision);
                let others = manners.greets.as_ref().filter(|_| !own);
                let greeting = again.map(|(_, greeting)| greeting).or(others);
                if let Some(Greeting::At(gate) | Greeting::RefusalAt(gate)) = greeting {
                    gate.pass();
                }
                let version = match manners.revision {
                    Some(revision) => json!(revision),
                    None => message(&request)["params"]["protocolVersion"].clone(),
                };
                let result = json!({
                    "protocolVersion": version, "capabilities": manners.capabilities,
                    "serverInfo": manners.info,
                });
                let can_do_nothing = message(&request)["params"]["capabilities"] == json!({});
                let counted = manners.counts.as_ref().filter(|_| !own || !can_do_nothing);
                let counted =
                    counted.map(|count| format!("session-{}", count.fetch_add(1, Ordering::SeqCst) + 1));
                let session = match counted.as_deref().or(manners.name.as_deref()) {
                    Some(name) if counted.is_some() => name,
                    _ if own && begins_again => AGAIN_SESSION,
                    _ if own => OWN_SESSION,
                    name => name.unwrap_or(UPSTREAM_SESSION),
                };
                let headers = if manners.nameless && (!own || manners.knows_nobody) {
                    String::new()
                } else {
                    format!("mcp-session-id: {session}\r\n")
                };
                match greeting {
                    Some(half @ (Greeting::Half | Greeting::BrokenOff)) => {
                        let head =
                            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n";
                        write(&mut stream, &format!("{head}{headers}\r\n{{\"jsonrpc\":"));
                        if matches!(half, Greeting::BrokenOff) {
                            return;
                        }
                    }
                    Some(Greeting::Nonsense) => {
                        json_with(&mut stream, 200, &headers, &reply_to(&request, &json!({})));
                    }
                    Some(Greeting::Refusal | Greeting::RefusalAt(_)) => {
                        let id = &message(&request)["id"];
                        // Cut off within a character, as programs do whose texts are of UTF-16.
                        let error = r#"{"code":-32000,"message":"no seat is free \ud83d"}"#;
                        let refusal = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
                        json_with(&mut stream, 200, "", &refusal);
                    }
                    Some(Greeting::After(before)) => {
                        begin_events_with(&mut stream, &headers);
                        for early in before {
                            say(&mut stream, &early);
                        }
                        say(&mut stream, &reply_to(&request, &result));
                        chunk(&mut stream, "");
                    }
                    Some(Greeting::At(_)) | None => {
                        json_with(&mut stream, 200, &headers, &reply_to(&request, &result));
                    }
                }
            }
            "server/discover" if own && manners.modern => {
                let result = json!({
                    "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": manners.capabilities,
                    "ttlMs": 0, "cacheScope": "private",
                });
                reply(&mut stream, &request, &result);
            }
            "server/discover" if own => json_with(&mut stream, 400, "", "{}"),
            "ping"
                if own && let Some((status, error)) = manners.pings.lock().expect("no panic").pop_front() =>
            {
                let error = error.replace("ID", &message(&request)["id"].to_string());
                json_with(&mut stream, status, "", &error);
            }
            "ping" if own || !manners.pinged => reply(&mut stream, &request, &json!({})),
            "notifications/roots/list_changed" if manners.hears.is_some() => {
                manners.hears.iter().for_each(Gate::pass);
                accepted(&mut stream);
            }
            _ if method.starts_with("notifications/") && !manners.told
                || method.is_empty() && request.method == "POST" && !manners.answered =>
            {
                accepted(&mut stream);
            }
            _ if request.method == "DELETE" && !manners.told => {
                manners.ends.iter().for_each(Gate::pass);
                write(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            }
            _ if request.method == "GET" && own => no_stream(&mut stream),
            _ => answer(&request, &mut stream),
        }
    }
}
