//! Who sees and calls what.

use serde_json::json;

use crate::harness::config::{keys, rule};
use crate::harness::{Client, Files, GoServer, Scripted, Sidecar, config, scripted};

#[test]
fn lists_and_calls_follow_one_decision() {
    let server = GoServer::start(&[]);
    // Once with events, once with JSON: the Go server answers as it is told.
    let json_server = GoServer::start(&["-json"]);
    for port in [server.port, json_server.port] {
        let files = Files::new();
        let mut config = config(port);
        let mut writers = rule("writers", &["*"], &["*"], &["*"]);
        writers.principals = Some(vec!["team-*".to_owned()]);
        config.access = vec![rule("readers", &["e*"], &[], &["memo://*"]), writers];
        config.tools.exclude = vec!["exit".to_owned()];
        files.write_with_keys(&config, &keys(&[("reader", "key-r"), ("team-a", "key-w")]));
        let sidecar = Sidecar::with(files, &[]).loaded().ready();

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
}

#[test]
fn entries_that_stay_keep_their_bytes() {
    let list = r#"{ "id":1,"result":{"nextCursor":"","tools":[{"name":"keep" , "x":1.0e2},{"name":"drop"},{"inputSchema":{"\u0061":[ ]},"name":"k\u0065ep2"}]} ,"jsonrpc":"2.0"}"#;
    let kept = r#"{"id":1,"result":{"nextCursor":"","tools":[{"name":"keep" , "x":1.0e2},{"inputSchema":{"\u0061":[ ]},"name":"k\u0065ep2"}]},"jsonrpc":"2.0"}"#;
    let notification = "event: message\nid: 7\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{ }}\n\n";
    for events in [false, true] {
        let server = Scripted::start(move |_, stream| {
            if events {
                scripted::events(stream, &[notification, &format!("id: 8\ndata: {list}\n\n")]);
            } else {
                scripted::json(stream, list);
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
        let server = Scripted::start(move |request, stream| {
            scripted::json(stream, &scripted::reply_to(request, &result));
        });
        let sidecar = Sidecar::start(&config(server.port));
        let client = Client::open(&sidecar, None);
        let message = client.ask("tools/list", json!({}));
        assert_eq!(message["error"]["code"], -32603, "{message}");
        sidecar.audit(|line| line["reason"] == "server answered nonsense");
    }
}

#[test]
fn an_answer_under_another_spelling_of_the_id_is_not_passed_on() {
    let server = Scripted::start(|request, stream| {
        if scripted::message(request)["method"] != "tools/list" {
            return scripted::json(stream, &scripted::reply_to(request, &json!({})));
        }
        scripted::events(
            stream,
            &["data: {\"jsonrpc\":\"2.0\",\"id\":1.0,\"result\":{\"tools\":[{\"name\":\"secret\"}]}}\n\n"],
        );
    });
    let sidecar = Sidecar::start(&config(server.port));
    let client = Client::open(&sidecar, None);
    let message = client.ask("tools/list", json!({}));
    assert_eq!(message["error"]["code"], -32603, "{message}");
    sidecar.audit(|line| line["reason"] == "server answered nonsense");
}
