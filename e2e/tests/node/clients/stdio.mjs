// A client on the TypeScript SDK that works through a plan, against a URL or against a program over stdio, and prints
// what it saw as one line of JSON. Arguments: the SDK's line (1 or 2); `{"url"}` or `{"command"}`; the plan.
const [line, target, plan] = process.argv.slice(2).map((argument) => JSON.parse(argument));
const sdk = { 1: "@modelcontextprotocol/sdk/client", 2: "@modelcontextprotocol/client" }[line];
const { Client } = await import(line === 1 ? `${sdk}/index.js` : sdk);
const { StreamableHTTPClientTransport } = await import(line === 1 ? `${sdk}/streamableHttp.js` : sdk);
const { StdioClientTransport } = await import(line === 1 ? `${sdk}/stdio.js` : `${sdk}/stdio`);

const client = new Client({ name: `typescript-${line}`, version: "1" });
await client.connect(target.url
  ? new StreamableHTTPClientTransport(new URL(target.url))
  : new StdioClientTransport({ command: target.command, stderr: "ignore" }));
const call = (params, options) => line === 1 ? client.callTool(params, undefined, options) : client.callTool(params, options);
const offers = client.getServerCapabilities();
const seen = { tools: (await client.listTools()).tools, resources: [], prompts: [], results: [], progress: [] };

for (const params of plan.calls) seen.results.push(await call(params));
if (offers.resources) {
  seen.resources = (await client.listResources()).resources;
  if (seen.resources.length) seen.contents = await client.readResource({ uri: seen.resources[0].uri });
}
if (offers.prompts) seen.prompts = (await client.listPrompts()).prompts;
if (plan.prompt) seen.prompt = await client.getPrompt(plan.prompt);
if (plan.progress) {
  const onprogress = ({ progress, total }) => seen.progress.push([progress, total]);
  seen.results.push(await call(plan.progress, { onprogress }));
}
if (plan.cancel) {
  // As soon as it is known to be under way.
  const controller = new AbortController();
  const onprogress = () => controller.abort("the client has changed its mind");
  const cancelled = call(plan.cancel, { onprogress, signal: controller.signal });
  seen.cancelled = await cancelled.then(() => false, () => true);
  seen.results.push(await call(plan.calls[0]));
}
await client.close();
console.log(JSON.stringify(seen));
