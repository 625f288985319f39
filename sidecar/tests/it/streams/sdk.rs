//! The SDKs' own clients, whose connections break.

use serde_json::{Value, json};

use super::cuts::Cutter;
use crate::harness::peer::{node, python};
use crate::harness::recorder::Recorder;
use crate::harness::{GoServer, Sidecar, config};

/// It comes back by itself, with the last id that it has seen.
const TYPESCRIPT: &str = r#"
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
const [url, cut] = process.argv.slice(2);
const resumed = [];
const watched = async (input, init) => {
  const last = new Headers(init?.headers).get("last-event-id");
  const response = await fetch(input, init);
  if (last) resumed.push(response.status);
  return response;
};
const client = new Client({ name: "ts", version: "1" });
const transport = new StreamableHTTPClientTransport(new URL(url), { fetch: watched });
let changed = 0;
client.setNotificationHandler(ToolListChangedNotificationSchema, () => { changed += 1; });
await client.connect(transport);
const progress = [];
// As soon as both calls can be asked for again.
let known = false;
let isCut = false;
const breakIt = () => {
  if (isCut || !known || progress.length === 0) return;
  isCut = true;
  fetch(cut, { method: "POST" }).catch(() => {});
};
const onprogress = (p) => { progress.push(p.progress); breakIt(); };
const onresumptiontoken = () => { known = true; breakIt(); };
const call = client.callTool({ name: "slow", arguments: { milliseconds: 6000, steps: 12 } }, undefined, { onprogress });
const silent = client.callTool({ name: "slow", arguments: { milliseconds: 6000 } }, undefined, { onresumptiontoken });
const results = await Promise.all([call, silent]);
const errors = [];
for (const name of ["nope", "nope"]) await client.callTool({ name, arguments: {} }).catch((error) => errors.push(error.code));
await client.callTool({ name: "grow", arguments: { name: "new" } });
const deadline = Date.now() + 60000;
while (changed === 0 && Date.now() < deadline) await new Promise((done) => setTimeout(done, 50));
const ended = () => resumed.filter((status) => status === 204).length;
while (ended() < 2 && Date.now() < deadline) await new Promise((done) => setTimeout(done, 50));
const before = resumed.length;
await new Promise((done) => setTimeout(done, 2500));
await client.close();
console.log(JSON.stringify({ texts: results.map((result) => result.content[0].text), progress, resumed, changed, errors, quiet: resumed.length === before }));
"#;

const PYTHON: &str = r#"
import asyncio, json, sys
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

async def main(url, cut):
    async with httpx2.AsyncClient(timeout=30) as http, httpx2.AsyncClient() as other:
        async with Client(streamable_http_client(url, http_client=http), mode="legacy") as client:
            heard = asyncio.Event()
            async def progress(*_):
                heard.set()
            async def break_it():
                await heard.wait()
                try:
                    await other.post(cut)
                except httpx2.HTTPError:
                    pass
            task = asyncio.create_task(break_it())
            result = await client.call_tool("slow", {"milliseconds": 6000, "steps": 12}, progress_callback=progress)
            await task
            again = await client.call_tool("echo", {"text": "hi"})
            print(json.dumps({"texts": [result.content[0].text, again.content[0].text]}))

asyncio.run(main(*sys.argv[1:]))
"#;

fn json(text: &str) -> Value {
    serde_json::from_str(text.trim()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn clients_of_the_sdks_come_back_by_themselves() {
    let server = GoServer::start(&[]);
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let heard = Recorder::of_clients(0, sidecar.mcp);
    let cutter = Cutter::start(([127, 0, 0, 1], heard.port).into());
    cutter.unlimited();
    let url = format!("http://127.0.0.1:{}/mcp", cutter.port);
    let cut = format!("http://127.0.0.1:{}/", cutter.switch());
    let seen = json(&node(TYPESCRIPT, &[&url, &cut]));
    assert_eq!(seen["texts"], json!(["took 6000 ms", "took 6000 ms"]), "{seen}");
    let steps: Vec<_> = (1..=12).collect();
    assert_eq!(seen["progress"], json!(steps), "every one once and in order: {seen}");
    let resumed = seen["resumed"].as_array().unwrap();
    assert!(resumed.len() >= 3 && resumed.iter().all(|status| status == 200 || status == 204), "{seen}");
    assert_eq!((&seen["changed"], &seen["quiet"]), (&json!(1), &json!(true)), "{seen}");
    assert_eq!(seen["errors"].as_array().unwrap().len(), 2, "{seen}");

    let seen = json(&python(PYTHON, &[&url, &cut]));
    assert_eq!(seen["texts"], json!(["took 6000 ms", "hi"]));
}
