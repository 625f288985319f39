"""A client on the Python SDK that calls `echo` without pause until its input ends, begins anew where its session is
gone, and prints what it saw as one line of JSON. Argument: URL."""

import json
import sys

import anyio
import anyio.to_thread
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

seen = {"calls": 0, "errors": [], "renewed": 0, "told": 0}
stopped = False


async def listen() -> None:
    global stopped
    await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    stopped = True


def leaves(error: BaseException):
    """The errors in a group of them."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from leaves(one)
    else:
        yield error


def is_gone(error: BaseException) -> bool:
    # The SDK says what the answer says, and not which status it had.
    words = [str(one).lower() for one in leaves(error)]
    gone = ("404", "session terminated", "not found", "begin with initialize")
    # A replica that was not found in time is one to ask again.
    return any(word in text and "in time" not in text for word in gone for text in words)


async def one_session(url: str) -> None:
    async with streamable_http_client(url) as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        while not stopped:
            number = seen["calls"] + 1
            try:
                result = await session.call_tool("echo", {"number": number})
            except Exception as error:
                if is_gone(error):
                    raise
                note(error)
                continue
            content = getattr(result, "structured_content", None) or result.structuredContent
            if content["echo"]["number"] != number:
                note(ValueError(f"wrong answer: {content}"))
            seen["calls"] = number
            await anyio.sleep(0.005)


def note(error: BaseException) -> None:
    if len(seen["errors"]) < 100:
        seen["errors"] += [repr(one) for one in leaves(error)]


async def main(url: str) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        while not stopped:
            before = seen["calls"]
            try:
                await one_session(url)
            except Exception as error:
                gone = is_gone(error)
                # The SDK may give a session up with its connection.
                if gone or seen["calls"] > before:
                    seen["renewed"] += 1
                seen["told"] += gone
                if not gone:
                    note(error)
                    await anyio.sleep(0.02)
        tasks.cancel_scope.cancel()
    print(json.dumps(seen), flush=True)


anyio.run(main, sys.argv[1])
