"""A client on either line of the SDK, which tries everything at servers with our fixtures. `--mode` is legacy, or modern
for 2026-07-28 and nothing else, which the first line does not know, and `--urls` is where they are. Prints a line with a
URL and what came of each feature when that is known."""

import argparse
import asyncio
import contextlib
import json

import anyio

try:
    import mcp_types as types
    from mcp import Client
except ImportError:
    import mcp.types as types
    from mcp import ClientSession
    from mcp.client.sse import sse_client

    Client = None

LATEST = types.LATEST_PROTOCOL_VERSION
# Releases before that hear of progress without knowing which call it is of.
HAS_STREAMS = LATEST >= "2025-03-26"
ASKS = LATEST >= "2025-06-18"


class Heard(dict):
    """What a server asked, and how often."""

    def __init__(self):
        super().__init__(sampling=0, elicitation=0)
        self.step = None

    async def sample(self, context, params):
        self["sampling"] += 1
        content = {"type": "text", "text": "sampled"}
        return types.CreateMessageResult.model_validate({"role": "assistant", "model": "m", "content": content})

    async def elicit(self, context, params):
        self["elicitation"] += 1
        return types.ElicitResult(action="accept", content={"username": "u", "email": "u@example.com"})

    async def anything(self, message):
        message = getattr(message, "root", None)
        if isinstance(message, types.ProgressNotification) and self.step is not None:
            await self.step(message.params.progress, message.params.total, None)


@contextlib.asynccontextmanager
async def connect(url, mode, heard):
    callbacks = {"sampling_callback": heard.sample}
    if ASKS:
        callbacks["elicitation_callback"] = heard.elicit
    if Client is not None:
        async with Client(url, mode="2026-07-28" if mode == "modern" else mode, **callbacks) as client:
            yield client
        return
    if HAS_STREAMS:
        from mcp.client.streamable_http import streamablehttp_client

        streams = streamablehttp_client(url)
    else:
        streams = sse_client(url.removesuffix("mcp") + "sse")
        callbacks["message_handler"] = heard.anything
    async with streams as (read, write, *_):
        async with ClientSession(read, write, **callbacks) as client:
            await client.initialize()
            yield client


async def progressing(client, heard, step):
    """Calls a tool that tells how far it is."""
    if HAS_STREAMS:
        return await client.call_tool("test_tool_with_progress", {}, progress_callback=step)
    heard.step = step
    meta = types.RequestParams.Meta(progressToken="steps")
    params = types.CallToolRequestParams.model_validate({"name": "test_tool_with_progress", "_meta": meta})
    request = types.CallToolRequest(method="tools/call", params=params)
    return await client.send_request(types.ClientRequest(request), types.CallToolResult)


async def explore(client, heard, results):
    async def attempt(feature, act):
        try:
            results[feature] = "works" if await act() else "wrong"
        except Exception as error:
            results[feature] = str(error)

    names = set()

    async def say():
        return (await client.call_tool("test_simple_text", {})).content[0].text.startswith("This is")

    async def tool():
        names.update(tool.name for tool in (await client.list_tools()).tools)
        return await say()

    async def resource():
        return len((await client.read_resource("test://static-text")).contents[0].text) > 0

    async def prompt():
        return len((await client.get_prompt("test_simple_prompt")).messages) == 1

    async def progress():
        steps = []

        async def step(done, total, message):
            steps.append(done)

        await progressing(client, heard, step)
        return steps == [0, 50, 100]

    async def cancellation():
        with anyio.CancelScope() as scope:

            async def step(done, total, message):
                scope.cancel()

            await progressing(client, heard, step)
        # What is left goes on.
        return scope.cancelled_caught and await say()

    async def ask(feature, name, arguments):
        result = await client.call_tool(name, arguments)
        if getattr(result, "is_error", None) or getattr(result, "isError", None):
            raise RuntimeError(result.content[0].text)
        return heard[feature] == 1

    await attempt("tool", tool)
    await attempt("resource", resource)
    await attempt("prompt", prompt)
    await attempt("progress", progress)
    await attempt("cancellation", cancellation)
    for feature, name, arguments in [
        ("elicitation", "test_elicitation", {"message": "Who?"}),
        ("sampling", "test_sampling", {"prompt": "Say"}),
    ]:
        if name not in names or (feature == "elicitation" and not ASKS):
            results[feature] = "-"
            continue
        await attempt(feature, lambda: ask(feature, name, arguments))


async def try_at(url, mode):
    heard, results = Heard(), {}
    try:
        async with connect(url, mode, heard) as client:
            results["connect"] = "works"
            await explore(client, heard, results)
    except BaseException as error:
        results.setdefault("connect", repr(error))
    print(json.dumps([url, results]), flush=True)


async def main(urls, mode):
    await asyncio.gather(*(try_at(url, mode) for url in urls))


parser = argparse.ArgumentParser()
parser.add_argument("--mode")
parser.add_argument("--urls", nargs="+")
options = parser.parse_args()
asyncio.run(main(options.urls, options.mode))
