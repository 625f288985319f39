//! Servers and clients of HTTP+SSE that others wrote.

use longshore_sidecar_config::{Config, Upstream};
use serde_json::{Value, json};

use crate::harness::config::keys;
use crate::harness::peer::{everything, everything_over_sse, node, python, python_sse_server};
use crate::harness::recorder::Recorder;
use crate::harness::{Client, GoServer, Sidecar, config, eventually};

/// Lists, calls, reads, hears progress, answers and cancels.
const TYPESCRIPT: &str = r#"
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { CreateMessageRequestSchema, ListRootsRequestSchema } from "@modelcontextprotocol/sdk/types.js";
const [kind, url, calls, slow] = process.argv.slice(2);
const client = new Client({ name: "ts", version: "1" }, { capabilities: { sampling: {}, roots: { listChanged: true } } });
client.setRequestHandler(ListRootsRequestSchema, async () => ({ roots: [{ uri: "file:///tmp", name: "tmp" }] }));
client.setRequestHandler(CreateMessageRequestSchema, async () =>
  ({ role: "assistant", model: "m", content: { type: "text", text: "sampled" } }));
const transport = new (kind === "sse" ? SSEClientTransport : StreamableHTTPClientTransport)(new URL(url));
await client.connect(transport);
const out = { server: client.getServerVersion(), calls: [] };
out.tools = (await client.listTools()).tools;
for (const call of JSON.parse(calls)) {
  const progress = [];
  const result = await client.callTool(call, undefined, { onprogress: (p) => progress.push(p.progress) });
  out.calls.push({ result, progress });
}
const controller = new AbortController();
setTimeout(() => controller.abort("enough"), 300);
out.cancelled = await client.callTool(JSON.parse(slow), undefined, { signal: controller.signal }).then(() => "answered", () => "aborted");
out.after = await client.callTool(JSON.parse(calls)[0]);
await client.ping();
if (transport.terminateSession) await transport.terminateSession();
await client.close();
console.log(JSON.stringify(out));
"#;

fn calls() -> (String, String) {
    let calls = json!([
        {"name": "echo", "arguments": {"message": "hi"}},
        {"name": "trigger-long-running-operation", "arguments": {"duration": 0.4, "steps": 4}},
        {"name": "trigger-sampling-request", "arguments": {"prompt": "p", "maxTokens": 5}},
        {"name": "get-structured-content", "arguments": {"location": "New York"}},
    ]);
    let slow = json!({"name": "trigger-long-running-operation", "arguments": {"duration": 20, "steps": 40}});
    (calls.to_string(), slow.to_string())
}

fn use_it(kind: &str, url: &str) -> Value {
    let (calls, slow) = calls();
    node(TYPESCRIPT, &[kind, url, &calls, &slow])
}

fn before(port: u16) -> Config {
    Config { upstream: Upstream::Sse { port, path: "/sse".to_owned() }, ..config(port) }
}

#[test]
fn the_protocols_own_server() {
    let server = everything_over_sse();
    let sidecar = Sidecar::start(&before(server.port)).ready();
    let mut direct = use_it("sse", &format!("http://127.0.0.1:{}/sse", server.port));
    let heard_by = Recorder::of_clients(0, sidecar.mcp);
    let seen = use_it("http", &format!("http://127.0.0.1:{}/mcp", heard_by.port));
    // Over one stream, this client may take an answer before the progress that came in front of it.
    let heard = direct["calls"][1]["progress"].take();
    assert!(json!([1, 2, 3, 4]).as_array().unwrap().starts_with(heard.as_array().unwrap()), "{heard}");
    direct["calls"][1]["progress"] = seen["calls"][1]["progress"].clone();
    assert_eq!(seen, direct);
    assert_eq!(
        (&seen["calls"][1]["progress"], &seen["cancelled"]),
        (&json!([1, 2, 3, 4]), &json!("aborted"))
    );
    eventually("no call is left behind", || sidecar.metric("longshore_calls") == 0.0);
    assert_eq!(sidecar.metric("longshore_sessions"), 0.0);
}

/// A server that is killed ends its sessions, and those that begin when it is back work.
#[test]
fn a_python_server() {
    let mut server = python_sse_server();
    let sidecar = Sidecar::start(&before(server.port)).ready();
    let client = Client::open(&sidecar, None);
    let text = |answer: Value| answer["result"]["content"][0]["text"].clone();
    assert_eq!(text(client.call("say", json!({"text": "hi"}))), "hi");
    server.start_again();
    assert_eq!(client.send("ping", json!({})).status, 404);
    let sidecar = sidecar.ready();
    assert_eq!(text(Client::open(&sidecar, None).call("say", json!({"text": "again"}))), "again");
}

const PYTHON: &str = r#"
import asyncio, json, sys
from mcp import Client
from mcp.client.sse import sse_client

url, key = sys.argv[1:]

async def main():
    headers = {"Authorization": f"Bearer {key}"}
    async with Client(sse_client(url, headers=headers), mode="legacy") as client:
        steps = []
        async def progress(done, total, message):
            steps.append(done)
        tools = sorted(tool.name for tool in (await client.list_tools()).tools)
        echo = await client.call_tool("echo", {"text": "hi"})
        slow = await client.call_tool("slow", {"milliseconds": 300, "steps": 3}, progress_callback=progress)
        print(json.dumps({"tools": tools, "echo": echo.content[0].text, "progress": steps}))

asyncio.run(main())
"#;

/// The same client over its old transport and over the new one: it sees the same.
#[test]
fn clients_that_were_never_updated() {
    let server = everything();
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let heard_by = Recorder::of_clients(0, sidecar.mcp);
    let at = |path: &str| format!("http://127.0.0.1:{}{path}", heard_by.port);
    let (mut old, new) = (use_it("sse", &at("/sse")), use_it("http", &at("/mcp")));
    let heard = old["calls"][1]["progress"].take();
    assert!(json!([1, 2, 3, 4]).as_array().unwrap().starts_with(heard.as_array().unwrap()), "{heard}");
    old["calls"][1]["progress"] = new["calls"][1]["progress"].clone();
    assert_eq!(old, new);
    eventually("no session is left behind", || sidecar.metric("longshore_sessions") == 0.0);

    let server = GoServer::start(&[]);
    let sidecar = Sidecar::keyed(&config(server.port), &keys(&[("alice", "key-a")])).ready();
    let heard_by = Recorder::of_clients(0, sidecar.mcp);
    let url = format!("http://127.0.0.1:{}/sse", heard_by.port);
    let seen = python(PYTHON, &[&url, "key-a"]);
    assert_eq!((&seen["echo"], &seen["progress"]), (&json!("hi"), &json!([1.0, 2.0, 3.0])), "{seen}");
}

/// Both ends are of the oldest revision, and nothing between them is.
#[test]
fn an_old_client_and_an_old_server() {
    let server = everything_over_sse();
    let sidecar = Sidecar::start(&before(server.port)).ready();
    let heard = Recorder::of_clients(0, sidecar.mcp);
    let seen = use_it("sse", &format!("http://127.0.0.1:{}/sse", heard.port));
    assert_eq!(seen["cancelled"], "aborted", "{seen}");
    assert_eq!(seen["calls"].as_array().map(Vec::len), Some(4));
}
