//! Servers and clients that others wrote, all of them through the sidecar.

use serde_json::json;

use crate::harness::config::keys;
use crate::harness::peer::{everything, inspector, node, python};
use crate::harness::recorder::Recorder;
use crate::harness::{Client, GoServer, Sidecar, config};

const KEY: &str = "the-key";

/// A sidecar with a key in front of a server.
fn guarded(port: u16) -> Sidecar {
    Sidecar::keyed(&config(port), &keys(&[("tester", KEY)])).ready()
}

/// The TypeScript SDK's first line, as most clients in the world are.
const TYPESCRIPT: &str = r#"
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CreateMessageRequestSchema, LoggingMessageNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
const [url, key, call] = process.argv.slice(2);
const client = new Client({ name: "ts", version: "1" }, { capabilities: { sampling: {} } });
let sampled = 0;
client.setRequestHandler(CreateMessageRequestSchema, async () => {
  sampled += 1;
  return { role: "assistant", model: "m", content: { type: "text", text: "sampled" } };
});
const requestInit = { headers: { Authorization: `Bearer ${key}` } };
const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit });
await client.connect(transport);
const { tools } = await client.listTools();
const progress = [];
const { name, arguments: args } = JSON.parse(call);
const result = await client.callTool({ name, arguments: args }, undefined, { onprogress: (p) => progress.push(p.progress) });
const { resources } = await client.listResources();
const { prompts } = await client.listPrompts();
await client.ping();
await transport.terminateSession();
await client.close();
console.log(JSON.stringify({ tools: tools.map((t) => t.name).sort(), result, progress, sampled, resources: resources.length, prompts: prompts.length }));
"#;

/// Its second line, which probes for the modern revision where it is told to.
const TYPESCRIPT_2: &str = r#"
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
const [url, key, mode] = process.argv.slice(2);
const client = new Client({ name: "ts2", version: "1" }, mode === "auto" ? { versionNegotiation: { mode: "auto" } } : {});
const requestInit = { headers: { Authorization: `Bearer ${key}` } };
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
const { tools } = await client.listTools();
const result = await client.callTool({ name: "echo", arguments: { text: "hi" } });
await client.close();
console.log(JSON.stringify({ tools: tools.length, result }));
"#;

const PYTHON: &str = r#"
import asyncio, json, sys
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

async def main(url, key, mode):
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=30) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:
            tools = await client.list_tools()
            result = await client.call_tool("echo", {"text": "hi"})
            print(json.dumps({"tools": len(tools.tools), "text": result.content[0].text}))

asyncio.run(main(*sys.argv[1:]))
"#;

#[test]
fn the_protocols_own_server_with_the_typescript_client() {
    let server = everything();
    let sidecar = guarded(server.port);
    let heard = Recorder::of_clients(0, sidecar.mcp);
    let url = |port: u16| format!("http://127.0.0.1:{port}/mcp");
    for call in [
        json!({"name": "echo", "arguments": {"message": "hi"}}),
        json!({"name": "trigger-long-running-operation", "arguments": {"duration": 0.4, "steps": 4}}),
        json!({"name": "trigger-sampling-request", "arguments": {"prompt": "p", "maxTokens": 5}}),
        json!({"name": "get-structured-content", "arguments": {"location": "New York"}}),
    ] {
        let call = call.to_string();
        let direct = node(TYPESCRIPT, &[&url(server.port), "", &call]);
        let through = node(TYPESCRIPT, &[&url(heard.port), KEY, &call]);
        assert_eq!(through, direct, "{call}");
        assert!(through["tools"].as_array().unwrap().len() > 5);
        if call.contains("long-running") {
            assert_eq!(through["progress"], json!([1, 2, 3, 4]));
        }
        if call.contains("sampling") {
            assert_eq!(through["sampled"], 1);
        }
    }
    // The client ended its sessions.
    assert_eq!(sidecar.metric("longshore_sessions"), 0.0);
}

#[test]
fn clients_of_every_kind_in_front_of_a_go_server() {
    let server = GoServer::start(&[]);
    let sidecar = guarded(server.port);
    let heard = Recorder::of_clients(0, sidecar.mcp);
    let url = format!("http://127.0.0.1:{}/mcp", heard.port);
    let call = json!({"name": "slow", "arguments": {"milliseconds": 300, "steps": 3}}).to_string();
    let through = node(TYPESCRIPT, &[&url, KEY, &call]);
    assert_eq!(through["progress"], json!([1, 2, 3]));
    for mode in ["legacy", "auto"] {
        let through = node(TYPESCRIPT_2, &[&url, KEY, mode]);
        assert_eq!(
            (&through["tools"], &through["result"]["content"][0]["text"]),
            (&json!(6), &json!("hi")),
            "{mode}"
        );
    }
    for mode in ["legacy", "auto"] {
        let through = python(PYTHON, &[&url, KEY, mode]);
        assert_eq!(through, json!({"tools": 6, "text": "hi"}), "{mode}");
    }

    let header = format!("Authorization: Bearer {KEY}");
    let with_key = ["--cli", &url, "--transport", "http", "--header", &header];
    let (worked, text) = inspector(&[&with_key[..], &["--method", "tools/list"]].concat());
    assert!(worked && text.contains("\"echo\""), "{text}");
    let (worked, text) = inspector(
        &[&with_key[..], &["--method", "tools/call", "--tool-name", "echo", "--tool-arg", "text=hi"]]
            .concat(),
    );
    assert!(worked && text.contains("\"hi\""), "{text}");
    let (worked, text) = inspector(&["--cli", &url, "--transport", "http", "--method", "tools/list"]);
    assert!(!worked, "{text}");
    sidecar.audit(|line| line["reason"] == "no key");
    assert!(!sidecar.written().contains(KEY));
}

#[test]
fn an_rmcp_server_serves_through_the_sidecar() {
    let server = rmcp_server::start();
    let sidecar = guarded(server.port);
    let client = Client::open(&sidecar, Some(KEY));
    assert_eq!(client.names("tools/list", "tools", "name"), ["say"]);
    let message = client.call("say", json!({"text": "hi"}));
    assert_eq!(message["result"]["content"][0]["text"], "hi");
}

/// A server on the Rust SDK, in this process.
mod rmcp_server {
    use rmcp::handler::server::wrapper::Parameters;
    use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
    use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
    use rmcp::{tool, tool_router};

    use crate::harness::recorder::Recorder;

    pub(super) struct Server {
        pub(super) port: u16,
        _heard: Recorder,
    }

    #[derive(Clone)]
    struct Sayer;

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Say {
        text: String,
    }

    #[tool_router(server_handler)]
    impl Sayer {
        #[tool(description = "Says it.")]
        fn say(&self, Parameters(Say { text }): Parameters<Say>) -> String {
            text
        }
    }

    pub(super) fn start() -> Server {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let serve = async move {
            let sessions = std::sync::Arc::new(LocalSessionManager::default());
            let service =
                StreamableHttpService::new(|| Ok(Sayer), sessions, StreamableHttpServerConfig::default());
            axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await
        };
        std::thread::spawn(move || runtime.block_on(serve));
        let heard = Recorder::at(0, port);
        Server { port: heard.port, _heard: heard }
    }
}
