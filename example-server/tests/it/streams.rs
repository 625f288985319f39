//! Streams: what belongs to no call, what breaks off, what is listened to.

use longshore_mcp::revision::Revision::{
    self, V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28,
};
use serde_json::{Value, json};

use crate::harness::{Events, Fixture, borrowed, initialize, lone, request};
use crate::schema;

async fn call(fixture: &Fixture, session: &str, id: u64, name: &str, arguments: Value) -> Value {
    let body = request(id, "tools/call", json!({"name": name, "arguments": arguments})).to_string();
    fixture.whole("POST", &fixture.of(session), body).await.json()
}

#[tokio::test]
async fn sessions_hear_of_changes_in_one_stream() {
    for revision in [V2025_03_26, V2025_06_18, V2025_11_25] {
        let fixture = Fixture::start(revision).await;
        let session = fixture.begin(json!({})).await;
        let headers = fixture.of(&session);
        let mut events = fixture.events("GET", &headers, "").await;
        if revision == V2025_11_25 {
            assert_eq!(events.event().await, Some(None), "an event with an id and without a message");
            assert!(events.last.is_some());
        }
        assert_eq!(fixture.whole("GET", &headers, "").await.status, 409, "one stream at a time");
        let uri = json!({"uri": "test://watched-resource"});
        for (id, name, expected) in [
            (1, "test_trigger_tool_change", "notifications/tools/list_changed"),
            (2, "test_trigger_prompt_change", "notifications/prompts/list_changed"),
            (3, "test_trigger_resource_change", "notifications/resources/list_changed"),
        ] {
            call(&fixture, &session, id, name, json!({})).await;
            assert_eq!(events.message().await.unwrap()["method"], expected);
        }
        let subscribe = |id, method: &str| request(id, method, uri.clone()).to_string();
        call(&fixture, &session, 4, "test_trigger_resource_update", uri.clone()).await;
        fixture.whole("POST", &headers, subscribe(5, "resources/subscribe")).await;
        call(&fixture, &session, 6, "test_trigger_resource_update", uri.clone()).await;
        let updated = events.message().await.unwrap();
        assert_eq!(updated["params"], uri, "the first came before anybody had subscribed: {updated}");
        fixture.whole("POST", &headers, subscribe(7, "resources/unsubscribe")).await;
        call(&fixture, &session, 8, "test_trigger_resource_update", uri.clone()).await;
        call(&fixture, &session, 9, "test_trigger_tool_change", json!({})).await;
        assert_eq!(events.message().await.unwrap()["method"], "notifications/tools/list_changed");

        // Whoever comes back gets what came since.
        let after = events.last.clone().unwrap();
        drop(events);
        call(&fixture, &session, 10, "test_trigger_prompt_change", json!({})).await;
        let again = [&headers[..], &[("last-event-id", after.as_str())]].concat();
        let mut events = fixture.events("GET", &again, "").await;
        assert_eq!(events.message().await.unwrap()["method"], "notifications/prompts/list_changed");
        for unknown in ["7777-1", "x", "0-7777"] {
            let headers = [&headers[..], &[("last-event-id", unknown)]].concat();
            assert_eq!(fixture.whole("GET", &headers, "").await.status, 400, "{unknown}");
        }
        fixture.whole("DELETE", &headers, "").await;
        assert_eq!(events.message().await, None, "the stream ends with its session");
        fixture.stop().await;
    }
}

#[tokio::test]
async fn an_answer_waits_for_a_client_that_was_hung_up_on() {
    let fixture = Fixture::start(V2025_11_25).await;
    let session = fixture.begin(json!({})).await;
    let headers = fixture.of(&session);
    let body = request(1, "tools/call", json!({"name": "test_reconnection"})).to_string();
    let mut events = fixture.events("POST", &headers, body).await;
    while let Some(event) = events.event().await {
        assert_eq!(event, None, "no message yet");
    }
    assert!(events.retry.is_some());
    let again = [&headers[..], &[("last-event-id", events.last.as_deref().unwrap())]].concat();
    let mut events = fixture.events("GET", &again, "").await;
    assert_eq!(events.message().await.unwrap()["id"], 1);
    assert_eq!(events.message().await, None);
}

#[tokio::test]
async fn a_client_of_a_session_that_goes_has_not_cancelled() {
    let fixture = Fixture::start(V2025_06_18).await;
    let session = fixture.begin(json!({})).await;
    let headers = fixture.of(&session);
    let params = json!({"name": "countdown", "arguments": {"seconds": 0.8}, "_meta": {"progressToken": "p"}});
    let mut events = fixture.events("POST", &headers, request(1, "tools/call", params).to_string()).await;
    assert_eq!(events.message().await.unwrap()["params"]["progressToken"], "p");
    let after = events.last.clone().unwrap();
    drop(events);
    let again = [&headers[..], &[("last-event-id", after.as_str())]].concat();
    let mut events = fixture.events("GET", &again, "").await;
    let mut last = Value::Null;
    while let Some(message) = events.message().await {
        last = message;
    }
    assert_eq!(last["id"], 1);
}

/// 9: a request is never just accepted.
#[tokio::test]
async fn what_is_cancelled_gets_a_response_with_nothing_in_it() {
    for revision in [V2025_03_26, V2025_06_18, V2025_11_25] {
        let fixture = Fixture::start(revision).await;
        let session = fixture.begin(json!({})).await;
        let headers = fixture.of(&session);
        let params = json!({"name": "countdown", "arguments": {"seconds": 3000}});
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
        let body = request(1, "tools/call", params).to_string();
        let mut call = std::pin::pin!(fixture.whole("POST", &headers, body));
        let response = loop {
            // As long as the server has not taken the call, this is about nothing.
            tokio::select! {
                response = &mut call => break response,
                told = fixture.whole("POST", &headers, cancel.to_string()) => assert_eq!(told.status, 202),
            }
        };
        assert_eq!((response.status, response.text.as_str()), (200, ""), "{revision}");
        assert_eq!(response.headers["content-type"], "text/event-stream", "{revision}");
    }
}

#[tokio::test]
async fn listeners_hear_what_they_asked_for() {
    let fixture = Fixture::start(V2026_07_28).await;
    let wanted = json!({"promptsListChanged": true, "resourceSubscriptions": ["test://watched-resource"]});
    let (headers, mut body) = lone("subscriptions/listen", json!({"notifications": wanted}), json!({}));
    body["id"] = "mine".into();
    let mut events = fixture.events("POST", &borrowed(&headers), body.to_string()).await;
    let first = events.message().await.unwrap();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"], wanted);
    for (name, arguments) in [
        ("test_trigger_tool_change", json!({})),
        ("test_trigger_prompt_change", json!({})),
        ("test_trigger_resource_update", json!({"uri": "test://static-text"})),
        ("test_trigger_resource_update", json!({"uri": "test://watched-resource"})),
    ] {
        let (headers, body) = lone("tools/call", json!({"name": name, "arguments": arguments}), json!({}));
        assert_eq!(fixture.whole("POST", &borrowed(&headers), body.to_string()).await.status, 200);
    }
    let tag =
        |message: &Value| message.pointer("/params/_meta/io.modelcontextprotocol~1subscriptionId").cloned();
    for expected in ["notifications/prompts/list_changed", "notifications/resources/updated"] {
        let message = events.message().await.unwrap();
        assert_eq!((message["method"].as_str(), tag(&message)), (Some(expected), Some(json!("mine"))));
        assert_eq!(events.last, None, "no ids");
    }
    let (end, stopped) = tokio::join!(events.message(), fixture.stop());
    let () = stopped;
    let end = end.unwrap();
    assert_eq!((&end["id"], &end["result"]["resultType"]), (&json!("mine"), &json!("complete")));
    schema::check(V2026_07_28, "SubscriptionsListenResult", &end["result"]);
}

#[tokio::test]
async fn http_with_sse_is_a_stream_and_an_endpoint() {
    let fixture = Fixture::start(V2024_11_05).await;
    let accept = [("accept", "text/event-stream")];
    let response = fixture.send("GET", "/sse", &accept, "").await;
    let mut events = Events::of(V2024_11_05, response);
    // The data of the first event is no message.
    let endpoint = events.endpoint().await;
    let post = async |path: &str, body: &Value| {
        let headers = [("content-type", "application/json")];
        fixture.send("POST", path, &headers, body.to_string()).await.status().as_u16()
    };
    assert_eq!(post(&endpoint, &request(1, "tools/list", json!({}))).await, 400, "before the handshake");
    let wrong = request(2, "initialize", json!({"protocolVersion": "2024-11-05"}));
    assert_eq!(post(&endpoint, &wrong).await, 202);
    let refusal = events.message().await.unwrap();
    assert_eq!((&refusal["id"], &refusal["error"]["code"]), (&json!(2), &json!(-32602)), "{refusal}");
    assert_eq!(post(&endpoint, &initialize(V2025_11_25, json!({"sampling": {}}))).await, 202);
    let hello = events.message().await.unwrap();
    assert_eq!(hello["result"]["protocolVersion"], "2024-11-05");
    schema::check(V2024_11_05, "InitializeResult", &hello["result"]);
    assert_eq!(post(&endpoint, &json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await, 202);
    let batch = json!([request(2, "ping", json!({}))]);
    assert_eq!(post(&endpoint, &batch).await, 400, "no batches");
    let asking = request(3, "tools/call", json!({"name": "test_sampling", "arguments": {"prompt": "x"}}));
    assert_eq!(post(&endpoint, &asking).await, 202);
    let asked = events.message().await.unwrap();
    let content = json!({"type": "text", "text": "Paris"});
    let answer = json!({"role": "assistant", "content": content, "model": "m"});
    assert_eq!(post(&endpoint, &json!({"jsonrpc": "2.0", "id": asked["id"], "result": answer})).await, 202);
    let answered = events.message().await.unwrap();
    assert_eq!(answered["result"]["content"][0]["text"], "LLM response: Paris");
    for tool in call_list(&mut events, &post, &endpoint).await {
        let name = tool["name"].as_str().unwrap();
        assert!(
            !name.contains("elicitation") && !name.contains("audio") && tool.get("title").is_none(),
            "{tool}"
        );
    }
    assert_eq!(post("/messages?sessionId=0123", &asking).await, 404);
    assert_eq!(post("/messages", &asking).await, 400);
    for (method, path) in [("POST", "/sse"), ("GET", "/messages")] {
        assert_eq!(fixture.send(method, path, &accept, "").await.status(), 405, "{method} {path}");
    }
    let evil = [accept[0], ("origin", "http://evil.example")];
    assert_eq!(fixture.send("GET", "/sse", &evil, "").await.status(), 403);
    drop(events);
    crate::harness::within("the session ends with its stream", async {
        while post(&endpoint, &asking).await != 404 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn call_list(
    events: &mut Events,
    post: &impl AsyncFn(&str, &Value) -> u16,
    endpoint: &str,
) -> Vec<Value> {
    assert_eq!(post(endpoint, &request(4, "tools/list", json!({}))).await, 202);
    let list = events.message().await.unwrap();
    schema::check(V2024_11_05, "ListToolsResult", &list["result"]);
    list["result"]["tools"].as_array().unwrap().clone()
}

#[tokio::test]
async fn each_transport_has_its_revisions() {
    let server = |revision: Revision| {
        longshore_example_server::Server::new(&longshore_example_server::Settings::of(revision))
    };
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let never = std::future::pending::<()>;
    let refused = longshore_example_server::over_http(server(V2024_11_05), address, drop, never()).await;
    assert!(refused.unwrap_err().to_string().contains("--transport sse"));
    let refused = longshore_example_server::over_sse(server(V2025_03_26), address, drop, never()).await;
    assert!(refused.unwrap_err().to_string().contains("--transport http"));
}
