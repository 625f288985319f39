//! Servers over stdin and stdout, all of them others': each session a process of its own, started by the shim in the
//! server's container and served by the sidecar in its own, which has another user.

mod clients;
mod failing;
mod killed;

use longshore_e2e::images;
use longshore_e2e::testing::Namespace;
use serde_json::{Value, json};

use self::clients::{Clients, everyone};
use crate::STAGE;
use crate::server::{GO_IMAGE, becomes, restrict, url_that_leads_there};

const NODE_IMAGE: &str = "localhost/mcp-server-everything:2026.8.31";
const PYTHON_IMAGE: &str = "localhost/mcp-servers-python:2026.10.19";
const EXAMPLE: &str = include_str!("../../../examples/stdio.yaml");

/// A server, and what clients do with it.
struct Server {
    name: &'static str,
    image: String,
    command: &'static [&'static str],
    plan: Value,
}

fn servers() -> Vec<Server> {
    vec![
        Server {
            name: "everything",
            image: NODE_IMAGE.to_owned(),
            command: &[
                "node",
                "/app/node_modules/@modelcontextprotocol/server-everything/dist/index.js",
                "stdio",
            ],
            plan: json!({
                "calls": [
                    {"name": "echo", "arguments": {"message": "h\u{e9}llo\n\u{2028}"}},
                    {"name": "get-sum", "arguments": {"a": 1, "b": 2}},
                    {"name": "get-tiny-image", "arguments": {}},
                ],
                "prompt": {"name": "simple-prompt"},
                "progress": {"name": "trigger-long-running-operation", "arguments": {"duration": 2, "steps": 4}},
                "steps": [1.0, 2.0, 3.0, 4.0],
            }),
        },
        Server {
            name: "filesystem",
            image: NODE_IMAGE.to_owned(),
            command: &[
                "node",
                "/app/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js",
                "/tmp",
                "/etc",
            ],
            plan: json!({
                "calls": [
                    {"name": "list_allowed_directories", "arguments": {}},
                    {"name": "write_file", "arguments": {"path": "/tmp/note", "content": "a note\n"}},
                    {"name": "read_text_file", "arguments": {"path": "/tmp/note"}},
                    {"name": "read_text_file", "arguments": {"path": "/etc/debian_version"}},
                    {"name": "read_text_file", "arguments": {"path": "/proc/version"}},
                ],
            }),
        },
        Server {
            name: "time",
            image: PYTHON_IMAGE.to_owned(),
            command: &["python3", "-m", "mcp_server_time"],
            plan: json!({
                "calls": [
                    {"name": "convert_time", "arguments": {
                        "source_timezone": "Etc/UTC", "time": "12:00", "target_timezone": "Asia/Tokyo",
                    }},
                    {"name": "get_current_time", "arguments": {"timezone": "Nowhere/AtAll"}},
                ],
            }),
        },
        Server {
            name: "git",
            image: PYTHON_IMAGE.to_owned(),
            command: &["python3", "-m", "mcp_server_git", "--repository", "/srv/repository"],
            plan: json!({
                "calls": [
                    {"name": "git_log", "arguments": {"repo_path": "/srv/repository"}},
                    {"name": "git_status", "arguments": {"repo_path": "/srv/repository"}},
                    {"name": "git_status", "arguments": {"repo_path": "/srv/elsewhere"}},
                ],
            }),
        },
        Server {
            name: "go",
            image: GO_IMAGE.to_owned(),
            command: &["/go-server", "-stdio"],
            plan: json!({
                "calls": [
                    {"name": "echo", "arguments": {"text": "hello"}},
                    {"name": "add", "arguments": {"a": 1.5, "b": 2}},
                    {"name": "fail", "arguments": {}},
                ],
                "prompt": {"name": "greet", "arguments": {"name": "Ada"}},
                "progress": {"name": "slow", "arguments": {"milliseconds": 2000, "steps": 4}},
                "steps": [1.0, 2.0, 3.0, 4.0],
                "cancel": {"name": "slow", "arguments": {"milliseconds": 60_000, "steps": 600}},
            }),
        },
        // On the Rust SDK; its image is called by what is in it.
        Server {
            name: "example",
            image: images::longshore().expect("the images are made").operator.reference,
            command: &["/longshore", "example-server", "--transport", "stdio"],
            plan: json!({
                "calls": [
                    {"name": "echo", "arguments": {"message": "hello"}},
                    {"name": "add", "arguments": {"a": 1.5, "b": 2}},
                    {"name": "add", "arguments": {"a": 1}},
                ],
                "prompt": {"name": "greet", "arguments": {"name": "Ada"}},
                "progress": {"name": "countdown", "arguments": {"seconds": 0.6}},
                "steps": [0.25, 0.5],
            }),
        },
    ]
}

/// A manifest of a stdio server for everybody.
fn manifest(name: &str, image: &str, command: &[&str]) -> String {
    format!(
        "apiVersion: longshore.dev/v1alpha1
kind: McpServer
metadata: {{name: {name}}}
spec:
  source: {{image: '{image}', command: {command:?}}}
  transport: {{stdio: {{}}}}
  auth: {{none: {{}}}}
  access: {{rules: [{{name: all, tools: ['*'], prompts: ['*'], resources: ['*']}}]}}
"
    )
}

/// What every client sees of every server is what it sees when it starts the same program itself, in the same container.
#[test]
fn clients_see_what_they_see_of_the_program_itself() {
    let servers = servers();
    STAGE.with_namespace_first(async |namespace| {
        restrict(namespace).await;
        let manifests: Vec<_> =
            servers.iter().map(|server| manifest(server.name, &server.image, server.command)).collect();
        namespace.apply(&manifests.join("---\n")).await;
        let clients = Clients::new(namespace);
        for server in &servers {
            let ready = becomes(namespace, server.name, ("Ready", "True", "Ready")).await;
            let url = url_that_leads_there(namespace, &ready).await;
            let program = clients.program(server.name, server.command);
            for client in everyone() {
                let mut through = clients.ask(client, &json!({"url": url}), &server.plan);
                let mut directly = clients.ask(client, &json!({"command": program}), &server.plan);
                as_planned(&mut through, &server.plan, 1);
                as_planned(&mut directly, &server.plan, usize::MAX);
                assert_eq!(through, directly, "{} by {client:?}", server.name);
            }
            clients.inspect(server.name, &url, &program, &server.plan);
        }
        all_were_told_of_the_cancellation(namespace).await;
    });
}

/// That both see the same is no proof that either sees anything. Takes out what cannot be compared: some clients miss a
/// notification that comes right before the result; over stdio, all that come while something else holds them up. So many
/// steps may be missing at the end.
fn as_planned(seen: &mut Value, plan: &Value, missed: usize) {
    let progress = seen["progress"].take();
    assert!(seen["tools"].as_array().is_some_and(|tools| !tools.is_empty()), "{seen}");
    if let Some(expected) = plan["steps"].as_array() {
        let steps: Vec<_> = progress.as_array().into_iter().flatten().map(|step| step[0].as_f64()).collect();
        let expected: Vec<_> = expected.iter().map(Value::as_f64).collect();
        let least = expected.len().saturating_sub(missed);
        assert!(expected.starts_with(&steps) && steps.len() >= least, "{progress}");
    }
    if plan["cancel"].is_object() {
        assert_eq!(seen["cancelled"], true, "{seen}");
    }
    let calls = plan["calls"].as_array().map_or(0, Vec::len);
    assert!(seen["results"].as_array().is_some_and(|results| results.len() >= calls), "{seen}");
}

/// The server itself says so in its log, with the number of the process that the shim gave it. Processes that clients
/// started themselves have another log.
async fn all_were_told_of_the_cancellation(namespace: &Namespace<'_>) {
    let log = namespace.kubectl(&["logs", "deploy/go", "-c", "server"]).await.expect("there is a log");
    let told =
        log.lines().filter(|line| line.starts_with('[') && line.ends_with("] slow: cancelled")).count();
    assert_eq!(told, everyone().len(), "{log}");
}

/// The example, as somebody would apply it.
#[test]
fn the_example_is_served() {
    STAGE.with_namespace(async |namespace| {
        namespace.apply(EXAMPLE).await;
        let shown = becomes(namespace, "git", ("Ready", "True", "Ready")).await;
        let tools = shown.status.and_then(|status| status.tools).expect("it has tools");
        assert!(tools.count > 5, "{tools:?}");
    });
}
