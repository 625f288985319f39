//! Servers and clients that others wrote: through the sidecar and over stdio directly, with the same result.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::config::keys;
use crate::harness::peer::{folder, inspector, node, python};
use crate::harness::recorder::Recorder;
use crate::harness::shim::{serving_keyed, stdio};
use crate::harness::{Shim, Sidecar, eventually, own};

const KEY: &str = "the-key";

/// A sidecar with a key in front of processes of this command, and who hears what clients are told.
fn guarded(command: &[String]) -> (Shim, Sidecar, Recorder) {
    let (shim, sidecar) = serving_keyed(&stdio(), &keys(&[("tester", KEY)]), command, &[]);
    let heard = Recorder::of_clients(0, sidecar.mcp);
    (shim, sidecar, heard)
}

/// Where a client finds the server: at a URL, or by starting it.
fn through(heard: &Recorder) -> String {
    json!({"url": format!("http://127.0.0.1:{}/mcp", heard.port), "key": KEY}).to_string()
}

fn directly(command: &[String]) -> String {
    json!({"command": command[0], "args": command[1..]}).to_string()
}

fn program(name: &str) -> String {
    let path: &Path = folder();
    path.join("bin").join(name).to_str().expect("text").to_owned()
}

/// Lists, calls, reads, hears progress and cancels.
const TYPESCRIPT: &str = r#"
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { CreateMessageRequestSchema, ListRootsRequestSchema } from "@modelcontextprotocol/sdk/types.js";
const [where, what] = process.argv.slice(2).map((text) => JSON.parse(text));
const client = new Client({ name: "ts", version: "1" }, { capabilities: { sampling: {}, roots: { listChanged: true } } });
let sampled = 0;
client.setRequestHandler(ListRootsRequestSchema, async () => ({ roots: [{ uri: "file:///tmp", name: "tmp" }] }));
client.setRequestHandler(CreateMessageRequestSchema, async () => {
  sampled += 1;
  return { role: "assistant", model: "m", content: { type: "text", text: "sampled" } };
});
const transport = where.url
  ? new StreamableHTTPClientTransport(new URL(where.url), { requestInit: { headers: { Authorization: `Bearer ${where.key}` } } })
  : new StdioClientTransport({ command: where.command, args: where.args, stderr: "ignore" });
await client.connect(transport);
const out = { server: client.getServerVersion(), calls: [] };
out.tools = (await client.listTools()).tools;
for (const call of what.calls) {
  const progress = [];
  const result = await client.callTool(call, undefined, { onprogress: (p) => progress.push(p.progress) });
  out.calls.push({ result, progress });
}
if (client.getServerCapabilities().resources) {
  const { resources } = await client.listResources();
  out.resources = resources.map((resource) => resource.uri);
  if (what.read) out.read = (await client.readResource({ uri: what.read })).contents.map((content) => content.mimeType);
}
if (client.getServerCapabilities().prompts) out.prompts = (await client.listPrompts()).prompts;
const controller = new AbortController();
setTimeout(() => controller.abort("enough"), 300);
out.cancelled = await client.callTool(what.slow, undefined, { signal: controller.signal }).then(() => "answered", () => "aborted");
out.after = await client.callTool(what.calls[0]);
await client.ping();
out.sampled = sampled;
if (transport.terminateSession) await transport.terminateSession();
await client.close();
console.log(JSON.stringify(out));
"#;

const PYTHON: &str = r#"
import asyncio, json, sys
import anyio, httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

where, what = map(json.loads, sys.argv[1:])

async def use(server):
    out = {"calls": []}
    async with Client(server, mode="legacy") as client:
        out["tools"] = sorted(tool.name for tool in (await client.list_tools()).tools)
        for call in what["calls"]:
            steps = []
            async def progress(done, total, message):
                steps.append(done)
            result = await client.call_tool(call["name"], call["arguments"], progress_callback=progress)
            out["calls"].append({"text": result.content[0].text, "progress": steps})
        with anyio.move_on_after(0.3) as scope:
            await client.call_tool(what["slow"]["name"], what["slow"]["arguments"])
        out["cancelled"] = scope.cancelled_caught
        call = what["calls"][0]
        out["after"] = (await client.call_tool(call["name"], call["arguments"])).content[0].text
    print(json.dumps(out))

async def main():
    if "url" in where:
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {where['key']}"}, timeout=30) as http:
            await use(streamable_http_client(where["url"], http_client=http))
    else:
        await use(StdioServerParameters(command=where["command"], args=where["args"]))

asyncio.run(main())
"#;

/// Both ways, with the same client; nothing is left of the one through the sidecar.
fn same(command: &[String], client: impl Fn(&str) -> Value) -> Value {
    let mut direct = client(&directly(command));
    let (_shim, sidecar, heard) = guarded(command);
    let seen = client(&through(&heard));
    // Over stdio, clients may take an answer before the progress that came in front of it.
    for (direct, seen) in
        direct["calls"].as_array_mut().unwrap().iter_mut().zip(seen["calls"].as_array().unwrap())
    {
        let (heard, all) = (direct["progress"].as_array().unwrap(), seen["progress"].as_array().unwrap());
        assert!(all.starts_with(heard), "{all:?} {heard:?}");
        direct["progress"] = seen["progress"].clone();
    }
    assert_eq!(seen, direct);
    eventually("no call is left behind", || sidecar.metric("longshore_calls") == 0.0);
    eventually("no process is left behind", || sidecar.metric("longshore_processes") == 1.0);
    assert_eq!(sidecar.metric("longshore_sessions"), 0.0);
    assert!(!sidecar.written().contains(KEY));
    seen
}

#[test]
fn the_protocols_own_server() {
    let command = [program("mcp-server-everything"), "stdio".to_owned()];
    let what = json!({
        "calls": [
            {"name": "echo", "arguments": {"message": "hi"}},
            {"name": "trigger-long-running-operation", "arguments": {"duration": 0.4, "steps": 4}},
            {"name": "trigger-sampling-request", "arguments": {"prompt": "p", "maxTokens": 5}},
            {"name": "get-structured-content", "arguments": {"location": "New York"}},
        ],
        "slow": {"name": "trigger-long-running-operation", "arguments": {"duration": 20, "steps": 40}},
        "read": "demo://resource/static/document/features.md",
    });
    let seen = same(&command, |place| node(TYPESCRIPT, &[place, &what.to_string()]));
    assert!(seen["tools"].as_array().unwrap().len() > 5, "{seen}");
    assert_eq!(seen["calls"][1]["progress"], json!([1, 2, 3, 4]));
    assert_eq!((&seen["sampled"], &seen["cancelled"]), (&json!(1), &json!("aborted")));
    assert_eq!(seen["read"].as_array().unwrap().len(), 1, "{seen}");
}

#[test]
fn a_go_server_with_clients_of_every_kind() {
    let command = [program("go-server"), "-stdio".to_owned()];
    let what = json!({
        "calls": [
            {"name": "echo", "arguments": {"text": "hi"}},
            {"name": "slow", "arguments": {"milliseconds": 300, "steps": 3}},
        ],
        "slow": {"name": "slow", "arguments": {"milliseconds": 20_000}},
    })
    .to_string();
    for (client, script) in [(node as fn(&str, &[&str]) -> Value, TYPESCRIPT), (python, PYTHON)] {
        let seen = same(&command, |place| client(script, &[place, &what]));
        assert_eq!(seen["calls"][1]["progress"].as_array().map(Vec::len), Some(3), "{seen}");
    }

    let (_shim, _sidecar, heard) = guarded(&command);
    let url = format!("http://127.0.0.1:{}/mcp", heard.port);
    let header = format!("Authorization: Bearer {KEY}");
    for method in [
        &["--method", "tools/list"][..],
        &["--method", "tools/call", "--tool-name", "echo", "--tool-arg", "text=hi"],
    ] {
        let there = ["--cli", &url, "--transport", "http", "--header", &header];
        let (worked, seen) = inspector(&[&there[..], method].concat());
        assert!(worked, "{seen}");
        let here = ["--cli", &command[0], &command[1]];
        let (worked, direct) = inspector(&[&here[..], method].concat());
        assert!(worked, "{direct}");
        assert_eq!(seen, direct);
    }
}

#[test]
fn an_rmcp_server() {
    let command = own::command("stdio::peers::rmcp_server::serve", &[]);
    let what = json!({
        "calls": [{"name": "say", "arguments": {"text": "hi"}}],
        "slow": {"name": "wait", "arguments": {}},
    });
    // The test program prints lines of its own around the server's, which not every client takes.
    let (_shim, sidecar, heard) = guarded(&command);
    let seen = python(PYTHON, &[&through(&heard), &what.to_string()]);
    assert_eq!(seen["tools"], json!(["say", "wait"]));
    assert_eq!((&seen["after"], &seen["cancelled"]), (&json!("hi"), &json!(true)));
    assert!(sidecar.metric("longshore_dropped_lines_total{kind=\"noise\"}") > 0.0);
}

/// A server on the Rust SDK. It is this program again.
mod rmcp_server {
    use rmcp::handler::server::wrapper::Parameters;
    use rmcp::{ServiceExt, tool, tool_router};

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

        #[tool(description = "Takes its time.")]
        async fn wait(&self) -> String {
            tokio::time::sleep(std::time::Duration::from_secs(20)).await;
            "done".to_owned()
        }
    }

    #[test]
    #[ignore = "a server, which another test runs"]
    fn serve() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = Sayer.serve(rmcp::transport::stdio()).await.unwrap();
            server.waiting().await.unwrap();
        });
        // Stdin is read by a thread that cannot be waited for.
        runtime.shutdown_background();
    }
}
