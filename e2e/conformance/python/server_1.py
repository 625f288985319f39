"""A server with sessions, on the first line of the SDK, in any of the releases that the path has."""

import argparse
import asyncio
import contextlib
import json

import anyio
import mcp.types as types
import uvicorn
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import McpError
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route

from fixtures import Fixtures, fill

# Questions belong to a call, and what is told with it, since the release that could say so: where there is one stream
# there is nothing to say.
HAS_STREAMS = types.LATEST_PROTOCOL_VERSION >= "2025-03-26"
if HAS_STREAMS:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp.shared.message import ServerMessageMetadata

REQUESTS = {
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult),
}
if types.LATEST_PROTOCOL_VERSION >= "2025-06-18":
    REQUESTS["elicitation/create"] = (types.ElicitRequest, types.ElicitResult)

have = Fixtures(types.LATEST_PROTOCOL_VERSION)
server = Server(f"python-{types.LATEST_PROTOCOL_VERSION}", version="1.0.0")


def refuse(code, message, data=None):
    return McpError(types.ErrorData(code=code, message=message, data=data))


async def ask(questions, words):
    """What the client answers to questions that are asked at once."""
    context, answers = server.request_context, {}

    async def one(key, request):
        kind, result = REQUESTS[request["method"]]
        message = types.ServerRequest(kind.model_validate(fill(request, words)))
        about = {"metadata": ServerMessageMetadata(related_request_id=context.request_id)} if HAS_STREAMS else {}
        answer = await context.session.send_request(message, result, **about)
        answers[key] = answer.model_dump(by_alias=True, exclude_none=True, mode="json")

    async with anyio.create_task_group() as group:
        for key, request in questions.items():
            group.start_soon(one, key, request)
    return answers


async def call_tool(request):
    params, context = request.params, server.request_context
    entry = have.tools.get(params.name)
    if entry is None:
        raise refuse(-32602, f"Unknown tool: {params.name}")
    about = {"related_request_id": context.request_id} if HAS_STREAMS else {}
    for message in entry.get("logs", []):
        await context.session.send_log_message("info", message, **about)
        await anyio.sleep(0.05)
    token = context.meta.progressToken if context.meta else None
    for progress in entry.get("progress", []):
        if token is not None:
            about = {"related_request_id": str(context.request_id)} if HAS_STREAMS else {}
            await context.session.send_progress_notification(token, progress, 100, **about)
        await anyio.sleep(0.05)
    if entry.get("changed") == "tools":
        await context.session.send_tool_list_changed()
    if entry.get("changed") == "prompts":
        await context.session.send_prompt_list_changed()
    rounds = entry.get("rounds", [])
    if "choose" in entry:
        can = context.session.client_params.capabilities
        rounds = [{k: v for name, asks in entry["choose"].items() if getattr(can, name, None) is not None for k, v in asks.items()}]
    answers = [await ask(questions, params.arguments or {}) for questions in rounds]
    return types.CallToolResult.model_validate(fill(entry["result"], {"answers": json.dumps(answers)}))


async def get_prompt(request):
    params = request.params
    entry = have.prompts.get(params.name)
    if entry is None:
        raise refuse(-32602, f"Unknown prompt: {params.name}")
    answers = [await ask(questions, {}) for questions in entry.get("rounds", [])]
    words = {**(params.arguments or {}), "answers": json.dumps(answers)}
    return types.GetPromptResult.model_validate({"messages": fill(entry["messages"], words)})


async def read_resource(request):
    uri = str(request.params.uri)
    contents = have.read(uri)
    if contents is None:
        raise refuse(-32002, "Resource not found", {"uri": uri})
    return types.ReadResourceResult.model_validate({"contents": [contents]})


def always(kind, value):
    """A handler that answers with the same result always."""

    async def answer(request):
        return kind.model_validate(value)

    return answer


HANDLERS = {
    types.ListToolsRequest: always(types.ListToolsResult, {"tools": [entry["tool"] for entry in have.tools.values()]}),
    types.CallToolRequest: call_tool,
    types.ListPromptsRequest: always(
        types.ListPromptsResult, {"prompts": [entry["prompt"] for entry in have.prompts.values()]}
    ),
    types.GetPromptRequest: get_prompt,
    types.ListResourcesRequest: always(
        types.ListResourcesResult, {"resources": [entry["resource"] for entry in have.resources.values()]}
    ),
    types.ListResourceTemplatesRequest: always(
        types.ListResourceTemplatesResult, {"resourceTemplates": [have.template["template"]]}
    ),
    types.ReadResourceRequest: read_resource,
    types.SubscribeRequest: always(types.EmptyResult, {}),
    types.UnsubscribeRequest: always(types.EmptyResult, {}),
    types.SetLevelRequest: always(types.EmptyResult, {}),
    types.CompleteRequest: always(types.CompleteResult, {"completion": have.completion}),
}


def handler(answer):
    async def handle(request):
        return types.ServerResult(await answer(request))

    return handle


for kind, answer in HANDLERS.items():
    server.request_handlers[kind] = handler(answer)


def start():
    changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
    options = server.create_initialization_options(notification_options=changes)
    # The SDK says so of no server.
    options.capabilities.resources.subscribe = True
    return options


async def stdio():
    async with stdio_server() as (read, write):
        await server.run(read, write, start())


def http(port):
    options = {}
    if types.LATEST_PROTOCOL_VERSION >= "2025-06-18":
        from mcp.server.transport_security import TransportSecuritySettings

        hosts = [f"{host}:*" for host in ("127.0.0.1", "localhost", "[::1]")]
        options["security_settings"] = TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=hosts,
            allowed_origins=[f"http://{host}" for host in hosts],
        )
    sessions = StreamableHTTPSessionManager(app=server, **options)

    @contextlib.asynccontextmanager
    async def lifespan(app):
        async with sessions.run():
            yield

    class Slashless:
        """The path is the endpoint's, with no slash behind it."""

        async def __call__(self, scope, receive, send):
            await sessions.handle_request(scope, receive, send)

    app = Starlette(routes=[Route("/mcp", endpoint=Slashless())], lifespan=lifespan)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


def sse(port):
    from mcp.server.sse import SseServerTransport

    messages = SseServerTransport("/messages/")

    async def stream(request):
        async with messages.connect_sse(request.scope, request.receive, request._send) as (read, write):
            await server.run(read, write, start())
        return Response()

    app = Starlette(routes=[Route("/sse", endpoint=stream), Mount("/messages/", app=messages.handle_post_message)])
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


parser = argparse.ArgumentParser()
parser.add_argument("--transport", choices=["http", "sse", "stdio"])
parser.add_argument("--listen", type=int)
options = parser.parse_args()
if options.transport == "stdio":
    asyncio.run(stdio())
else:
    {"http": http, "sse": sse}[options.transport](options.listen)
