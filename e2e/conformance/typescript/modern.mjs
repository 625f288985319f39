// A server of 2026-07-28 and of nothing older, on the second line of the SDK. `--transport` is http or stdio, and
// `--listen` is a port.
import { randomBytes } from "node:crypto";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { createMcpHandler, createRequestStateCodec, inputRequired, ProtocolError, Server } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { fill, fixtures, listen, options, read, wait } from "./fixtures.mjs";

const { transport, listen: port } = options();
const have = fixtures("2026-07-28");
const codec = createRequestStateCodec({ key: randomBytes(32), ttlSeconds: 60 });

const capabilities = {
  logging: {},
  tools: { listChanged: true },
  prompts: { listChanged: true },
  resources: { subscribe: true, listChanged: true },
  completions: {},
};

/** Whoever hears that lists have changed. */
let changed = {};

/** What is still to be asked of the client, or the text of everything that it answered. */
async function ask({ rounds = [], state }, words, ctx) {
  const before = state ? (ctx.mcpReq.requestState() ?? []) : [];
  const round = before.length;
  if (round >= rounds.length) return { answers: JSON.stringify(before) };
  const given = ctx.mcpReq.inputResponses ?? {};
  const keys = Object.keys(rounds[round]);
  const answers = [...before];
  if (keys.every((key) => key in given)) {
    answers.push(Object.fromEntries(keys.map((key) => [key, given[key]])));
    if (answers.length >= rounds.length) return { answers: JSON.stringify(answers) };
  }
  const inputRequests = fill(rounds[answers.length], words);
  const requestState = state ? await codec.mint(answers) : undefined;
  return { asked: inputRequired({ inputRequests, ...(state ? { requestState } : {}) }) };
}

function newServer() {
  const options = { capabilities, requestState: { verify: codec.verify } };
  const server = new Server({ name: "typescript-2026-07-28", version: "1.0.0" }, options);
  const on = (method, handle) => server.setRequestHandler(method, handle);

  on("tools/list", () => ({ tools: have.tools.map(({ tool }) => tool) }));
  on("tools/call", async ({ params }, ctx) => {
    let found = have.tools.find(({ tool }) => tool.name === params.name);
    if (!found) throw new ProtocolError(-32602, `Unknown tool: ${params.name}`);
    for (const data of found.logs ?? []) {
      await ctx.mcpReq.log("info", data);
      await wait(50);
    }
    const progressToken = ctx.mcpReq._meta?.progressToken;
    for (const progress of found.progress ?? []) {
      if (progressToken !== undefined) {
        await ctx.mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress, total: 100 } });
      }
      // So long that a client on a busy machine can give the call up before it is over.
      await wait(200);
    }
    if (found.changed) changed[found.changed]?.(server);
    if (found.choose) {
      const can = ctx.mcpReq.envelope?.["io.modelcontextprotocol/clientCapabilities"] ?? {};
      const chosen = Object.entries(found.choose).filter(([name]) => can[name]);
      found = { ...found, rounds: [Object.assign({}, ...chosen.map(([, asks]) => asks))] };
    }
    const { asked, answers } = await ask(found, params.arguments ?? {}, ctx);
    return asked ?? fill(found.result, { answers });
  });

  on("prompts/list", () => ({ prompts: have.prompts.map(({ prompt }) => prompt) }));
  on("prompts/get", async ({ params }, ctx) => {
    const found = have.prompts.find(({ prompt }) => prompt.name === params.name);
    if (!found) throw new ProtocolError(-32602, `Unknown prompt: ${params.name}`);
    const { asked, answers } = await ask(found, {}, ctx);
    return asked ?? { messages: fill(found.messages, { ...params.arguments, answers }) };
  });

  on("resources/list", () => ({ resources: have.resources.map(({ resource }) => resource) }));
  on("resources/templates/list", () => ({ resourceTemplates: [have.template.template] }));
  on("resources/read", ({ params: { uri } }) => {
    const result = read(have, uri);
    if (!result) throw new ProtocolError(-32602, "Resource not found", { uri });
    return result;
  });
  on("completion/complete", () => ({ completion: have.completion }));
  return server;
}

if (transport === "stdio") {
  changed = { tools: (server) => server.sendToolListChanged(), prompts: (server) => server.sendPromptListChanged() };
  serveStdio(newServer, { legacy: "reject" });
} else {
  const handler = createMcpHandler(newServer, { legacy: "reject" });
  changed = { tools: () => handler.notify.toolsChanged(), prompts: () => handler.notify.promptsChanged() };
  await listen(port, toNodeHandler(handler));
}
