"""A client on the Python SDK that works through a plan, against a URL or against a program over stdio, and prints what
it saw as one line of JSON. Arguments: `{"url"}` or `{"command"}`; the plan."""

import json
import os
import sys

import anyio
from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

target, plan = (json.loads(argument) for argument in sys.argv[1:])


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def work(session: ClientSession) -> dict:
    offers = (await session.initialize()).capabilities
    seen = {"tools": plain(await session.list_tools())["tools"], "resources": [], "prompts": []}
    seen["results"] = [plain(await session.call_tool(**call)) for call in map(named, plan["calls"])]
    seen["progress"] = []
    if offers.resources:
        listed = await session.list_resources()
        seen["resources"] = plain(listed)["resources"]
        if listed.resources:
            seen["contents"] = plain(await session.read_resource(listed.resources[0].uri))
    if offers.prompts:
        seen["prompts"] = plain(await session.list_prompts())["prompts"]
    if "prompt" in plan:
        seen["prompt"] = plain(await session.get_prompt(**named(plan["prompt"])))
    if "progress" in plan:
        async def on_progress(progress, total, _message):
            seen["progress"].append([progress, total])
        result = await session.call_tool(**named(plan["progress"]), progress_callback=on_progress)
        seen["results"].append(plain(result))
    if "cancel" in plan:
        # As soon as it is known to be under way.
        with anyio.CancelScope() as scope:
            async def cancel(_progress, _total, _message):
                scope.cancel()
            await session.call_tool(**named(plan["cancel"]), progress_callback=cancel)
        seen["cancelled"] = scope.cancelled_caught
        seen["results"].append(plain(await session.call_tool(**named(plan["calls"][0]))))
    return seen


def named(call):
    return {"name": call["name"], "arguments": call.get("arguments")}


def transport():
    if "url" in target:
        return streamable_http_client(target["url"])
    # What it writes to stderr is no part of what is compared.
    return stdio_client(StdioServerParameters(command=target["command"]), errlog=open(os.devnull, "w"))


async def main() -> None:
    async with transport() as streams, ClientSession(streams[0], streams[1]) as session:
        seen = await work(session)
    print(json.dumps(seen))


anyio.run(main)
