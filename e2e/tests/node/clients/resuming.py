"""A client on the Python SDK that hears numbered log messages while its connections break, and prints which it heard as
one line of JSON. Arguments: URL; the tool that makes them, `notify` (in the call) or `announce` (in the client's own
stream); its arguments."""

import json
import sys

import anyio
import httpx2
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

heard = []


async def main(url: str, name: str, given: str) -> None:
    listening = anyio.Event()

    async def hear(params) -> None:
        heard.append(params.data)

    async def watch(response) -> None:
        if response.request.method == "GET" and response.status_code == 200:
            listening.set()

    expected = json.loads(given)
    # Each request has a connection of its own, which leads elsewhere.
    limits = httpx2.Limits(max_keepalive_connections=0)
    async with (
        httpx2.AsyncClient(limits=limits, timeout=240, event_hooks={"response": [watch]}) as http,
        streamable_http_client(url, http_client=http) as streams,
        ClientSession(streams[0], streams[1], logging_callback=hear) as session,
    ):
        await session.initialize()
        if name == "announce":
            await listening.wait()
        # What comes after them says that nothing more comes of them.
        for count in (expected["count"], 1):
            before = len(heard)
            await session.call_tool(name, {**expected, "count": count})
            with anyio.move_on_after(60):
                while len(heard) < before + count:
                    await anyio.sleep(0.02)
    print(json.dumps(heard))


async def in_time(*arguments: str) -> None:
    # Whoever waits for it waits no longer.
    with anyio.fail_after(300):
        await main(*arguments)


anyio.run(in_time, *sys.argv[1:])
