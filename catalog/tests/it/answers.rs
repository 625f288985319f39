//! What single requests are answered.

use http::{Method, StatusCode};
use longshore_catalog::model::{Health, State};
use longshore_catalog::{About, Hosts, Link, Login};
use serde_json::{Value, json};

use crate::harness::{Stand, names, record, tool};

#[tokio::test]
async fn shows_servers_and_tools_with_what_one_needs_to_call_them() {
    let stand = Stand::open().await;
    let about = About {
        title: Some("Issue tracker".to_owned()),
        description: Some("Issues of <b>all</b> teams".to_owned()),
        owner: Some("Team A".to_owned()),
        tags: vec!["issues".to_owned()],
        links: vec![Link { title: "Runbook".to_owned(), url: "https://example.dev/runbook".to_owned() }],
    };
    let write = json!({
        "name": "issues/create", "title": "Create", "description": "Opens an issue",
        "inputSchema": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
        "outputSchema": {"type": "object"},
        "annotations": {"destructiveHint": false},
    });
    stand.serve("tools", "tracker", about, &[write, tool("list", "Lists")]).await;

    let server = stand.json("/v1/servers/tools/tracker").await;
    assert_eq!(
        server,
        json!({
            "namespace": "tools", "name": "tracker", "title": "Issue tracker",
            "description": "Issues of <b>all</b> teams", "owner": "Team A", "tags": ["issues"],
            "links": [{"title": "Runbook", "url": "https://example.dev/runbook"}],
            "url": "http://tracker.tools.svc/mcp", "auth": ["apiKeys"],
            "health": {"state": "Up", "since": "2026-01-01T00:00:00Z"},
            "reported": {"name": "demo", "version": "1", "protocolVersion": "2025-11-25",
                "protocolVersions": ["2025-11-25"]},
            "tools": 2, "toolsLeftOut": 0, "wordsLeftOut": 0, "prompts": 0, "resources": 0, "toolsDigest": server["toolsDigest"],
            "freshness": {"stale": false},
        })
    );
    let shown = stand.json("/v1/tools/tools/tracker/issues%2Fcreate").await;
    assert_eq!(
        shown,
        json!({
            "name": "issues/create", "title": "Create", "description": "Opens an issue", "parameters": ["title"],
            "server": {
                "namespace": "tools", "name": "tracker", "title": "Issue tracker", "owner": "Team A",
                "url": "http://tracker.tools.svc/mcp", "auth": ["apiKeys"],
                "health": {"state": "Up", "since": "2026-01-01T00:00:00Z"},
            },
            "annotations": {"destructiveHint": false},
            "inputSchema": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
            "outputSchema": {"type": "object"},
            "omitted": [],
            "freshness": {"stale": false},
        })
    );
    let mut alone = shown.clone();
    alone.as_object_mut().unwrap().remove("freshness");
    assert_eq!(stand.json("/v1/tools?q=create&include=schemas").await["items"][0], alone);
    assert_eq!(stand.json("/v1/tools?include=schemas").await["items"][0], alone);
    let listed = stand.json("/v1/tools?q=create").await;
    assert!(listed["items"][0]["inputSchema"].is_null() && listed["items"][0]["omitted"].is_null());
    for member in ["name", "title", "description", "parameters", "annotations", "server"] {
        assert_eq!(listed["items"][0][member], shown[member], "{member}");
    }
    assert_eq!(stand.json("/v1/tools?q=lists").await["items"][0]["annotations"], json!({}));
}

#[tokio::test]
async fn the_page_shows_what_is_answered() {
    let page = include_str!("../../../docs/catalog.md");
    let shown = page.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let shown: Vec<Value> = shown.map(|shown| serde_json::from_str(shown).unwrap()).collect();
    let stand = Stand::open().await;
    let about = About { title: Some("Longshore's example server".to_owned()), ..About::default() };
    let mut first = record("default", "first", about);
    first.endpoint.url = Some("http://first.default.svc.cluster.local/mcp".to_owned());
    first.health.since = Some("2026-11-30T09:30:00Z".to_owned());
    let echo = json!({
        "name": "echo", "title": "Echo", "description": "Says back what it is told",
        "inputSchema": {"type": "object", "properties": {"message": {"type": "string"}}},
        "annotations": {"readOnlyHint": true, "idempotentHint": true, "openWorldHint": false},
    });
    stand.feed(first, Some(&[echo, tool("now", "Tells the time")])).await;
    assert_eq!(shown, [stand.json("/v1/tools?q=echo").await, stand.get("/v1/tools?limit=0").await.json()]);
}

#[tokio::test]
async fn a_server_that_is_down_stays_with_its_last_known_tools() {
    let stand = Stand::open().await;
    let mut down = record("a", "demo", About::default());
    stand.serve("a", "demo", About::default(), &[tool("echo", "Says it again")]).await;
    down.health = Health {
        state: State::Down,
        since: None,
        reason: "NoPod".to_owned(),
        message: "no \u{202e}pod".to_owned(),
    };
    stand.feed(down.clone(), None).await;
    let first = stand.json("/v1/tools/a/demo/echo").await;
    let health = &first["server"]["health"];
    assert_eq!(
        (&health["state"], &health["reason"], &health["message"]),
        (&json!("Down"), &json!("NoPod"), &json!("no pod"))
    );
    let since = health["since"].as_str().unwrap().to_owned();
    // Heard again, it is down since it was.
    down.health.message = "still none".to_owned();
    stand.feed(down, None).await;
    let later = stand.json("/v1/servers/a/demo").await;
    assert_eq!(
        (&later["health"]["since"], &later["health"]["message"]),
        (&json!(since), &json!("still none"))
    );
    assert_eq!(names(&stand.json("/v1/tools?health=Down").await), ["echo"]);
    assert_eq!(names(&stand.json("/v1/tools?q=again").await), ["echo"]);
}

#[tokio::test]
async fn names_stand_in_until_a_server_is_heard() {
    let stand = Stand::open().await;
    let list = |known: &[&str]| {
        let mut record = record("a", "demo", About::default());
        record.known_tools = known.iter().map(|&name| name.to_owned()).collect();
        record.known_tools_left_out = 70;
        stand.catalog.upsert(record);
    };
    // They are those of the newest status.
    list(&["gone"]);
    assert_eq!(names(&stand.json("/v1/tools").await), ["gone"]);
    list(&["echo", "bad\u{202e}name", "add"]);
    assert_eq!(names(&stand.json("/v1/tools").await), ["add", "echo"]);
    stand.catalog.caught_up().await;
    assert_eq!(names(&stand.json("/v1/tools?q=ech").await), ["echo"]);
    assert_eq!(stand.json("/v1/servers/a/demo").await["toolsLeftOut"], 71);
    let omitted = json!({"field": "inputSchema", "bytes": 0, "reason": "the server has not been heard yet"});
    assert_eq!(stand.json("/v1/tools/a/demo/echo").await["omitted"], json!([omitted]));
    stand.serve("a", "demo", About::default(), &[tool("other", "x")]).await;
    assert_eq!(names(&stand.json("/v1/tools").await), ["other"]);
    list(&["echo"]);
    assert_eq!(names(&stand.json("/v1/tools").await), ["other"], "it has been heard");
}

#[tokio::test]
async fn what_a_server_has_listed_is_there_before_its_words_are_read() {
    let stand = Stand::unread().await;
    for tools in [["echo", "now"], ["echo", "then"]] {
        let of = record("a", "demo", About::default());
        stand.tell(of, Some(&tools.map(|name| tool(name, "x"))));
        assert_eq!(names(&stand.json("/v1/tools").await), tools);
        for name in tools {
            stand.json(&format!("/v1/tools/a/demo/{name}")).await;
        }
        let server = stand.json("/v1/servers/a/demo").await;
        assert_eq!((&server["tools"], &server["reported"]["name"]), (&json!(2), &json!("demo")));
        assert_eq!(stand.json("/v1/tools?q=echo").await["total"], 0);
    }
    let mut known = record("a", "silent", About::default());
    known.known_tools = vec!["add".to_owned()];
    stand.catalog.upsert(known);
    stand.json("/v1/tools/a/silent/add").await;
    for (path, words) in [
        ("/v1/tools/a/demo/now", "no tool of this name"),
        ("/v1/tools/a/silent/echo", "has not heard this server yet"),
    ] {
        let said = stand.get(path).await.problem(404);
        assert!(said.contains(words), "{path}: {said}");
    }
}

#[tokio::test]
async fn an_answer_has_a_tag_that_holds_until_it_changes() {
    let stand = Stand::open().await;
    stand.serve("a", "demo", About::default(), &[tool("echo", "x")]).await;
    for path in
        ["/v1/servers", "/v1/servers/a/demo", "/v1/tools?q=echo", "/v1/tools/a/demo/echo", "/openapi.json"]
    {
        let first = stand.get(path).await;
        let tag = first.header("etag").unwrap().to_owned();
        assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag} is not strong");
        for (known, status) in [
            (tag.clone(), 304),
            (format!("\"x\", W/{tag}"), 304),
            ("*".to_owned(), 304),
            ("\"x\"".to_owned(), 200),
        ] {
            let again = stand.ask(Method::GET, path, &[("if-none-match", &known)]).await;
            assert_eq!(
                (again.status.as_u16(), again.header("etag")),
                (status, Some(&*tag)),
                "{path} {known}"
            );
            assert_eq!(again.body.is_empty(), status == 304);
        }
        let head = stand.ask(Method::HEAD, path, &[]).await;
        assert_eq!((head.status, head.header("etag"), head.body.len()), (StatusCode::OK, Some(&*tag), 0));
    }
    let tag = stand.get("/v1/tools").await.header("etag").unwrap().to_owned();
    stand.serve("a", "demo", About::default(), &[tool("echo", "y")]).await;
    let changed = stand.ask(Method::GET, "/v1/tools", &[("if-none-match", &tag)]).await;
    assert_eq!(changed.status, StatusCode::OK);
}

#[tokio::test]
async fn what_may_be_out_of_date_says_so() {
    let stand = Stand::open().await;
    stand.serve("a", "demo", About::default(), &[tool("echo", "x")]).await;
    for path in
        ["/v1/servers", "/v1/servers/a/demo", "/v1/tools", "/v1/tools?q=echo", "/v1/tools/a/demo/echo"]
    {
        let fresh = stand.get(path).await;
        assert_eq!(
            (fresh.json()["freshness"]["stale"].clone(), fresh.header("longshore-stale-since")),
            (json!(false), None)
        );
        stand.catalog.set_stale(true);
        let stale = stand.get(path).await;
        assert_eq!(stale.json()["freshness"]["stale"], json!(true), "{path}");
        assert_eq!(stale.json()["freshness"]["since"].as_str(), stale.header("longshore-stale-since"));
        assert_ne!(stale.header("etag"), fresh.header("etag"));
        stand.catalog.set_stale(false);
    }
}

#[tokio::test]
async fn what_cannot_be_answered_is_a_problem() {
    let stand = Stand::open().await;
    stand.serve("a", "demo", About::default(), &[tool("echo", "x")]).await;
    let long = |length: usize| format!("/v1/tools?q={}", "x".repeat(length));
    for (path, status, words) in [
        ("/", 404, "/openapi.json"),
        ("/v1", 404, "no such path"),
        ("/v1/tools/a/demo", 404, "no such path"),
        ("/v1/servers/a/nobody", 404, "no server of this name"),
        ("/v1/servers/b/demo", 404, "no server of this name"),
        ("/v1/tools/a/demo/nothing", 404, "no tool of this name"),
        ("/v1/tools/a/nobody/echo", 404, "no server of this name"),
        ("/v1/tools/a/demo/%ff", 400, "UTF-8"),
        ("/v1/tools?page=2", 400, "no parameter \"page\""),
        ("/v1/servers?limit=1000", 400, "limit is a number from 1 to 200"),
        ("/v1/servers/a/demo?q=x", 400, "no parameters"),
        ("/v1/tools?health=fine", 400, "Up, Down and Unknown"),
        ("/v1/tools?cursor=made-up", 400, "begin again"),
        (&long(1000), 400, "q has 1000 bytes, and may have 512"),
        (&long(10_000), 414, "at most 4096 are read"),
    ] {
        let said = stand.get(path).await.problem(status);
        assert!(said.contains(words), "{path}: {said}");
    }
    for path in ["/v1/tools", "/v1/servers/a/demo", "/openapi.json"] {
        let answer = stand.ask(Method::POST, path, &[]).await;
        answer.problem(405);
        let mut allowed: Vec<_> = answer.header("allow").unwrap().split(',').collect();
        allowed.sort_unstable();
        assert_eq!(allowed, ["GET", "HEAD"], "{path}");
    }
}

#[tokio::test]
async fn a_catalog_that_starts_says_so_and_not_that_there_is_nothing() {
    let stand = Stand::starting(Login::OpenBy(Hosts::default())).await;
    stand.catalog.upsert(record("a", "demo", About::default()));
    let paths = [
        ("/v1/servers", 200),
        ("/v1/tools?q=x", 200),
        ("/v1/servers/a/demo", 200),
        ("/v1/servers/a/other", 404),
        ("/v1/tools/a/demo/echo", 404),
    ];
    for (path, _) in paths {
        let answer = stand.get(path).await;
        answer.problem(503);
        assert_eq!(answer.header("retry-after"), Some("1"), "{path}");
    }
    stand.get("/nowhere").await.problem(404);
    stand.json("/openapi.json").await;
    stand.catalog.set_complete();
    for (path, status) in paths {
        assert_eq!(stand.get(path).await.status.as_u16(), status, "{path}");
    }
}

#[tokio::test]
async fn the_description_names_every_path_and_parameter() {
    let stand = Stand::open().await;
    let document = stand.json("/openapi.json").await;
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let paths: Vec<_> = document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        paths,
        [
            "/v1/servers",
            "/v1/servers/{namespace}/{name}",
            "/v1/tools",
            "/v1/tools/{namespace}/{server}/{tool}"
        ]
    );
    let parameters = document["paths"]["/v1/tools"]["get"]["parameters"].as_array().unwrap();
    let named: Vec<_> = parameters.iter().map(|parameter| parameter["name"].as_str().unwrap()).collect();
    let of_all = ["q", "namespace", "server", "owner", "tag", "health", "limit", "cursor"];
    assert_eq!(named, [&of_all[..], &["readOnly", "destructive", "include"][..]].concat());
    assert!(parameters.iter().all(|parameter| parameter["in"] == "query" && parameter["required"] == false));
    let schema = |name: &str| parameters.iter().find(|it| it["name"] == name).unwrap()["schema"].clone();
    assert_eq!(schema("readOnly"), json!({"type": "boolean"}));
    assert_eq!(schema("destructive"), json!({"type": "boolean"}));
    assert_eq!(schema("include"), json!({"type": "string", "pattern": "^schemas$"}));
    for (path, described) in document["paths"].as_object().unwrap() {
        let header = &described["parameters"][0];
        assert_eq!((&header["name"], &header["in"]), (&json!("If-None-Match"), &json!("header")), "{path}");
        let responses = &described["get"]["responses"];
        let of_answer: &[&str] = if path.ends_with('}') {
            &["ETag", "Longshore-Stale-Since"]
        } else {
            &["ETag", "Link", "Longshore-Stale-Since"]
        };
        for (status, headers) in [("200", of_answer), ("304", &["ETag"]), ("503", &["Retry-After"])] {
            let described: Vec<_> = responses[status]["headers"].as_object().unwrap().keys().collect();
            assert_eq!(described, headers, "{path} {status}");
        }
        for (status, response) in responses.as_object().unwrap() {
            let description = response["description"].as_str();
            assert!(description.is_some_and(|text| !text.is_empty()), "{path} {status}");
        }
    }
    for schema in ["ServerList", "ToolList", "Tool", "ServerDetails", "Problem", "Health"] {
        assert!(document["components"]["schemas"][schema].is_object(), "{schema}");
    }
}

#[tokio::test]
async fn probes_and_metrics_are_beside() {
    let stand = Stand::starting(Login::OpenBy(Hosts::default())).await;
    assert_eq!(stand.probe("/livez").await.status, StatusCode::OK);
    assert_eq!(stand.probe("/readyz").await.status, StatusCode::SERVICE_UNAVAILABLE);
    stand.catalog.set_complete();
    assert_eq!(stand.probe("/readyz").await.status, StatusCode::OK);
    assert_eq!(stand.probe("/v1/tools").await.status, StatusCode::NOT_FOUND);
    let nameless = json!({"title": "Nobody can call it"});
    stand.serve("a", "demo", About::default(), &[tool("echo", "x"), tool("add", "x"), nameless]).await;
    stand.get("/v1/tools/a/demo/echo").await;
    stand.get("/nowhere").await;
    let metrics = stand.probe("/metrics").await;
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    for line in [
        "longshore_catalog_servers{state=\"Up\"} 1",
        "longshore_catalog_tools 2",
        "longshore_catalog_left_out{of=\"tools\"} 1",
        "longshore_catalog_left_out{of=\"words\"} 0",
        "longshore_catalog_stale 0",
        concat!("longshore_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
        "longshore_catalog_requests_total{route=\"/v1/tools/{namespace}/{server}/{tool}\",status=\"200\"} 1",
        "longshore_catalog_requests_total{route=\"other\",status=\"404\"} 1",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
    }
}
