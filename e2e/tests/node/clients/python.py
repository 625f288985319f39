"""A client on the Python SDK: lists everything, calls a tool, reads a resource, gets a prompt, and prints what it saw
as one line of JSON. Arguments: URL, API key (may be empty)."""

import asyncio
import json
import sys

import httpx2
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def main(url: str, key: str) -> None:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx2.AsyncClient(headers=headers) as http:
        async with streamable_http_client(url, http_client=http) as streams:
            async with ClientSession(streams[0], streams[1]) as session:
                started = await session.initialize()
                tools = (await session.list_tools()).tools
                resources = (await session.list_resources()).resources
                prompts = (await session.list_prompts()).prompts
                echo = await session.call_tool("echo", {"message": "hello"})
                contents = (await session.read_resource(resources[0].uri)).contents if resources else []
                named = any(prompt.name == "simple-prompt" for prompt in prompts)
                messages = (await session.get_prompt("simple-prompt")).messages if named else []
    info = getattr(started, "server_info", None) or started.serverInfo
    print(json.dumps({
        "server": info.name,
        "tools": [tool.name for tool in tools],
        "resources": len(resources),
        "prompts": [prompt.name for prompt in prompts],
        "echo": echo.content[0].text,
        "contents": len(contents),
        "messages": len(messages),
    }))


asyncio.run(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""))
