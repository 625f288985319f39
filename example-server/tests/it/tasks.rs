//! Calls that outlive their request, in each of the two revisions that have them.

use longshore_mcp::revision::Revision::{V2025_11_25, V2026_07_28};
use serde_json::{Value, json};

use crate::harness::{Events, Fixture, borrowed, lone, request, within};
use crate::schema;

const RELATED: &str = "io.modelcontextprotocol/related-task";

/// A session of 2025-11-25.
struct Session {
    fixture: Fixture,
    id: String,
    next: std::cell::Cell<u64>,
}

impl Session {
    async fn begin() -> Self {
        let fixture = Fixture::start(V2025_11_25).await;
        let id = fixture.begin(json!({"elicitation": {}})).await;
        Self { fixture, id, next: std::cell::Cell::new(1) }
    }

    async fn post(&self, message: &Value) -> crate::harness::Whole {
        self.fixture.whole("POST", &self.fixture.of(&self.id), message.to_string()).await
    }

    fn request(&self, method: &str, params: Value) -> Value {
        request(self.next.replace(self.next.get() + 1), method, params)
    }

    async fn ask(&self, method: &str, params: Value) -> Value {
        let answer = self.post(&self.request(method, params)).await.json();
        schema::check_message(V2025_11_25, &answer);
        answer
    }

    /// Begins a tool as a task, and says what it is called.
    async fn task(&self, tool: &str, arguments: Value) -> String {
        let params = json!({"name": tool, "arguments": arguments, "task": {"ttl": 60_000}});
        let answer = self.ask("tools/call", params).await;
        schema::check(V2025_11_25, "CreateTaskResult", &answer["result"]);
        assert_eq!(answer["result"]["task"]["ttl"], 60_000);
        answer["result"]["task"]["taskId"].as_str().unwrap().to_owned()
    }

    async fn until(&self, task: &str, status: &str) {
        within(status, async {
            loop {
                let state = self.ask("tasks/get", json!({"taskId": task})).await["result"].take();
                schema::check(V2025_11_25, "GetTaskResult", &state);
                if state["status"] == status {
                    return;
                }
            }
        })
        .await;
    }

    /// Waits for what comes of a task, as events.
    async fn wait(&self, task: &str) -> Events {
        let message = self.request("tasks/result", json!({"taskId": task})).to_string();
        self.fixture.events("POST", &self.fixture.of(&self.id), message).await
    }
}

#[tokio::test]
async fn a_call_of_2025_11_25_becomes_a_task_if_its_client_asks_for_one() {
    let session = Session::begin().await;
    let tools = session.ask("tools/list", json!({})).await;
    schema::check(V2025_11_25, "ListToolsResult", &tools["result"]);
    let support = |name: &str| {
        let tools = tools["result"]["tools"].as_array().unwrap();
        tools.iter().find(|tool| tool["name"] == name).unwrap()["execution"]["taskSupport"].clone()
    };
    assert_eq!(support("slow_compute"), "optional");
    assert_eq!(support("failing_job"), "required");
    assert_eq!(support("greet"), Value::Null);

    let slow = session.task("slow_compute", json!({"seconds": 0.1})).await;
    let result = session.ask("tasks/result", json!({"taskId": slow})).await["result"].take();
    schema::check(V2025_11_25, "CallToolResult", &result);
    assert_eq!(result["_meta"], json!({RELATED: {"taskId": slow}}));
    session.until(&slow, "completed").await;

    let failing = session.task("failing_job", json!({})).await;
    session.until(&failing, "failed").await;
    assert_eq!(session.ask("tasks/result", json!({"taskId": failing})).await["result"]["isError"], true);
    let erring = session.task("protocol_error_job", json!({})).await;
    session.until(&erring, "failed").await;
    assert_eq!(session.ask("tasks/result", json!({"taskId": erring})).await["error"]["code"], -32602);

    let long = session.task("slow_compute", json!({"seconds": 3000})).await;
    let state = session.ask("tasks/cancel", json!({"taskId": long})).await["result"].take();
    schema::check(V2025_11_25, "CancelTaskResult", &state);
    assert_eq!(state["status"], "cancelled");

    let listed = session.ask("tasks/list", json!({})).await["result"].take();
    schema::check(V2025_11_25, "ListTasksResult", &listed);
    let names: Vec<_> = listed["tasks"].as_array().unwrap().iter().map(|task| &task["taskId"]).collect();
    assert_eq!(names, [&slow, &failing, &erring, &long]);
    for (method, params, code) in [
        ("tasks/cancel", json!({"taskId": long}), -32602),
        ("tasks/result", json!({"taskId": long}), -32602),
        ("tasks/get", json!({"taskId": "0123"}), -32602),
        ("tasks/update", json!({"taskId": slow, "inputResponses": {}}), -32601),
        ("tools/call", json!({"name": "failing_job"}), -32601),
        ("tools/call", json!({"name": "greet", "task": {}}), -32601),
    ] {
        assert_eq!(session.ask(method, params.clone()).await["error"]["code"], code, "{method} {params}");
    }
    let plain = json!({"name": "slow_compute", "arguments": {"seconds": 0}});
    assert!(session.ask("tools/call", plain).await["result"]["content"].is_array());
    let other = session.fixture.begin(json!({})).await;
    let mine = request(1, "tasks/list", json!({})).to_string();
    let listed = session.fixture.whole("POST", &session.fixture.of(&other), mine).await.json();
    assert_eq!(listed["result"]["tasks"], json!([]), "they are another session's");
}

#[tokio::test]
async fn what_a_task_of_2025_11_25_asks_goes_to_whoever_waits_for_its_result() {
    let session = Session::begin().await;
    let mut heard = session.fixture.events("GET", &session.fixture.of(&session.id), "").await;
    let task = session.task("confirm_delete", json!({"filename": "a.txt"})).await;
    session.until(&task, "input_required").await;
    // Whoever goes before it has answered leaves the question to the next.
    let mut first = session.wait(&task).await;
    let asked = first.message().await.unwrap();
    assert_eq!(asked["params"]["_meta"], json!({RELATED: {"taskId": task}}), "{asked}");
    let gone = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": session.next.get() - 1}});
    assert_eq!(session.post(&gone).await.status, 202);
    let mut events = session.wait(&task).await;
    let asked = events.message().await.unwrap();
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    let result = json!({"action": "accept", "content": {"confirm": true}});
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
    assert_eq!(session.post(&answer).await.status, 202);
    let result = events.message().await.unwrap()["result"].take();
    assert_eq!(result["content"][0]["text"], "a.txt was deleted");
    let mut states = Vec::new();
    while states.last().is_none_or(|status| status != "completed") {
        let told = heard.message().await.unwrap();
        assert_eq!(
            (&told["method"], &told["params"]["taskId"]),
            (&json!("notifications/tasks/status"), &json!(task))
        );
        states.push(told["params"]["status"].as_str().unwrap().to_owned());
    }
    assert_eq!(states, ["input_required", "working", "completed"]);
    // A client that refuses has its task fail.
    let task = session.task("multi_input", json!({})).await;
    let mut events = session.wait(&task).await;
    for _ in 0..2 {
        let asked = events.message().await.unwrap();
        let error = json!({"code": -1, "message": "no"});
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "error": error});
        assert_eq!(session.post(&answer).await.status, 202);
    }
    assert_eq!(events.message().await.unwrap()["result"]["isError"], true);
    session.until(&task, "failed").await;
}

#[tokio::test]
async fn a_call_of_2026_07_28_becomes_a_task_if_its_client_has_them() {
    let fixture = Fixture::start(V2026_07_28).await;
    let tasks = json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
    let ask = async |method: &str, params: Value, capabilities: &Value| -> Value {
        let (mut headers, body) = lone(method, params.clone(), capabilities.clone());
        headers.extend(params["taskId"].as_str().map(|task| ("mcp-name".to_owned(), task.to_owned())));
        let answer = fixture.whole("POST", &borrowed(&headers), body.to_string()).await.json();
        schema::check_message(V2026_07_28, &answer);
        answer
    };
    let begun = ask("tools/call", json!({"name": "multi_input"}), &tasks).await["result"].take();
    assert_eq!(begun["resultType"], "task");
    let name = begun["taskId"].clone();
    let get = async || ask("tasks/get", json!({"taskId": name}), &tasks).await["result"].take();
    let eventually = async |status: &str| {
        within(status, async {
            loop {
                let task = get().await;
                if task["status"] == status {
                    return task;
                }
            }
        })
        .await
    };
    let open = |task: &Value| task["inputRequests"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(open(&eventually("input_required").await), ["first", "second"]);
    let accepted = json!({"action": "accept", "content": {"name": "Ada"}});
    let update = |key: &str| json!({"taskId": name, "inputResponses": {key: accepted}});
    ask("tasks/update", update("first"), &tasks).await;
    assert_eq!(open(&get().await), ["second"]);
    ask("tasks/update", update("second"), &tasks).await;
    let task = eventually("completed").await;
    schema::check(V2026_07_28, "CallToolResult", &task["result"]);

    for (tool, arguments, cancel, status) in [
        ("failing_job", json!({}), false, "completed"),
        ("protocol_error_job", json!({}), false, "failed"),
        ("slow_compute", json!({"seconds": 3000}), true, "cancelled"),
    ] {
        let begun = ask("tools/call", json!({"name": tool, "arguments": arguments}), &tasks).await;
        let name = json!({"taskId": begun["result"]["taskId"]});
        if cancel {
            assert_eq!(ask("tasks/cancel", name.clone(), &tasks).await["result"]["resultType"], "complete");
        }
        within(status, async {
            while ask("tasks/get", name.clone(), &tasks).await["result"]["status"] != status {}
        })
        .await;
    }
    for (method, params, capabilities, code) in [
        ("tools/call", json!({"name": "failing_job"}), json!({}), -32021),
        ("tasks/get", json!({"taskId": name}), json!({}), -32021),
        ("tasks/get", json!({"taskId": "0123"}), tasks.clone(), -32602),
    ] {
        assert_eq!(ask(method, params, &capabilities).await["error"]["code"], code, "{method}");
    }
    let plain = json!({"name": "slow_compute", "arguments": {"seconds": 0}});
    assert_eq!(ask("tools/call", plain, &json!({})).await["result"]["resultType"], "complete");
}
