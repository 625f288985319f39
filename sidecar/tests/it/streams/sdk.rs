//! The SDKs' own clients, whose connections break.

use std::net::TcpListener;

use rustix::process::Signal;
use serde_json::json;

use super::cuts::Cutter;
use crate::conformance::suite;
use crate::harness::peer::{free_port, node, node_in, python};
use crate::harness::recorder::Recorder;
use crate::harness::{Files, GoServer, Sidecar, config};

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

/// It listens, its sidecar ends in one way or another, and it is to hear what is said after that. It may have a call under
/// way that it can come back to.
const LISTENING: &str = r#"
const [sdk, url, end, calls] = process.argv.slice(2);
const { Client } = await import(`${sdk}/client/index.js`);
const { StreamableHTTPClientTransport } = await import(`${sdk}/client/streamableHttp.js`);
const { ToolListChangedNotificationSchema } = await import(`${sdk}/types.js`);
let streams = 0;
let anew = 0;
let over = 0;
const watched = async (input, init) => {
  const response = await fetch(input, init);
  if (init?.method === "GET" && response.status === 200) streams += 1;
  if (init?.method === "GET" && !new Headers(init.headers).has("last-event-id")) anew += 1;
  if (init?.method === "GET" && response.status === 204) over += 1;
  return response;
};
const client = new Client({ name: "ts", version: "1" });
// As often as it takes: to start a sidecar again takes its time on a busy machine.
const reconnectionOptions = { initialReconnectionDelay: 300, maxReconnectionDelay: 1000, reconnectionDelayGrowFactor: 1, maxRetries: 200 };
const transport = new StreamableHTTPClientTransport(new URL(url), { fetch: watched, reconnectionOptions });
let changed = 0;
client.setNotificationHandler(ToolListChangedNotificationSchema, () => { changed += 1; });
await client.connect(transport);
const deadline = Date.now() + 90000;
const until = async (it) => {
  while (!it() && Date.now() < deadline) await new Promise((done) => setTimeout(done, 50));
};
await until(() => streams > 0);
let known = false;
const onresumptiontoken = () => { known = true; };
const call = calls && client.callTool({ name: "slow", arguments: { milliseconds: 50000 } }, undefined, { onresumptiontoken });
const error = call && call.then(() => "none", (error) => error.code);
if (calls) await until(() => known);
const before = streams;
fetch(end, { method: "POST" }).catch(() => {});
const code = await error;
await until(() => streams > before + (calls ? 1 : 0));
const again = streams > before;
if (calls) {
  await until(() => over > 0 || anew > 1);
  await new Promise((done) => setTimeout(done, 2500));
}
// Until it is heard of: a sidecar that ends may let go of its clients just then.
const told = calls ? 2 : 1;
for (let name = 0; changed < told && Date.now() < deadline; name += 1) {
  await client.callTool({ name: "grow", arguments: { name: `new-${name}` } }).catch(() => {});
  await new Promise((done) => setTimeout(done, 500));
}
await transport.terminateSession().catch(() => {});
await client.close();
console.log(JSON.stringify({ code, again, changed: Math.min(changed, told), anew, over: calls ? over : 0 }));
process.exit(0);
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

#[test]
fn clients_of_the_sdks_come_back_by_themselves() {
    let server = GoServer::start(&[]);
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let heard = Recorder::of_clients(0, sidecar.mcp);
    let cutter = Cutter::start(([127, 0, 0, 1], heard.port).into());
    cutter.unlimited();
    let url = format!("http://127.0.0.1:{}/mcp", cutter.port);
    let cut = format!("http://127.0.0.1:{}/", cutter.switch());
    let seen = node(TYPESCRIPT, &[&url, &cut]);
    assert_eq!(seen["texts"], json!(["took 6000 ms", "took 6000 ms"]), "{seen}");
    let steps: Vec<_> = (1..=12).collect();
    assert_eq!(seen["progress"], json!(steps), "every one once and in order: {seen}");
    let resumed = seen["resumed"].as_array().unwrap();
    assert!(resumed.len() >= 3 && resumed.iter().all(|status| status == 200 || status == 204), "{seen}");
    assert_eq!((&seen["changed"], &seen["quiet"]), (&json!(1), &json!(true)), "{seen}");
    assert_eq!(seen["errors"].as_array().unwrap().len(), 2, "{seen}");

    let seen = python(PYTHON, &[&url, &cut]);
    assert_eq!(seen["texts"], json!(["took 6000 ms", "hi"]));
}

/// Many give up their session, or what they listen to, at an answer that they do not expect, and those of earlier revisions
/// at a stream that ends in good order.
#[test]
fn clients_of_the_sdks_hear_what_is_said_after_their_sidecar_ended() {
    let folder = suite::folder().join("typescript");
    for (sdk, signal, calls) in [
        ("sdk-2025-11-25", Signal::KILL, true),
        ("sdk-2025-06-18", Signal::KILL, false),
        ("sdk-2025-06-18", Signal::TERM, false),
    ] {
        let server = GoServer::start(&[]);
        let files = Files::new();
        files.write(&config(server.port));
        let mcp = format!("127.0.0.1:{}", free_port());
        let address = mcp.clone();
        let start = move |files: std::sync::Arc<Files>| {
            let flags = ["--pod-uid", "pod-1", "--pod-ip", "127.0.0.1", "--drain-minimum-ms", "300"];
            Sidecar::with(files, &[&flags[..], &["--mcp-addr", &address]].concat()).loaded().ready()
        };
        let sidecar = start(files.into());
        let switch = TcpListener::bind("127.0.0.1:0").unwrap();
        let end = format!("http://{}/", switch.local_addr().unwrap());
        let restarted = std::thread::spawn(move || {
            switch.accept().unwrap();
            sidecar.signal(signal);
            sidecar.wait(std::time::Duration::from_secs(30));
            let files = sidecar.files.clone();
            drop(sidecar);
            start(files)
        });
        let url = format!("http://{mcp}/mcp");
        let arguments = [sdk, &url, &end, if calls { "calls" } else { "" }];
        let seen = node_in(&folder, LISTENING, &arguments);
        let told = if calls { 2 } else { 1 };
        let code = if calls { json!(-32603) } else { json!("") };
        // Its call is over, and it opens no second stream beside its own.
        let (anew, over) = (seen["anew"].clone(), if calls { 1 } else { 0 });
        let expected = json!({"code": code, "again": true, "changed": told, "anew": anew, "over": over});
        assert_eq!(seen, expected, "{sdk} {signal:?}");
        assert!(!calls || anew == 1, "{sdk}: {seen}");
        drop(restarted.join().unwrap());
    }
}
