// A client on the first line of the SDK, which tries everything at servers with our fixtures: `--sdk` says which of its
// releases, by the newest revision that the release knows, and `--urls` where they are. Prints what came of each feature.
import { options } from "./fixtures.mjs";
import { exploreAll } from "./explore.mjs";

const { sdk: revision, urls } = options();
const sdk = `sdk-${revision}`;
const { Client } = await import(`${sdk}/client/index.js`);
const types = await import(`${sdk}/types.js`);

const asks = types.ElicitRequestSchema !== undefined;
const capabilities = { sampling: {}, ...(asks ? { elicitation: {} } : {}) };

async function transport(url) {
  if (revision === "2024-11-05") {
    const { SSEClientTransport } = await import(`${sdk}/client/sse.js`);
    return new SSEClientTransport(new URL(url.replace(/mcp$/, "sse")));
  }
  const { StreamableHTTPClientTransport } = await import(`${sdk}/client/streamableHttp.js`);
  return new StreamableHTTPClientTransport(new URL(url));
}

// The oldest looks at notifications later than at answers.
await exploreAll(urls.split(" "), asks, (url) => {
  const client = new Client({ name: `typescript-${revision}`, version: "1" }, { capabilities });
  return {
    connect: async () => client.connect(await transport(url)),
    on: (method, answer) => {
      const schema = { "sampling/createMessage": types.CreateMessageRequestSchema, "elicitation/create": types.ElicitRequestSchema };
      client.setRequestHandler(schema[method], answer);
    },
    tools: async () => (await client.listTools()).tools,
    call: (call, options) => client.callTool(call, undefined, options),
    read: (uri) => client.readResource({ uri }),
    prompt: (name) => client.getPrompt({ name }),
  };
}, revision === "2024-11-05");
