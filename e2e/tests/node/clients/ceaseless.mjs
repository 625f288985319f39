// A client on the TypeScript SDK, second line, that calls `echo` without end until its input ends, begins anew where its
// session is gone, calls once more, ends its session, and prints what it saw as one line of JSON. Arguments: URL; how many
// milliseconds it waits after a call.
import { lookup } from "node:dns/promises";
import { setTimeout as sleep } from "node:timers/promises";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, pause] = process.argv.slice(process.argv.findIndex((argument) => argument.startsWith("http")));
// It is not stopped before it has made so many.
const LEAST = 20;
const seen = { calls: 0, errors: [], renewed: 0, told: 0, last: false, ended: null };
let stopped = false;
process.stdin.on("data", () => { stopped = true; }).on("end", () => { stopped = true; });

let transport;
const connect = async () => {
  const client = new Client({ name: "ceaseless", version: "1" });
  transport = new StreamableHTTPClientTransport(new URL(url));
  await client.connect(transport);
  return client;
};
const isGone = (error) => error?.status === 404 || error?.code === 404 || error?.data?.status === 404 || /\b404\b/.test(`${error}`);

let client;
const call = async () => {
  try {
    client ??= await connect();
    const number = seen.calls + 1;
    const result = await client.callTool({ name: "echo", arguments: { number } });
    if (result.structuredContent?.echo?.number !== number) throw new Error(`wrong answer: ${JSON.stringify(result)}`);
    seen.calls = number;
    return true;
  } catch (error) {
    if (isGone(error)) {
      seen.renewed += 1;
      seen.told += 1;
      client = undefined;
    } else if (seen.errors.length < 100) {
      seen.errors.push(`${error?.code ?? ""} ${error} ${error?.cause?.code ?? ""}`.trim());
    }
    return false;
  } finally {
    await sleep(Number(pause));
  }
};
// The cluster's DNS hears of a Service a moment after it is there, and does not look again for half a minute.
const known = () => lookup(new URL(url).hostname).then(() => true, () => false);
for (let tries = 0; tries < 300 && !(await known()); tries += 1) await sleep(200);

let late = 0;
while (!stopped || (seen.calls < LEAST && (late += 1) < 1000)) await call();
for (let tries = 0; !seen.last && tries < 100; tries += 1) seen.last = await call();
if (client) {
  const session = transport.sessionId;
  await transport.terminateSession().then(() => { seen.ended = session; }, () => {});
  await client.close();
}
console.log(JSON.stringify(seen));
process.exit(0);
