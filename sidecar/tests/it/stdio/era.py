"""A server over stdio that speaks the revisions that it is told to, and takes what it does not know in its own way."""

import json
import os
import sys

legacy = sys.argv[1].split(",") if sys.argv[1] else []
modern = sys.argv[2].split(",") if sys.argv[2] else []
manner = sys.argv[3] if len(sys.argv) > 3 else "error"
# What the first message of the client made of this process.
era = None


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def fail(message, code, words, **data):
    send({"id": message["id"], "error": {"code": code, "message": words, **({"data": data} if data else {})}})


def stamped(result):
    return {**result, "resultType": "complete", "ttlMs": 0, "cacheScope": "public"}


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, params = message["method"], message.get("params", {})
    claim = params.get("_meta", {}).get("io.modelcontextprotocol/protocolVersion")
    era = era or ("modern" if claim else "legacy")
    tools = [{"name": "era", "inputSchema": {"type": "object"}}]
    if method == "initialize" and legacy and era == "legacy":
        asked = params["protocolVersion"]
        version = asked if asked in legacy else legacy[0]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "era", "version": "1"}}
        send({"id": message["id"], "result": result})
    elif era == "legacy" and legacy and method == "ping":
        send({"id": message["id"], "result": {}})
    elif era == "legacy" and legacy and method == "tools/list":
        send({"id": message["id"], "result": {"tools": tools}})
    elif era == "legacy" and legacy and method == "tools/call":
        send({"id": message["id"], "result": {"content": [{"type": "text", "text": "legacy"}]}})
    elif era == "modern" and modern and claim not in modern:
        fail(message, -32022, "Unsupported protocol version", supported=modern + legacy, requested=claim)
    elif era == "modern" and modern and method == "server/discover":
        send({"id": message["id"], "result": stamped({"supportedVersions": modern + legacy, "capabilities": {"tools": {}}})})
    elif era == "modern" and modern and method == "tools/list":
        send({"id": message["id"], "result": stamped({"tools": tools})})
    elif era == "modern" and modern and method == "tools/call":
        send({"id": message["id"], "result": {"resultType": "complete", "content": [{"type": "text", "text": "modern"}]}})
    elif manner == "die":
        os._exit(3)
    elif manner == "error":
        fail(message, -32601, "Method not found")
