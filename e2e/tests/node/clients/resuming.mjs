// A client on the TypeScript SDK, second line, that hears numbered log messages while its connections break, and prints
// which it heard as one line of JSON. Arguments: URL; the tool that makes them, `notify` (in the call) or `announce` (in
// the client's own stream); its arguments.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, name, given] = process.argv.slice(process.argv.findIndex((argument) => argument.startsWith("http")));
// Whoever waits for it waits no longer.
setTimeout(() => { console.error("it is not over within five minutes"); process.exit(1); }, 300_000);
const heard = [];
let listens;
const listening = new Promise((resolve) => { listens = resolve; });
const watched = async (input, init) => {
  const response = await fetch(input, init);
  if (response.ok && (init?.method ?? "GET") === "GET") listens();
  return response;
};
const client = new Client({ name: "resuming", version: "1" });
client.setNotificationHandler("notifications/message", ({ params }) => { heard.push(params.data); });
// As often as by default, but sooner.
const reconnectionOptions = { initialReconnectionDelay: 20, maxReconnectionDelay: 1000, reconnectionDelayGrowFactor: 1.5, maxRetries: 2 };
await client.connect(new StreamableHTTPClientTransport(new URL(url), { fetch: watched, reconnectionOptions }));
if (name === "announce") await listening;
const options = { timeout: 240_000 };
const expected = JSON.parse(given);
// What comes after them says that nothing more comes of them.
for (const count of [expected.count, 1]) {
  const before = heard.length;
  await client.callTool({ name, arguments: { ...expected, count } }, options);
  const deadline = Date.now() + 60_000;
  while (heard.length < before + count && Date.now() < deadline) await new Promise((done) => setTimeout(done, 20));
}
console.log(JSON.stringify(heard));
await client.close();
process.exit(0);
