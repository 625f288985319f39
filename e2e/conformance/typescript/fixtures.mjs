// What every server here offers: ../fixtures.json, as the revision knows it.
import { readFileSync } from "node:fs";

const all = JSON.parse(readFileSync(new URL("../fixtures.json", import.meta.url), "utf8"));
const known = (revision) => (entry) => entry.since <= revision;

/** The fixtures that a server of this revision has. */
export function fixtures(revision) {
  return { ...all, tools: all.tools.filter(known(revision)), prompts: all.prompts.filter(known(revision)) };
}

/** A value with every `{name}` in its texts filled in. */
export function fill(value, words) {
  if (typeof value === "string") return value.replace(/\{(\w+)\}/g, (whole, word) => words[word] ?? whole);
  if (Array.isArray(value)) return value.map((item) => fill(item, words));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, fill(item, words)]));
}

/** What a resource of this URI holds, or nothing. */
export function read({ resources, template }, uri) {
  const found = resources.find(({ resource }) => resource.uri === uri);
  if (found) return { contents: [found.contents] };
  const { prefix, suffix, contents } = template;
  if (!uri.startsWith(prefix) || !uri.endsWith(suffix)) return undefined;
  const id = uri.slice(prefix.length, -suffix.length);
  // Its text is JSON, whose braces are no words to fill in.
  return { contents: [{ uri, ...contents, text: contents.text.replaceAll("{id}", id) }] };
}

export const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** The command line as an object. */
export function options() {
  const words = process.argv.slice(2);
  const pairs = [];
  for (let i = 0; i < words.length; i += 2) pairs.push([words[i].replace(/^--/, ""), words[i + 1]]);
  return Object.fromEntries(pairs);
}

/** Serves HTTP on loopback, for names of this machine only, and says so. */
export async function listen(port, handle) {
  const { createServer } = await import("node:http");
  const server = createServer((request, response) => {
    const name = new URL(`http://${request.headers.host}`).hostname;
    const origin = request.headers.origin ? new URL(request.headers.origin).hostname : name;
    if (![name, origin].every((host) => ["localhost", "127.0.0.1", "[::1]"].includes(host))) {
      response.writeHead(403).end();
      return;
    }
    Promise.resolve(handle(request, response)).catch((error) => {
      console.error(error);
      response.destroy();
    });
  });
  server.listen(Number(port), "127.0.0.1", () => console.error(`serving at port ${server.address().port}`));
}

/** The body of a request, as JSON. */
export async function body(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return chunks.length === 0 ? undefined : JSON.parse(Buffer.concat(chunks).toString());
}
