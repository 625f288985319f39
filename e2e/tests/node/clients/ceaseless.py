"""A client on the Python SDK that calls `echo` without end until its input ends, begins anew where its session is gone,
calls once more, ends its session, and prints what it saw as one line of JSON. Arguments: URL; how many milliseconds it
waits after a call."""

import json
import socket
import sys
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx2
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

# It is not stopped before it has made so many.
LEAST = 20

seen = {"calls": 0, "errors": [], "renewed": 0, "told": 0, "last": False, "ended": None}
stopped = False
late = 0


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


def goes_on() -> bool:
    global late
    if not stopped:
        return True
    late += 1
    return seen["calls"] < LEAST and late < 1000


async def watch(response) -> None:
    """The SDK ends its session as it closes, and does not say which."""
    if response.request.method == "DELETE" and response.is_success:
        seen["ended"] = response.request.headers["mcp-session-id"]


async def one_session(url: str, pause: float) -> None:
    async with (
        httpx2.AsyncClient(timeout=httpx2.Timeout(30, read=300), event_hooks={"response": [watch]}) as http,
        streamable_http_client(url, http_client=http) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await session.initialize()
        while goes_on():
            await call(session)
            await anyio.sleep(pause)
        for _ in range(100):
            seen["last"] = seen["last"] or await call(session)


async def call(session: ClientSession) -> bool:
    number = seen["calls"] + 1
    try:
        result = await session.call_tool("echo", {"number": number})
    except Exception as error:
        if is_gone(error):
            raise
        note(error)
        return False
    content = getattr(result, "structured_content", None) or result.structuredContent
    if content["echo"]["number"] != number:
        note(ValueError(f"wrong answer: {content}"))
    seen["calls"] = number
    return True


def note(error: BaseException) -> None:
    if len(seen["errors"]) < 100:
        seen["errors"] += [f"{getattr(one, 'code', '')} {one!r}".strip() for one in leaves(error)]


async def known(url: str) -> None:
    """The cluster's DNS hears of a Service a moment after it is there, and does not look again for half a minute."""
    with anyio.fail_after(60):
        while True:
            try:
                await anyio.getaddrinfo(urlsplit(url).hostname, None)
                return
            except socket.gaierror:
                await anyio.sleep(0.2)


async def main(url: str, pause: str) -> None:
    await known(url)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        sessions = 0
        while not stopped or (not seen["last"] and sessions < 100):
            sessions += stopped
            before = seen["calls"]
            try:
                await one_session(url, int(pause) / 1000)
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


anyio.run(main, *sys.argv[1:])
