// A client on the TypeScript SDK: lists everything, calls a tool, reads a resource, gets a prompt, and prints what it
// saw as one line of JSON. Arguments: the SDK's line (1 or 2), URL, API key (may be empty).
const [line, url, key] = process.argv.slice(2);
const sdk = { 1: "@modelcontextprotocol/sdk/client", 2: "@modelcontextprotocol/client" }[line];
const { Client } = await import(line === "1" ? `${sdk}/index.js` : sdk);
const { StreamableHTTPClientTransport } = await import(line === "1" ? `${sdk}/streamableHttp.js` : sdk);
const headers = key ? { Authorization: `Bearer ${key}` } : {};
const client = new Client({ name: `typescript-${line}`, version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));

const { tools } = await client.listTools();
const { resources } = await client.listResources();
const { prompts } = await client.listPrompts();
const echo = await client.callTool({ name: "echo", arguments: { message: "hello" } });
const resource = resources.length ? await client.readResource({ uri: resources[0].uri }) : { contents: [] };
const prompt = prompts.some((it) => it.name === "simple-prompt") ? await client.getPrompt({ name: "simple-prompt" }) : { messages: [] };
const server = client.getServerVersion().name;
await client.close();
console.log(JSON.stringify({
  server,
  tools: tools.map((it) => it.name),
  resources: resources.length,
  prompts: prompts.map((it) => it.name),
  echo: echo.content[0].text,
  contents: resource.contents.length,
  messages: prompt.messages.length,
}));
