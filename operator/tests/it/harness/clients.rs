//! Clients that others wrote: `e2e/peers/install.sh` installs them.

#[path = "../../../../sidecar/tests/it/harness/peer/installed.rs"]
mod installed;

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::Served;
use installed::folder;

/// A program of others.
pub(crate) fn peer(name: &str) -> String {
    folder().join("bin").join(name).to_str().unwrap().to_owned()
}

/// The TypeScript SDK, as most clients in the world are. It goes through the steps and prints what came of each.
const TYPESCRIPT: &str = r#"
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
const [to, steps] = process.argv.slice(2).map((text) => JSON.parse(text));
const headers = to.key ? { Authorization: `Bearer ${to.key}` } : {};
const transport = to.url
  ? new StreamableHTTPClientTransport(new URL(to.url), { requestInit: { headers } })
  : new StdioClientTransport({ command: to.command[0], args: to.command.slice(1), stderr: "ignore" });
const client = new Client({ name: "ts", version: "1" });
await client.connect(transport);
const seen = [client.getServerVersion(), client.getInstructions() ?? null];
for (const { act, params, watch, cancel } of steps) {
  const progress = [];
  const abort = new AbortController();
  const options = {};
  // Not the last: the SDK forgets who waits for news as soon as the answer is there, and the two may come together.
  if (watch || cancel) options.onprogress = ({ progress: at, total }) => {
    if (at < total) progress.push([at, total]);
    if (cancel) abort.abort("enough");
  };
  if (cancel) options.signal = abort.signal;
  try {
    const result = act === "callTool" ? await client.callTool(params, undefined, options) : await client[act](params);
    seen.push(watch ? { result, progress } : result);
  } catch (error) {
    seen.push({ failed: cancel ? progress.length : String(error.message) });
  }
}
if (to.url) await transport.terminateSession();
await client.close();
console.log(JSON.stringify(seen));
"#;

/// The Python SDK: lists, and calls a tool with progress.
const PYTHON: &str = r#"
import asyncio, json, sys
import httpx2
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

async def main(url, key, tool, arguments):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    seen = []
    async def watch(progress, total, message):
        seen.append([progress, total])
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        async with streamable_http_client(url, http_client=http) as streams:
            async with ClientSession(streams[0], streams[1]) as session:
                await session.initialize()
                tools = [tool.name for tool in (await session.list_tools()).tools]
                result = await session.call_tool(tool, json.loads(arguments), progress_callback=watch)
                print(json.dumps({"tools": tools, "text": result.content[0].text, "progress": seen}))

asyncio.run(main(*sys.argv[1:]))
"#;

/// What the TypeScript client saw of a server that `local` serves.
pub(crate) fn typescript(to: &Served, steps: &Value) -> Value {
    node(&json!({"url": to.url, "key": to.key}), steps)
}

/// Goes the steps through `local` and with the server itself, as a process of the client's own, and compares. Over stdio
/// the client may take an answer before the news that came in front of it.
pub(crate) fn compare(to: &Served, command: &[&str], steps: &Value) -> Value {
    let mut direct = node(&json!({"command": command}), steps);
    let through = typescript(to, steps);
    for (direct, through) in
        direct.as_array_mut().into_iter().flatten().zip(through.as_array().into_iter().flatten())
    {
        if let (Some(heard), Some(all)) = (direct["progress"].as_array(), through["progress"].as_array()) {
            assert!(all.starts_with(heard), "{all:?} {heard:?}");
            direct["progress"] = through["progress"].clone();
        }
    }
    assert_eq!(through, direct);
    through
}

fn node(to: &Value, steps: &Value) -> Value {
    let mut command = Command::new(peer("node"));
    command.args(["--input-type=module", "-", &to.to_string(), &steps.to_string()]);
    command.current_dir(folder().join("typescript"));
    json(&run(command, TYPESCRIPT))
}

/// What the Python client saw.
pub(crate) fn python(to: &Served, tool: &str, arguments: &Value) -> Value {
    let mut command = Command::new(peer("python"));
    command.args(["-", &to.url, to.key.as_deref().unwrap_or_default(), tool, &arguments.to_string()]);
    json(&run(command, PYTHON))
}

/// What the Inspector printed, and whether it was content.
pub(crate) fn inspector(to: &Served, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(peer("mcp-inspector"));
    command.args(["--cli", &to.url, "--transport", "http", "--connect-timeout", "60000"]);
    if let Some(key) = &to.key {
        command.args(["--header", &format!("Authorization: Bearer {key}")]);
    }
    let output = command.args(arguments).stdin(Stdio::null()).output().expect("the Inspector");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

fn run(mut command: Command, script: &str) -> String {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}\n{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).unwrap()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text.trim()).unwrap_or_else(|error| panic!("{error}: {text}"))
}
