// A server with sessions, on the first line of the SDK: `--sdk` says which of its releases, by the newest revision that
// the release knows, `--transport` is http, sse or stdio, and `--listen` is a port.
import { randomUUID } from "node:crypto";
import { body, fill, fixtures, listen, options, read, wait } from "./fixtures.mjs";

const { sdk: revision, transport, listen: port } = options();
const sdk = `sdk-${revision}`;
const { Server } = await import(`${sdk}/server/index.js`);
const types = await import(`${sdk}/types.js`);
const have = fixtures(revision);

const capabilities = {
  logging: {},
  tools: { listChanged: true },
  prompts: { listChanged: true },
  resources: { subscribe: true, listChanged: true },
  ...(revision >= "2025-03-26" ? { completions: {} } : {}),
};

/** What the client answers to questions that are asked at once, as text. */
async function ask(questions, words, send) {
  const asked = Object.entries(questions).map(async ([key, request]) => [
    key,
    await send(fill(request, words), types.ResultSchema),
  ]);
  return Object.fromEntries(await Promise.all(asked));
}

function refuse(code, message, data) {
  return new types.McpError(code, message, data);
}

function newServer() {
  const server = new Server({ name: `typescript-${revision}`, version: "1.0.0" }, { capabilities });
  const on = (schema, handle) => server.setRequestHandler(schema, handle);

  on(types.ListToolsRequestSchema, () => ({ tools: have.tools.map(({ tool }) => tool) }));
  on(types.CallToolRequestSchema, async ({ params }, extra) => {
    const found = have.tools.find(({ tool }) => tool.name === params.name);
    if (!found) throw refuse(types.ErrorCode.InvalidParams, `Unknown tool: ${params.name}`);
    // What has to do with a call goes where the call's answer goes, in releases that know how to say so.
    const notify = extra.sendNotification ?? ((message) => server.notification(message));
    const send = extra.sendRequest ?? ((message, schema) => server.request(message, schema));
    for (const data of found.logs ?? []) {
      await notify({ method: "notifications/message", params: { level: "info", data } });
      await wait(50);
    }
    const progressToken = params._meta?.progressToken;
    for (const progress of found.progress ?? []) {
      if (progressToken !== undefined) {
        await notify({ method: "notifications/progress", params: { progressToken, progress, total: 100 } });
      }
      // So long that a client on a busy machine can give the call up before it is over.
      await wait(200);
    }
    if (found.changed === "tools") await server.sendToolListChanged();
    if (found.changed === "prompts") await server.sendPromptListChanged();
    let rounds = found.rounds ?? [];
    if (found.choose) {
      const can = server.getClientCapabilities() ?? {};
      rounds = [Object.assign({}, ...Object.entries(found.choose).filter(([name]) => can[name]).map(([, asks]) => asks))];
    }
    const answers = [];
    for (const round of rounds) answers.push(await ask(round, params.arguments ?? {}, send));
    return fill(found.result, { answers: JSON.stringify(answers) });
  });

  on(types.ListPromptsRequestSchema, () => ({ prompts: have.prompts.map(({ prompt }) => prompt) }));
  on(types.GetPromptRequestSchema, async ({ params }, extra) => {
    const found = have.prompts.find(({ prompt }) => prompt.name === params.name);
    if (!found) throw refuse(types.ErrorCode.InvalidParams, `Unknown prompt: ${params.name}`);
    const send = extra.sendRequest ?? ((message, schema) => server.request(message, schema));
    const answers = [];
    for (const round of found.rounds ?? []) answers.push(await ask(round, {}, send));
    return { messages: fill(found.messages, { ...params.arguments, answers: JSON.stringify(answers) }) };
  });

  on(types.ListResourcesRequestSchema, () => ({ resources: have.resources.map(({ resource }) => resource) }));
  on(types.ListResourceTemplatesRequestSchema, () => ({ resourceTemplates: [have.template.template] }));
  on(types.ReadResourceRequestSchema, ({ params: { uri } }) => {
    const result = read(have, uri);
    if (!result) throw refuse(-32002, "Resource not found", { uri });
    return result;
  });
  on(types.SubscribeRequestSchema, () => ({}));
  on(types.UnsubscribeRequestSchema, () => ({}));
  on(types.CompleteRequestSchema, () => ({ completion: have.completion }));
  on(types.SetLevelRequestSchema, () => ({}));
  return server;
}

async function http() {
  const { StreamableHTTPServerTransport } = await import(`${sdk}/server/streamableHttp.js`);
  const sessions = new Map();
  await listen(port, async (request, response) => {
    const message = request.method === "POST" ? await body(request) : undefined;
    let session = sessions.get(request.headers["mcp-session-id"]);
    if (!session) {
      if (message?.method !== "initialize") {
        response.writeHead(request.headers["mcp-session-id"] ? 404 : 400).end();
        return;
      }
      session = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => sessions.set(id, session),
      });
      session.onclose = () => sessions.delete(session.sessionId);
      await newServer().connect(session);
    }
    await session.handleRequest(request, response, message);
  });
}

async function sse() {
  const { SSEServerTransport } = await import(`${sdk}/server/sse.js`);
  const sessions = new Map();
  await listen(port, async (request, response) => {
    const { pathname, searchParams } = new URL(request.url, "http://localhost");
    if (request.method === "GET" && pathname === "/sse") {
      const session = new SSEServerTransport("/messages", response);
      sessions.set(session.sessionId, session);
      response.on("close", () => sessions.delete(session.sessionId));
      await newServer().connect(session);
      return;
    }
    const session = sessions.get(searchParams.get("sessionId"));
    if (request.method === "POST" && pathname === "/messages" && session) {
      await session.handlePostMessage(request, response);
      return;
    }
    response.writeHead(404).end();
  });
}

async function stdio() {
  const { StdioServerTransport } = await import(`${sdk}/server/stdio.js`);
  await newServer().connect(new StdioServerTransport());
}

await { http, sse, stdio }[transport]();
