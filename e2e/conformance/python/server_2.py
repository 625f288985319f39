"""A server of 2026-07-28, and of what is older too, on the second line of the SDK."""

import argparse
import asyncio
import json

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fixtures import Fixtures, fill

CHANGED = {"tools": ToolsListChanged, "prompts": PromptsListChanged}
REQUESTS = {
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult),
    "elicitation/create": (types.ElicitRequest, types.ElicitResult),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult),
}
NEEDS = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}

have = Fixtures("2026-07-28")
bus = InMemorySubscriptionBus()


def can(ctx):
    """What the client of this request can do."""
    capabilities = ctx.session.client_capabilities
    return {} if capabilities is None else capabilities.model_dump(by_alias=True, exclude_none=True)


def bare(response):
    """An answer of the client as it was sent, or nothing if it is no answer."""
    if hasattr(response, "model_dump"):
        return response.model_dump(by_alias=True, exclude_none=True, mode="json")
    return response if isinstance(response, dict) else None


async def ask_at_once(ctx, questions):
    """What a client with a session answers to questions that are asked at once."""
    about, answers = ServerMessageMetadata(related_request_id=ctx.request_id), {}

    async def one(key, question):
        kind, result = REQUESTS[question["method"]]
        answers[key] = bare(await ctx.session.send_request(kind.model_validate(question), result, metadata=about))

    async with anyio.create_task_group() as group:
        for key, question in questions.items():
            group.start_soon(one, key, question)
    return answers


async def ask(ctx, params, rounds, keeps_state, words):
    """What is still to be asked of the client, or the text of everything that it answered."""
    if ctx.session.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return None, json.dumps([await ask_at_once(ctx, fill(questions, words)) for questions in rounds])
    before = json.loads(params.request_state) if keeps_state and params.request_state else []
    if len(before) >= len(rounds):
        return None, json.dumps(before)
    given = {key: bare(value) for key, value in (params.input_responses or {}).items()}
    keys = rounds[len(before)].keys()
    answers = list(before)
    if all(given.get(key) is not None for key in keys):
        answers.append({key: given[key] for key in keys})
        if len(answers) >= len(rounds):
            return None, json.dumps(answers)
    requests = fill(rounds[len(answers)], words)
    missing = {NEEDS[request["method"]]: {} for request in requests.values() if NEEDS[request["method"]] not in can(ctx)}
    if missing:
        raise MCPError(-32021, "The client lacks a capability", {"requiredCapabilities": missing})
    asked = {"inputRequests": requests, **({"requestState": json.dumps(answers)} if keeps_state else {})}
    return types.InputRequiredResult.model_validate({"resultType": "input_required", **asked}), None


async def list_tools(ctx, params):
    return types.ListToolsResult.model_validate({"tools": [entry["tool"] for entry in have.tools.values()]})


async def call_tool(ctx, params):
    entry = have.tools.get(params.name)
    if entry is None:
        raise MCPError(-32602, f"Unknown tool: {params.name}")
    for message in entry.get("logs", []):
        await ctx.session.send_log_message("info", message, related_request_id=ctx.request_id)
        await anyio.sleep(0.05)
    for progress in entry.get("progress", []):
        await ctx.session.report_progress(progress, 100)
        await anyio.sleep(0.05)
    if "changed" in entry:
        await bus.publish(CHANGED[entry["changed"]]())
    rounds = entry.get("rounds", [])
    if "choose" in entry:
        rounds = [{k: v for name, asks in entry["choose"].items() if name in can(ctx) for k, v in asks.items()}]
    asked, answers = await ask(ctx, params, rounds, entry.get("state", False), params.arguments or {})
    return asked or types.CallToolResult.model_validate(fill(entry["result"], {"answers": answers}))


async def list_prompts(ctx, params):
    return types.ListPromptsResult.model_validate({"prompts": [entry["prompt"] for entry in have.prompts.values()]})


async def get_prompt(ctx, params):
    entry = have.prompts.get(params.name)
    if entry is None:
        raise MCPError(-32602, f"Unknown prompt: {params.name}")
    asked, answers = await ask(ctx, params, entry.get("rounds", []), False, {})
    words = {**(params.arguments or {}), "answers": answers}
    return asked or types.GetPromptResult.model_validate({"messages": fill(entry["messages"], words)})


async def list_resources(ctx, params):
    resources = [entry["resource"] for entry in have.resources.values()]
    return types.ListResourcesResult.model_validate({"resources": resources})


async def list_resource_templates(ctx, params):
    return types.ListResourceTemplatesResult.model_validate({"resourceTemplates": [have.template["template"]]})


async def read_resource(ctx, params):
    contents = have.read(str(params.uri))
    if contents is None:
        raise MCPError(-32602, "Resource not found", {"uri": str(params.uri)})
    return types.ReadResourceResult.model_validate({"contents": [contents]})


async def set_level(ctx, params):
    return types.EmptyResult()


async def complete(ctx, params):
    return types.CompleteResult.model_validate({"completion": have.completion})


def new_server():
    server = Server(
        "python-2026-07-28",
        version="1.0.0",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_list_resources=list_resources,
        on_list_resource_templates=list_resource_templates,
        on_read_resource=read_resource,
        on_completion=complete,
        on_set_logging_level=set_level,
        on_subscriptions_listen=ListenHandler(bus),
    )
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=server.name))
    return server


async def stdio(server):
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


parser = argparse.ArgumentParser()
parser.add_argument("--transport", choices=["http", "stdio"])
parser.add_argument("--listen", type=int)
options = parser.parse_args()
if options.transport == "stdio":
    asyncio.run(stdio(new_server()))
else:
    uvicorn.run(new_server().streamable_http_app(), host="127.0.0.1", port=options.listen, log_level="warning")
