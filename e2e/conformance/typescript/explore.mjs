// What a client tries, whichever release it is on.
import { writeSync } from "node:fs";

/**
 * Tries a client of its own at each URL, all at once. Prints a line with a URL and what came of it when that is known.
 * One that `loses` progress may lose what comes in one piece with the answer.
 */
export async function exploreAll(urls, asks, newClient, loses = false) {
  await Promise.all(
    urls.map(async (url) => writeSync(1, `${JSON.stringify([url, await explore(asks, newClient(url), loses)])}\n`)),
  );
  // Whatever streams are open.
  process.exit(0);
}

/** Says for each feature `works`, `-` if one side does not have it, or what went wrong. */
async function explore(asks, client, loses) {
  const heard = { sampling: 0, elicitation: 0 };
  client.on("sampling/createMessage", () => {
    heard.sampling += 1;
    return { role: "assistant", model: "m", content: { type: "text", text: "sampled" } };
  });
  if (asks) {
    client.on("elicitation/create", () => {
      heard.elicitation += 1;
      return { action: "accept", content: { username: "u", email: "u@example.com" } };
    });
  }
  const results = {};
  const attempt = async (feature, act) => {
    try {
      results[feature] = (await act()) ? "works" : "wrong";
    } catch (error) {
      results[feature] = String(error.message ?? error);
    }
  };

  await attempt("connect", async () => {
    await client.connect();
    return true;
  });
  const text = (result) => result.content[0].text;
  const names = new Set();
  await attempt("tool", async () => {
    for (const tool of await client.tools()) names.add(tool.name);
    return text(await client.call({ name: "test_simple_text", arguments: {} })).startsWith("This is");
  });
  await attempt("resource", async () => (await client.read("test://static-text")).contents[0].text.length > 0);
  await attempt("prompt", async () => (await client.prompt("test_simple_prompt")).messages.length === 1);
  const steps = [];
  const progressing = { name: "test_tool_with_progress", arguments: {} };
  await attempt("progress", async () => {
    await client.call(progressing, { onprogress: ({ progress }) => steps.push(progress) });
    return String(steps) === "0,50,100" || (loses && String(steps) === "0,50");
  });
  await attempt("cancellation", async () => {
    const controller = new AbortController();
    const call = client.call(progressing, { onprogress: () => controller.abort("enough"), signal: controller.signal });
    const ended = await call.then(() => "answered", () => "aborted");
    // What is left goes on.
    return ended === "aborted" && text(await client.call({ name: "test_simple_text", arguments: {} })).length > 0;
  });
  for (const [feature, call] of [
    ["elicitation", { name: "test_elicitation", arguments: { message: "Who?" } }],
    ["sampling", { name: "test_sampling", arguments: { prompt: "Say" } }],
  ]) {
    if (!names.has(call.name) || (feature === "elicitation" && !asks)) {
      results[feature] = "-";
      continue;
    }
    await attempt(feature, async () => {
      const result = await client.call(call);
      if (result.isError) throw new Error(text(result));
      return heard[feature] === 1;
    });
  }
  return results;
}
