"""A client on either line of the SDK, which tries everything at a server with our fixtures. `--mode` is legacy, or modern
for 2026-07-28 and nothing else, which the first line does not know. Prints what came of each feature."""

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
    from mcp.client.streamable_http import streamablehttp_client

    Client = None

heard = {"sampling": 0, "elicitation": 0}


async def sample(context, params):
    heard["sampling"] += 1
    content = {"type": "text", "text": "sampled"}
    return types.CreateMessageResult.model_validate({"role": "assistant", "model": "m", "content": content})


async def elicit(context, params):
    heard["elicitation"] += 1
    return types.ElicitResult(action="accept", content={"username": "u", "email": "u@example.com"})


@contextlib.asynccontextmanager
async def connect(url, mode):
    callbacks = {"sampling_callback": sample, "elicitation_callback": elicit}
    if Client is not None:
        async with Client(url, mode="2026-07-28" if mode == "modern" else mode, **callbacks) as client:
            yield client
        return
    async with streamablehttp_client(url) as (read, write, _):
        async with ClientSession(read, write, **callbacks) as client:
            await client.initialize()
            yield client


async def explore(client, results):
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

        await client.call_tool("test_tool_with_progress", {}, progress_callback=step)
        return steps == [0, 50, 100]

    async def cancellation():
        with anyio.CancelScope() as scope:

            async def step(done, total, message):
                scope.cancel()

            await client.call_tool("test_tool_with_progress", {}, progress_callback=step)
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
        if name not in names:
            results[feature] = "-"
            continue
        await attempt(feature, lambda: ask(feature, name, arguments))


async def main(url, mode):
    results = {}
    try:
        async with connect(url, mode) as client:
            results["connect"] = "works"
            await explore(client, results)
    except BaseException as error:
        results.setdefault("connect", repr(error))
    print(json.dumps(results))


parser = argparse.ArgumentParser()
parser.add_argument("--mode")
parser.add_argument("--url")
options = parser.parse_args()
asyncio.run(main(options.url, options.mode))
