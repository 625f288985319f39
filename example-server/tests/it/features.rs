//! What it offers in each revision: all of it works, and all of it is in the words of that revision.

use longshore_example_server::Settings;
use longshore_mcp::revision::Revision::{self, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28};
use serde_json::{Value, json};

use crate::harness::{Events, Fixture, Whole, borrowed, lone, request};
use crate::schema;

/// A client that can be asked for everything, also for what the revision does not have.
fn everything(revision: Revision) -> Value {
    let mut capabilities = json!({"sampling": {}, "roots": {}, "elicitation": {}});
    if revision >= V2025_11_25 {
        capabilities["elicitation"] = json!({"form": {}, "url": {}});
        capabilities["sampling"] = json!({"tools": {}});
    }
    capabilities
}

/// What such a client answers.
fn answer(method: &str, params: &Value) -> Value {
    let fields = params["requestedSchema"]["properties"].as_object();
    let field = |(name, schema): (&String, &Value)| {
        let value = match schema["type"].as_str() {
            Some("string") => json!("Ada"),
            Some("array") => json!(["option1"]),
            Some("boolean") => json!(true),
            _ => json!(7),
        };
        (name.clone(), value)
    };
    match (method, params["mode"].as_str()) {
        ("elicitation/create", Some("url")) => json!({"action": "accept"}),
        ("elicitation/create", _) => {
            let content: Value =
                fields.into_iter().flatten().map(field).collect::<serde_json::Map<_, _>>().into();
            json!({"action": "accept", "content": content})
        }
        ("roots/list", _) => json!({"roots": [{"uri": "file:///home"}]}),
        _ if params["tools"].is_array() && params["messages"].as_array().unwrap().len() == 1 => {
            let used = json!({"type": "tool_use", "id": "u", "name": "weather", "input": {"city": "Paris"}});
            json!({"role": "assistant", "content": used, "model": "m"})
        }
        _ => json!({"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m"}),
    }
}

/// Arguments that a tool takes.
fn arguments(tool: &Value) -> Value {
    match tool["name"].as_str().unwrap() {
        "countdown" => json!({"seconds": 0.3}),
        "test_trigger_resource_update" => json!({"uri": "test://watched-resource"}),
        _ => {
            let properties = tool["inputSchema"]["properties"].as_object().unwrap();
            let required = tool["inputSchema"]["required"].as_array().cloned().unwrap_or_default();
            let needed = properties.iter().filter(|(name, _)| required.contains(&json!(name)));
            let value = |schema: &Value| if schema["type"] == "number" { json!(1) } else { json!("x") };
            needed
                .map(|(name, schema)| (name.clone(), value(schema)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        }
    }
}

/// A request of a session, and everything that it takes until it is answered.
async fn ask(fixture: &Fixture, session: &str, id: u64, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({"progressToken": id});
    let body = request(id, method, params).to_string();
    let headers = fixture.of(session);
    let response = fixture.send("POST", "/mcp", &headers, body).await;
    assert_eq!(response.status(), 200, "{method}");
    if response.headers()["content-type"] == "application/json" {
        use http_body_util::BodyExt as _;
        let body = response.into_body().collect().await.unwrap().to_bytes();
        return serde_json::from_slice(&body).unwrap();
    }
    let mut events = Events::of(fixture.revision, response);
    loop {
        let Some(message) = events.message().await else {
            let again = [&headers[..], &[("last-event-id", events.last.as_deref().unwrap())]].concat();
            events = fixture.events("GET", &again, "").await;
            continue;
        };
        if message["id"] == id && message.get("method").is_none() {
            return message;
        }
        if let Some(asked) = message.get("id") {
            let result = answer(message["method"].as_str().unwrap(), &message["params"]);
            let reply = json!({"jsonrpc": "2.0", "id": asked, "result": result});
            assert_eq!(fixture.whole("POST", &headers, reply.to_string()).await.status, 202);
        }
    }
}

#[tokio::test]
async fn every_tool_of_a_session_works() {
    for revision in [V2025_03_26, V2025_06_18, V2025_11_25] {
        let fixture = Fixture::start(revision).await;
        let session = fixture.begin(everything(revision)).await;
        let mut id = 0;
        let mut next = async |method: &str, params: Value| {
            id += 1;
            let answer = ask(&fixture, &session, id, method, params).await;
            schema::check_message(revision, &answer);
            answer["result"].clone()
        };
        let list = next("tools/list", json!({})).await;
        schema::check(revision, "ListToolsResult", &list);
        for tool in list["tools"].as_array().unwrap() {
            if tool["execution"]["taskSupport"] == "required" {
                continue;
            }
            let result =
                next("tools/call", json!({"name": tool["name"], "arguments": arguments(tool)})).await;
            if tool["name"] == "test_elicitation_url_required" {
                assert_eq!(result, Value::Null, "the first time is an error");
                let again = next("tools/call", json!({"name": tool["name"]})).await;
                assert_eq!(again["content"][0]["text"], "the page was visited");
                continue;
            }
            schema::check(revision, "CallToolResult", &result);
            assert_eq!(result["isError"] == true, tool["name"] == "test_error_handling", "{tool}: {result}");
        }
        for (method, definition) in [
            ("prompts/list", "ListPromptsResult"),
            ("resources/list", "ListResourcesResult"),
            ("resources/templates/list", "ListResourceTemplatesResult"),
        ] {
            schema::check(revision, definition, &next(method, json!({})).await);
        }
        let arguments = json!({"arg1": "a", "arg2": "b", "resourceUri": "test://static-text"});
        for prompt in next("prompts/list", json!({})).await["prompts"].as_array().unwrap() {
            let result = next("prompts/get", json!({"name": prompt["name"], "arguments": arguments})).await;
            schema::check(revision, "GetPromptResult", &result);
        }
        for uri in ["test://static-text", "test://static-binary", "test://template/7/data"] {
            schema::check(revision, "ReadResourceResult", &next("resources/read", json!({"uri": uri})).await);
        }
        let reference = json!({"type": "ref/prompt", "name": "test_prompt_with_arguments"});
        let params = json!({"ref": reference, "argument": {"name": "arg1", "value": "par"}});
        let completed = next("completion/complete", params).await;
        schema::check(revision, "CompleteResult", &completed);
        assert_eq!(completed["completion"]["values"], json!(["paris", "park", "party"]));
    }
}

/// A request that stands alone, and its answer.
async fn once(fixture: &Fixture, method: &str, params: Value) -> Value {
    let (mut headers, mut body) = lone(method, params, everything(V2026_07_28));
    body["params"]["_meta"]["progressToken"] = 1.into();
    body["params"]["_meta"]["io.modelcontextprotocol/logLevel"] = "debug".into();
    headers.push(("x-unused".into(), "1".into()));
    let response = fixture.send("POST", "/mcp", &borrowed(&headers), body.to_string()).await;
    if response.headers()["content-type"] == "application/json" {
        use http_body_util::BodyExt as _;
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let answer = serde_json::from_slice(&body).unwrap();
        schema::check_message(V2026_07_28, &answer);
        return answer;
    }
    let mut events = Events::of(V2026_07_28, response);
    loop {
        let message = events.message().await.unwrap();
        assert!(message.get("id").is_none() || message.get("method").is_none(), "no server asks: {message}");
        if message.get("id").is_some() {
            return message;
        }
    }
}

#[tokio::test]
async fn every_tool_works_for_requests_that_stand_alone() {
    let fixture = Fixture::start(V2026_07_28).await;
    let discovered = once(&fixture, "server/discover", json!({})).await;
    schema::check(V2026_07_28, "DiscoverResult", &discovered["result"]);
    let list = once(&fixture, "tools/list", json!({})).await;
    schema::check(V2026_07_28, "ListToolsResult", &list["result"]);
    let tools = list["result"]["tools"].as_array().unwrap();
    assert!(tools.len() > 20, "{list}");
    for tool in tools {
        if ["failing_job", "protocol_error_job"].contains(&tool["name"].as_str().unwrap()) {
            // They are for clients with tasks.
            continue;
        }
        let mut params = json!({"name": tool["name"], "arguments": arguments(tool)});
        let mut rounds = 0;
        let result = loop {
            let result = once(&fixture, "tools/call", params.clone()).await["result"].take();
            if result["resultType"] == "complete" {
                break result;
            }
            schema::check(V2026_07_28, "InputRequiredResult", &result);
            let asked = result["inputRequests"].as_object().unwrap();
            let responses = asked.iter().map(|(key, asked)| {
                (key.clone(), answer(asked["method"].as_str().unwrap(), &asked["params"]))
            });
            params["inputResponses"] = responses.collect::<serde_json::Map<_, _>>().into();
            match result.get("requestState") {
                Some(state) => params["requestState"] = state.clone(),
                None => drop(params.as_object_mut().unwrap().remove("requestState")),
            }
            rounds += 1;
            assert!(rounds < 4, "{tool}");
        };
        schema::check(V2026_07_28, "CallToolResult", &result);
        assert_eq!(result["isError"] == true, tool["name"] == "test_error_handling", "{tool}: {result}");
    }
}

#[tokio::test]
async fn what_was_given_along_counts_for_the_same_request_alone() {
    let fixture = Fixture::start(V2026_07_28).await;
    let name = "test_input_required_result_request_state";
    let asked = once(&fixture, "tools/call", json!({"name": name})).await;
    let state = asked["result"]["requestState"].as_str().unwrap().to_owned();
    let responses = json!({"confirm": {"action": "accept", "content": {"ok": true}}});
    let mut other = state.clone();
    other.insert(3, if &state[3..4] == "A" { 'B' } else { 'A' });
    for (name, state, code) in [
        (name, state.as_str(), 0),
        (name, other.as_str(), -32602),
        (name, "", -32602),
        ("test_input_required_result_tampered_state", state.as_str(), -32602),
    ] {
        let params = json!({"name": name, "inputResponses": responses, "requestState": state});
        let answer = once(&fixture, "tools/call", params).await;
        assert_eq!(answer["error"]["code"].as_i64().unwrap_or_default(), code, "{name}: {answer}");
    }
    // Another process of the same server knows it, if it has the same key.
    for (one, two, knows) in
        [(Some("key"), Some("key"), true), (Some("key"), Some("other"), false), (None, None, false)]
    {
        let with =
            |key: Option<&str>| Settings { state_key: key.map(str::to_owned), ..Settings::of(V2026_07_28) };
        let (one, two) = (Fixture::with(with(one)).await, Fixture::with(with(two)).await);
        let asked = once(&one, "tools/call", json!({"name": name})).await;
        let state = &asked["result"]["requestState"];
        let answer = once(
            &two,
            "tools/call",
            json!({"name": name, "inputResponses": responses, "requestState": state}),
        )
        .await;
        assert_eq!(answer.get("result").is_some(), knows, "{answer}");
    }
}

#[tokio::test]
async fn lists_have_pages_if_they_are_to() {
    let fixture = Fixture::with(Settings { page: Some(5), ..Settings::of(V2026_07_28) }).await;
    let (mut names, mut cursor) = (Vec::new(), json!({}));
    loop {
        let page = once(&fixture, "tools/list", cursor).await["result"].take();
        let tools = page["tools"].as_array().unwrap();
        assert!(tools.len() <= 5);
        names.extend(tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
        match page.get("nextCursor") {
            Some(next) => cursor = json!({"cursor": next}),
            None => break,
        }
    }
    let whole = Fixture::start(V2026_07_28).await;
    let all = once(&whole, "tools/list", json!({})).await["result"]["tools"].take();
    let all: Vec<_> = all.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, all);
    for wrong in ["from-1", "from-0", "from-5000", "5", ""] {
        let answer = once(&fixture, "tools/list", json!({"cursor": wrong})).await;
        assert_eq!(answer["error"]["code"], -32602, "{wrong}");
    }
}

#[tokio::test]
async fn wrong_arguments_are_an_error_of_the_protocol_until_they_are_for_the_model() {
    for revision in [V2025_03_26, V2025_06_18, V2025_11_25] {
        let fixture = Fixture::start(revision).await;
        let session = fixture.begin(json!({})).await;
        let body = request(1, "tools/call", json!({"name": "add", "arguments": {"a": "x"}})).to_string();
        let answer: Whole = fixture.whole("POST", &fixture.of(&session), body).await;
        let answer = answer.json();
        if revision < V2025_11_25 {
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
        } else {
            assert_eq!(answer["result"]["isError"], true, "{answer}");
        }
    }
}
