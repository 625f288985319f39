//! Who sees and calls what.

mod ids;
mod many;
mod nameless;

use serde_json::json;

use crate::harness::config::{keys, rule};
use crate::harness::{
    Client, GoServer, Request, Scripted, Sessionless, Sidecar, client, config, modern, scripted,
};

#[test]
fn lists_and_calls_follow_one_decision() {
    let server = GoServer::start(&[]);
    // Once with events, once with JSON: the Go server answers as it is told.
    let json_server = GoServer::start(&["-json"]);
    for port in [server.port, json_server.port] {
        let mut config = config(port);
        let mut writers = rule("writers", &["*"], &["*"], &["*"]);
        writers.principals = Some(vec!["team-*".to_owned()]);
        config.access = vec![rule("readers", &["e*"], &[], &["memo://*"]), writers];
        config.tools.exclude = vec!["exit".to_owned()];
        let sidecar = Sidecar::keyed(&config, &keys(&[("reader", "key-r"), ("team-a", "key-w")])).ready();

        let reader = Client::open(&sidecar, Some("key-r"));
        assert_eq!(reader.names("tools/list", "tools", "name"), ["echo"]);
        assert!(reader.names("prompts/list", "prompts", "name").is_empty());
        assert_eq!(reader.names("resources/list", "resources", "uri"), ["memo://greeting"]);
        assert_eq!(reader.call("echo", json!({"text": "hi"}))["result"]["content"][0]["text"], "hi");
        assert_eq!(reader.call("add", json!({"a": 1, "b": 2}))["error"]["code"], -32602);
        let read = reader.ask("resources/read", json!({"uri": "memo://greeting"}));
        assert_eq!(read["result"]["contents"][0]["text"], "hello");

        let writer = Client::open(&sidecar, Some("key-w"));
        assert_eq!(writer.names("tools/list", "tools", "name"), ["add", "echo", "fail", "grow", "slow"]);
        assert_eq!(writer.names("prompts/list", "prompts", "name"), ["greet"]);
        assert_eq!(writer.call("add", json!({"a": 1, "b": 2}))["result"]["structuredContent"]["sum"], 3);
        assert_eq!(writer.call("exit", json!({"status": 1}))["error"]["code"], -32602);

        let line = sidecar.audit(|line| line["target"] == "add" && line["decision"] == "permit");
        assert_eq!((&line["rule"], &line["principal"]), (&json!("writers"), &json!("team-a")));
        let line = sidecar.audit(|line| line["target"] == "add" && line["decision"] == "deny");
        assert_eq!((&line["rule"], &line["principal"]), (&json!(null), &json!("reader")));
    }
}

#[test]
fn everybody_is_anonymous_without_auth() {
    let server = GoServer::start(&[]);
    let mut config = config(server.port);
    config.access[0].principals = Some(vec!["anonymous".to_owned()]);
    let sidecar = Sidecar::start(&config).ready();
    let client = Client::open(&sidecar, None);
    assert_eq!(client.names("tools/list", "tools", "name").len(), 6);
    assert_eq!(sidecar.audit(|line| line["method"] == "tools/list")["principal"], "anonymous");
    // What is read is at the end of such a URI, whatever its caller has written before.
    client.ask("resources/read", json!({"uri": format!("memo://{}../secret", "./".repeat(200))}));
    let line = sidecar.audit(|line| line["method"] == "resources/read");
    let target = line["target"].as_str().unwrap();
    assert!(target.starts_with("memo://./") && target.ends_with("/../secret"), "{target}");
    assert_eq!(target.chars().count(), 257);
}

#[test]
fn entries_that_stay_keep_their_bytes() {
    let list = r#"{ "id":ID,"result":{"nextCursor":"","tools":[{"name":"keep" , "x":1.0e2},{"name":"drop"},{"inputSchema":{"\u0061":[ ]},"name":"k\u0065ep2"}]} ,"jsonrpc":"2.0"}"#;
    let kept = r#"{"id":1,"result":{"nextCursor":"","tools":[{"name":"keep" , "x":1.0e2},{"inputSchema":{"\u0061":[ ]},"name":"k\u0065ep2"}]},"jsonrpc":"2.0"}"#;
    let notification = "event: message\nid: 7\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{ }}\n\n";
    for events in [false, true] {
        let server = Scripted::start(move |request, stream| {
            let list = list.replace("ID", &scripted::message(request)["id"].to_string());
            if events {
                scripted::events(stream, &[notification, &format!("id: 8\ndata: {list}\n\n")]);
            } else {
                scripted::json(stream, &list);
            }
        });
        let mut config = config(server.port);
        config.access = vec![rule("some", &["keep*"], &[], &[])];
        let sidecar = Sidecar::start(&config);
        let client = Client::open(&sidecar, None);
        let reply = client.request(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).send(sidecar.mcp);
        if events {
            let data: Vec<_> = reply.text().lines().filter(|line| line.starts_with("data: {")).collect();
            let said = notification.lines().nth(2).unwrap();
            assert_eq!(data, [said, &format!("data: {kept}")]);
        } else {
            assert_eq!(reply.text(), kept);
        }
    }
}

#[test]
fn a_list_that_cannot_be_read_is_not_passed_on() {
    for result in [json!({"tools": {}}), json!({}), json!([1])] {
        let server = Scripted::start(move |request, stream| scripted::reply(stream, request, &result));
        is_not_passed_on(&server);
    }
}

/// What this server lists is an error to its client.
fn is_not_passed_on(server: &Scripted) {
    let sidecar = Sidecar::start(&config(server.port));
    let message = Client::open(&sidecar, None).ask("tools/list", json!({}));
    assert_eq!(message["error"]["code"], -32603, "{message}");
    sidecar.audit(|line| line["reason"] == "server answered nonsense");
}

#[test]
fn an_answer_under_another_spelling_of_the_id_is_not_passed_on() {
    let server = Scripted::start(|request, stream| {
        if scripted::message(request)["method"] != "tools/list" {
            return scripted::reply(stream, request, &json!({}));
        }
        scripted::events(
            stream,
            &["data: {\"jsonrpc\":\"2.0\",\"id\":1.0,\"result\":{\"tools\":[{\"name\":\"secret\"}]}}\n\n"],
        );
    });
    is_not_passed_on(&server);
}

/// What a side says of itself decides nothing: neither a client's name and what it says that it can do, nor a server's,
/// nor what a tool says that it does.
#[test]
fn r085_what_sides_say_of_themselves_decides_nothing() {
    let harmless = json!({"readOnlyHint": true, "destructiveHint": false, "title": "echo"});
    let terrible = json!({"readOnlyHint": false, "destructiveHint": true, "title": "exit"});
    for (of_exit, of_echo) in [(harmless.clone(), terrible.clone()), (terrible, harmless)] {
        let schema = json!({"type": "object"});
        let tools = json!([
            {"name": "echo", "inputSchema": schema, "annotations": of_echo},
            {"name": "exit", "inputSchema": schema, "annotations": of_exit},
        ]);
        let listed = tools.clone();
        let server = Scripted::of_both(json!({"tools": {}}), move |request, stream| {
            let result = match scripted::method_of(request).as_str() {
                "tools/list" => {
                    json!({"tools": listed, "resultType": "complete", "ttlMs": 0, "cacheScope": "public"})
                }
                _ => {
                    json!({"content": [], "resultType": "complete", "_meta": {"longshore": {"principal": "admin"}}})
                }
            };
            scripted::reply(stream, request, &result);
        });
        let mut config = config(server.port);
        let mut all = rule("all", &["*"], &["*"], &["*"]);
        all.principals = Some(vec!["admin".to_owned()]);
        config.access = vec![rule("some", &["echo"], &[], &[]), all];
        let sidecar = Sidecar::keyed(&config, &keys(&[("reader", "key-r"), ("admin", "key-a")])).ready();
        for name in ["test", "admin", "longshore", "longshore-sidecar"] {
            let info = json!({"name": name, "version": "1", "principal": "admin", "roles": ["admin"]});
            for (key, may_exit) in [("key-r", false), ("key-a", true)] {
                let mut first: serde_json::Value =
                    serde_json::from_str(&client::initialize("2025-11-25")).unwrap();
                first["params"]["clientInfo"] = info.clone();
                first["params"]["capabilities"] = json!({"experimental": {"admin": {}}});
                let opened = Request::post(first.to_string()).key(key).send(sidecar.mcp);
                let session = opened.header("mcp-session-id").unwrap().to_owned();
                let mut client = Client::in_session(&sidecar, &session);
                client.key = Some(key.to_owned());
                let alone = |method: &str, mut params: serde_json::Value| {
                    params["_meta"] =
                        json!({"io.modelcontextprotocol/clientInfo": info, "principal": "admin"});
                    modern::request(1, method, params).key(key).send(sidecar.mcp).message()
                };
                let names = |list: &serde_json::Value| list["result"]["tools"].as_array().unwrap().len();
                let seen = if may_exit { 2 } else { 1 };
                assert_eq!(names(&client.ask("tools/list", json!({}))), seen, "{name}");
                assert_eq!(names(&alone("tools/list", json!({}))), seen, "{name}");
                for answer in [client.call("exit", json!({})), alone("tools/call", json!({"name": "exit"}))] {
                    assert_eq!(answer.get("result").is_some(), may_exit, "{name}: {answer}");
                }
            }
        }
    }
}

/// A call in which the server asks for something is decided on in each round, and the audit log tells the first of them
/// from the others.
#[test]
fn r046_a_call_that_is_sent_again_is_marked_and_authorised_again() {
    let tools = json!([{"name": "ask", "inputSchema": {"type": "object"}}]);
    let server = Sessionless::start(json!({"tools": {}}), tools, |request, stream| {
        let state =
            scripted::message(request)["params"]["requestState"].as_str().unwrap_or_default().to_owned();
        let result = if state == "two" {
            json!({"resultType": "complete", "content": []})
        } else {
            json!({"resultType": "input_required", "requestState": if state.is_empty() { "one" } else { "two" }})
        };
        scripted::reply(stream, request, &result);
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let ask = |state: Option<&str>| {
        let mut params = json!({"name": "ask"});
        if let Some(state) = state {
            params["requestState"] = json!(state);
        }
        let before = sidecar.audit_lines();
        let reply = modern::request(1, "tools/call", params).send(sidecar.mcp).message();
        (reply, sidecar.audit_after(before))
    };
    // Whether it is so, only this server can tell.
    for (state, next, claims) in
        [(None, Some("one"), None), (Some("one"), Some("two"), Some(true)), (Some("two"), None, Some(true))]
    {
        let (reply, line) = ask(state);
        assert_eq!(reply["result"]["requestState"].as_str(), next, "{reply}");
        assert_eq!((line.get("again"), line["claims_again"].as_bool()), (None, claims), "{line}");
        assert_eq!(line["decision"], "permit", "{line}");
        assert_eq!((&line["target"], &line["rule"]), (&json!("ask"), &json!("all")));
    }
    assert_eq!(sidecar.written().matches("\"target\":\"ask\"").count(), 3);
    // What is forbidden meanwhile does not go on.
    let mut none = config(server.port);
    none.access = vec![rule("none", &["other"], &[], &[])];
    let heard = server.seen("tools/call").len();
    sidecar.runs(&sidecar.files.write(&none));
    let (reply, line) = ask(Some("two"));
    assert_eq!(reply["error"]["code"], -32602, "{reply}");
    assert_eq!((&line["claims_again"], &line["decision"]), (&json!(true), &json!("deny")), "{line}");
    assert_eq!(server.seen("tools/call").len(), heard);
}

/// What is too long to be held against many globs is permitted by none but the one that permits everything.
#[test]
fn long_names_and_uris_are_held_against_no_globs() {
    let server = Scripted::start(|request, stream| {
        scripted::reply(stream, request, &json!({"content": [], "contents": []}));
    });
    for (glob, permits_long) in [("a:*", false), ("*", true)] {
        let mut config = config(server.port);
        config.access = vec![rule("r", &[glob], &[], &[glob])];
        let sidecar = Sidecar::start(&config);
        let client = Client::open(&sidecar, None);
        for (method, field, longest) in [("tools/call", "name", 1 << 10), ("resources/read", "uri", 8 << 10)]
        {
            for (length, permitted) in [(longest, true), (longest + 1, permits_long), (3 << 20, permits_long)]
            {
                let target = format!("a:{}", "x".repeat(length - 2));
                let answer = client.ask(method, json!({ field: target }));
                assert_eq!(answer.get("result").is_some(), permitted, "{glob} {length}: {answer:.200}");
            }
        }
    }
}
