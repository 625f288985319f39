//! Lists, resources, and what the server says of itself.

use serde_json::{Value, json};

use super::answered;
use crate::harness::config::{callers, keys, rule};
use crate::harness::{Client, Files, Request, Scripted, Sessionless, Sidecar, config, modern, scripted};

/// 34: what depends on who asks is for nobody else.
#[test]
fn r034_lists_are_filtered_by_the_decision_that_guards_calls() {
    let tools = r#"{"resultType":"complete","ttlMs":9,"cacheScope":"public","tools":[{"name":"a", "x":1.0},{"name":"b"}]}"#;
    let read = r#"{"resultType":"complete","ttlMs":9,"cacheScope":"public","contents":[ ]}"#;
    let own = r#"{"resultType":"complete","ttlMs":9,"cacheScope":"public","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}"#;
    for events in [false, true] {
        let server = Scripted::of_both(json!({}), move |request, stream| {
            let text = match &*scripted::method_of(request) {
                "tools/list" => answered(request, tools),
                "server/discover" => answered(request, own),
                _ => answered(request, read),
            };
            if events {
                scripted::events(stream, &[&format!("data: {text}\n\n")]);
            } else {
                scripted::json(stream, &text);
            }
        });
        let list = |principals: Option<&str>, key: Option<&str>| {
            let mut config = config(server.port);
            config.access = vec![rule("some", &["a"], &[], &["*"])];
            config.access[0].principals = principals.map(|name| vec![name.to_owned()]);
            let files = Files::new();
            match key {
                Some(key) => files.write_with_keys(&config, &keys(&[("somebody", key)])),
                None => files.write(&config),
            };
            let sidecar = Sidecar::with(files, &[]).loaded();
            let result = |method: &str, params: Value| {
                let request = modern::request(1, method, params);
                let request = if let Some(key) = key { request.key(key) } else { request };
                request.send(sidecar.mcp).message()["result"].clone()
            };
            let read = result("resources/read", json!({"uri": "a://b"}));
            let own = result("server/discover", json!({}));
            (result("tools/list", json!({})), [read, own].map(|kept| kept["cacheScope"].clone()))
        };
        let (all, kept) = list(None, None);
        assert_eq!(
            all,
            json!({"resultType": "complete", "ttlMs": 9, "cacheScope": "public", "tools": [{"name": "a", "x": 1.0}]})
        );
        assert_eq!(kept, ["public", "public"]);
        // The server knows neither of rules nor of keys. What it is depends on no rule.
        for (principal, key, own) in [(Some("anonymous"), None, "public"), (None, Some("key-s"), "private")] {
            let (mine, kept) = list(principal, key);
            assert_eq!(mine["tools"], all["tools"]);
            assert_eq!(mine["cacheScope"], "private", "{key:?}");
            assert_eq!(kept, ["private", own], "{key:?}");
        }
        let (none, _) = list(Some("somebody"), None);
        assert_eq!(none["tools"], json!([]));
    }
}

/// 34: a list that comes in pieces is one list, whatever its pieces say and whoever wrote them.
#[test]
fn r034_all_pages_of_a_list_are_for_the_same() {
    let page = |request: &Request| {
        let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
        match scripted::message(request)["params"]["cursor"].as_str() {
            None => json!({"tools": [tool("a"), tool("b")], "nextCursor": "2"}),
            Some("2") => json!({"tools": [tool("c")]}),
            Some(other) => panic!("{other}"),
        }
    };
    let newer = Scripted::of_both(json!({"tools": {}}), move |request, stream| {
        let mut result = page(request);
        result["resultType"] = json!("complete");
        result["ttlMs"] = json!(9);
        result["cacheScope"] = json!("public");
        scripted::reply(stream, request, &result);
    });
    let older = Scripted::offering(json!({"tools": {}}), move |request, stream| match &*request.method {
        "GET" => scripted::no_stream(stream),
        _ => scripted::reply(stream, request, &page(request)),
    });
    for (port, principals, expected) in [
        (newer.port, None, "public"),
        (newer.port, Some("anonymous"), "private"),
        (older.port, None, "private"),
        (older.port, Some("anonymous"), "private"),
    ] {
        // The rule takes something out of one page alone.
        for tools in [&["*"][..], &["a", "c"]] {
            let mut config = config(port);
            config.access = vec![rule("some", tools, &[], &[])];
            config.access[0].principals = principals.map(|name| vec![name.to_owned()]);
            let sidecar = Sidecar::start(&config).ready();
            let list = |params: Value| {
                let reply = modern::request(1, "tools/list", params).send(sidecar.mcp);
                reply.message()["result"].clone()
            };
            let first = list(json!({}));
            let second = list(json!({"cursor": first["nextCursor"]}));
            let count = |page: &Value| page["tools"].as_array().unwrap().len();
            assert_eq!((count(&first), count(&second)), (if tools.len() == 1 { 2 } else { 1 }, 1));
            let scopes = [&first["cacheScope"], &second["cacheScope"]];
            assert_eq!(scopes, [expected, expected], "{principals:?}, {tools:?}: {first} {second}");
        }
    }
}

/// 37: whoever asks, by whichever connection, and however often.
#[test]
fn r037_lists_do_not_depend_on_who_asks() {
    let tools: Vec<Value> = ["z", "m", "hidden", "a", "k"]
        .map(|name| json!({"name": name, "inputSchema": {"type": "object", "title": name}}))
        .into();
    let listed = json!({"tools": tools});
    let older = Scripted::offering(json!({"tools": {}}), move |request, stream| {
        if request.method == "GET" {
            return scripted::no_stream(stream);
        }
        scripted::reply(stream, request, &listed);
    });
    let newer =
        Sessionless::start(json!({"tools": {}}), json!(tools), |_, stream| scripted::no_stream(stream));
    for (port, rules) in [older.port, newer.port].into_iter().flat_map(|port| [(port, "*"), (port, "?")]) {
        let mut config = config(port);
        config.access = vec![rule("some", &[rules], &[], &[])];
        let sidecar = Sidecar::keyed(&config, &callers()).ready();
        let list = modern::request(1, "tools/list", json!({}));
        let lists: Vec<String> = ["key-a", "key-b", "key-a"]
            .map(|key| list.clone().key(key).send(sidecar.mcp).text().to_owned())
            .into();
        let names: Value = serde_json::from_str(&lists[0]).unwrap();
        let names = names["result"]["tools"].as_array().unwrap().iter();
        let names: Vec<_> = names.map(|tool| tool["name"].as_str().unwrap()).collect();
        let expected = if rules == "*" { &["z", "m", "hidden", "a", "k"][..] } else { &["z", "m", "a", "k"] };
        assert_eq!(names, expected, "{rules}");
        assert!(lists.iter().all(|other| *other == lists[0]), "{lists:#?}");
        // And so in sessions.
        let lists: Vec<String> = ["key-a", "key-b"]
            .map(|key| Client::open(&sidecar, Some(key)).send("tools/list", json!({})).text().to_owned())
            .into();
        assert_eq!(lists[0], lists[1], "{rules}");
    }
}

#[test]
fn r036_discovery_says_what_can_be_spoken_here() {
    let server = Scripted::of_both(json!({}), |request, stream| {
        let result = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{ }},"ttlMs":0,"cacheScope":"private"}"#;
        scripted::json(stream, &answered(request, result));
    });
    let sidecar = Sidecar::start(&config(server.port));
    let reply = modern::request("d", "server/discover", json!({})).send(sidecar.mcp);
    assert_eq!(
        reply.message()["result"]["supportedVersions"],
        json!(["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
    );
    assert!(reply.text().contains(r#""capabilities":{"tools":{ }}"#));
}

/// 34: what nobody else may keep passes in pieces like anything large, and says so wherever it says something of it.
#[test]
fn r034_large_resources_are_private_and_not_held() {
    const SIZE: usize = 3_000_000;
    let server = Scripted::of_both(json!({}), |request, stream| {
        let uri = scripted::message(request)["params"]["uri"].as_str().unwrap().to_owned();
        let text = "y".repeat(SIZE);
        let scope = r#""cacheScope":"public""#;
        let contents = format!(r#""contents":[{{"uri":"{uri}","text":"{text}"}}]"#);
        let members = if uri == "a://first" { [scope, &contents] } else { [&contents, scope] }.join(",");
        let result = format!(r#"{{"resultType":"complete","ttlMs":9,{members}}}"#);
        scripted::json(stream, &answered(request, &result));
    });
    for principals in [None, Some(vec!["alice".to_owned()])] {
        let mut config = config(server.port);
        config.access = vec![rule("some", &[], &[], &["*"])];
        config.access[0].principals = principals;
        let files = Files::new();
        files.write_with_keys(&config, &keys(&[("alice", "key-a")]));
        let sidecar = Sidecar::with(files, &["--max-held-bytes", "1000000"]).loaded();
        for uri in ["a://first", "a://last"] {
            let read = modern::request(1, "resources/read", json!({"uri": uri})).key("key-a");
            let result = read.send(sidecar.mcp).message()["result"].take();
            assert_eq!(result["contents"][0]["text"].as_str().map(str::len), Some(SIZE), "{uri}");
            assert_eq!((&result["cacheScope"], &result["ttlMs"]), (&json!("private"), &json!(9)), "{uri}");
        }
    }
}

#[test]
fn a_list_that_is_larger_than_any_may_be_is_refused_for_that() {
    let server = Scripted::of_both(json!({}), |request, stream| {
        let name = "y".repeat(33 << 20);
        scripted::json(stream, &answered(request, &format!(r#"{{"tools":[{{"name":"{name}"}}]}}"#)));
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let lists = [
        modern::request(1, "tools/list", json!({})).send(sidecar.mcp).message(),
        Client::open(&sidecar, None).ask("tools/list", json!({})),
    ];
    for list in lists {
        let message = list["error"]["message"].as_str().unwrap_or_else(|| panic!("{list}"));
        assert!(message.contains("larger than"), "{message}");
    }
}
