// A client on the second line of the SDK, which tries everything at servers with our fixtures: `--mode` is legacy, or
// modern for 2026-07-28 and nothing else, and `--urls` is where they are. Prints what came of each feature.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { options } from "./fixtures.mjs";
import { exploreAll } from "./explore.mjs";

const { mode, urls } = options();

await exploreAll(urls.split(" "), true, (url) => {
  const client = new Client(
    { name: "typescript-2", version: "1" },
    {
      capabilities: { sampling: {}, elicitation: {} },
      ...(mode === "modern" ? { versionNegotiation: { mode: { pin: "2026-07-28" } } } : {}),
    },
  );
  return {
    connect: () => client.connect(new StreamableHTTPClientTransport(new URL(url))),
    on: (method, answer) => client.setRequestHandler(method, answer),
    tools: async () => (await client.listTools()).tools,
    call: (call, options) => client.callTool(call, options),
    read: (uri) => client.readResource({ uri }),
    prompt: (name) => client.getPrompt({ name }),
  };
});
