// A client on the TypeScript SDK, second line, that calls `echo` without pause until its input ends, begins anew where
// its session is gone, and prints what it saw as one line of JSON. Argument: URL.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url] = process.argv.slice(1).filter((argument) => argument.startsWith("http"));
const seen = { calls: 0, errors: [], renewed: 0, told: 0 };
let stopped = false;
process.stdin.on("data", () => { stopped = true; }).on("end", () => { stopped = true; });

const connect = async () => {
  const client = new Client({ name: "ceaseless", version: "1" });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return client;
};
const isGone = (error) => error?.status === 404 || error?.code === 404 || error?.data?.status === 404 || /\b404\b/.test(`${error}`);

let client;
while (!stopped) {
  try {
    client ??= await connect();
    const number = seen.calls + 1;
    const result = await client.callTool({ name: "echo", arguments: { number } });
    if (result.structuredContent?.echo?.number !== number) throw new Error(`wrong answer: ${JSON.stringify(result)}`);
    seen.calls = number;
  } catch (error) {
    if (isGone(error)) {
      seen.renewed += 1;
      seen.told += 1;
      client = undefined;
    } else if (seen.errors.length < 100) {
      seen.errors.push(`${error?.code ?? ""} ${error} ${error?.cause?.code ?? ""}`.trim());
    }
  }
  await new Promise((resolve) => setTimeout(resolve, 5));
}
await client?.close();
console.log(JSON.stringify(seen));
process.exit(0);
