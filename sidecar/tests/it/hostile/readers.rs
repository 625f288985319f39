//! Messages that are made to take up many times their bytes where they are read: of the shortest values there are many.

use serde_json::{Value, json};

use crate::harness::shim::{server, serving, stdio};
use crate::harness::{Client, Request, Scripted, Sessionless, Sidecar, config, modern, scripted};

const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";

/// An object of a mebibyte, of which each seven bytes would be a hundred times as many if it were read as a tree.
fn flood() -> Value {
    json!({"experimental": {"x": {"y": vec![json!({"": 0}); (1 << 20) / 7]}}})
}

/// What the sidecar has taken at most to do this, beyond what it had taken before.
fn taken(sidecar: &Sidecar, act: impl FnOnce()) -> u64 {
    let before = sidecar.peak();
    act();
    sidecar.peak() - before
}

/// A server with sessions whose one tool asks for roots.
fn asking() -> Scripted {
    Scripted::offering(json!({"tools": {}}), |request, stream| {
        if scripted::message(request)["method"] != "tools/call" {
            return scripted::reply(stream, request, &json!({"tools": []}));
        }
        scripted::begin_events(stream);
        scripted::ask_for_roots(stream);
        scripted::until_closed(stream);
    })
}

#[test]
fn what_clients_say_of_themselves_is_read_as_far_as_it_may_be_long() {
    let server = asking();
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let took = taken(&sidecar, || {
        let says = |member| {
            let mut message = modern::message(1, "tools/list", json!({}));
            message["params"]["_meta"][member] = flood();
            modern::of(&message.to_string()).send(sidecar.mcp)
        };
        let refused = says(CAPABILITIES);
        let error = &refused.message()["error"];
        assert_eq!((refused.status, &error["code"]), (400, &json!(-32602)), "{error}");
        assert!(error["message"].as_str().unwrap().contains(CAPABILITIES), "{error}");
        // Who somebody is is nothing to refuse a request for, and is not told to a server that would be greeted with it.
        let listed = says(CLIENT_INFO);
        assert_eq!((listed.status, &listed.message()["result"]["tools"]), (200, &json!([])));
        assert!(server.seen("initialize").iter().all(|greeting| greeting.body.len() < 20_000));
        // It is kept nowhere, and the session begins all the same.
        Client::with_capabilities(&sidecar, None, "2025-11-25", &flood());
    });
    assert!(took < 40 << 20, "{took} bytes");
}

/// Also by a process, which hears all of it.
#[test]
fn what_clients_say_of_themselves_to_a_process_is_not_read_as_a_tree() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let took = taken(&sidecar, || {
        Client::with_capabilities(&sidecar, None, "2025-11-25", &flood());
    });
    assert!(took < 40 << 20, "{took} bytes");
}

/// A call that goes on has to be the one that waits, and may be long.
#[test]
fn calls_that_wait_are_known_again_by_what_they_cost_to_hold() {
    let server = asking();
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let call = |arguments: &Value, state: Option<&str>| -> Request {
        let mut message = modern::message(1, "tools/call", json!({"name": "t", "arguments": arguments}));
        message["params"]["_meta"][CAPABILITIES] = json!({"roots": {}});
        if let Some(state) = state {
            message["params"]["requestState"] = json!(state);
            message["params"]["inputResponses"] = json!({});
        }
        modern::of(&message.to_string())
    };
    let took = taken(&sidecar, || {
        let asked = call(&flood(), None).send(sidecar.mcp).message();
        let state = asked["result"]["requestState"].as_str().unwrap_or_else(|| panic!("{asked}"));
        let other = call(&json!({"other": flood()}), Some(state)).send(sidecar.mcp).message();
        assert_eq!(other["error"]["code"], -32602, "{other}");
        let again = call(&flood(), Some(state)).send(sidecar.mcp).message();
        assert_eq!(again["result"]["resultType"], "input_required", "{again}");
    });
    assert!(took < 40 << 20, "{took} bytes");
}

#[test]
fn as_many_tasks_are_read_as_may_be_listened_for() {
    let extension = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let server = Sessionless::start(extension.clone(), json!([]), |_, _| {});
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let wanted = json!({"notifications": {"taskIds": vec![7; (2 << 20) - 1_000]}});
    let mut message = modern::message(1, "subscriptions/listen", wanted);
    message["params"]["_meta"][CAPABILITIES] = extension;
    let request = modern::of(&message.to_string());
    let took = taken(&sidecar, || {
        let refused = request.send(sidecar.mcp);
        let error = &refused.message()["error"];
        assert_eq!((refused.status, &error["code"]), (200, &json!(-32602)), "{error}");
        assert!(error["message"].as_str().unwrap().ends_with("1024 tasks at most"), "{error}");
    });
    assert!(took < 20 << 20, "{took} bytes");
}
