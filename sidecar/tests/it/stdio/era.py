"""A server over stdio that speaks the revisions that it is told to, and takes what it does not know in its own way."""

import json
import os
import signal
import sys
import threading
import time

legacy = sys.argv[1].split(",") if sys.argv[1] else []
modern = sys.argv[2].split(",") if sys.argv[2] else []
manner = sys.argv[3] if len(sys.argv) > 3 else "error"
# What the first message of the client made of this process.
era = None
heard = []
lock = threading.Lock()
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
LEVEL = "io.modelcontextprotocol/logLevel"


def send(message):
    with lock:
        line = json.dumps({"jsonrpc": "2.0", **message})
        greets = isinstance(message.get("result"), dict) and "protocolVersion" in message["result"]
        if own_words and ({"id", "method"} <= message.keys() or greets):
            own_words.write(line + "\n")
        print(line, flush=True)


def note(method, **params):
    send({"method": method, "params": params})


def text(message, words):
    send({"id": message["id"], "result": {"resultType": "complete", "content": [{"type": "text", "text": str(words)}]}})


def who(message):
    # Answers who asked, and says so all the time before.
    params = message["params"]
    arguments = params["arguments"]
    for step in range(arguments["steps"]):
        note("notifications/progress", progressToken=params["_meta"]["progressToken"], progress=step, message=arguments["who"])
    text(message, arguments["who"])


def listen(message):
    name = {"text": str, "floats": float}.get(manner, int)(message["id"])
    meta = {SUBSCRIPTION: name}
    note("notifications/subscriptions/acknowledged", notifications=message["params"]["notifications"], _meta=meta)
    if manner != "quiet":
        note("notifications/tools/list_changed", _meta=meta)
    if message["params"]["notifications"].get("promptsListChanged"):
        # Enough of it, in the two ways that there are.
        note("notifications/cancelled", requestId=name)
        send({"id": message["id"], "result": {"resultType": "complete", "_meta": meta}})


def call(message):
    name, arguments = message["params"]["name"], message["params"].get("arguments", {})
    if name == "pid":
        text(message, os.getpid())
    elif name == "who":
        threading.Timer(arguments["seconds"], who, (message,)).start()
    elif name == "heard":
        text(message, json.dumps(heard))
    elif name == "exit":
        os._exit(arguments["status"])
    elif name == "hang":
        pass
    elif name == "busy":
        # Nothing is read meanwhile, and no ping is answered.
        time.sleep(arguments["seconds"])
        text(message, "done")
    elif name == "twice":
        text(message, "once")
        text(message, "twice")
        send({"id": 4711, "result": {}})
    elif name == "log":
        note("notifications/message", level="info", data=arguments["words"])
        text(message, "logged")
    elif name == "done":
        note("com.example/done", a=1)
        text(message, "done")
    elif name == "ask":
        send({"id": "q", "method": "sampling/createMessage", "params": {}})
        text(message, "asked")
    else:
        text(message, "modern")


def fail(message, code, words, **data):
    send({"id": message["id"], "error": {"code": code, "message": words, **({"data": data} if data else {})}})


def stamped(result):
    return {**result, "resultType": "complete", "ttlMs": 0, "cacheScope": "public"}


if manner == "obstinate":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if manner == "banner":
    print("Starting up on stdio\n{}\n[]\n", flush=True)
together = []

# What is read is looked at when the test is over.
kept = os.environ.get("LONGSHORE_HEARD")
copy = open(f"{kept}/{os.getpid()}", "a", buffering=1) if kept else None
# And what that answers, and which revision was agreed on.
own_words = open(f"{kept}/{os.getpid()}.asked", "a", buffering=1) if kept else None

for line in sys.stdin:
    if copy:
        copy.write(line)
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        heard.append(message)
        continue
    method, params = message["method"], message.get("params", {})
    claim = params.get("_meta", {}).get("io.modelcontextprotocol/protocolVersion")
    era = era or ("modern" if claim else "legacy")
    if era == "modern" and not claim:
        # What this revision does not have.
        heard.append(message)
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
    elif era == "legacy" and legacy and method == "tools/call" and params["name"] == "many":
        # More than waits for whoever reads it, in one line, and the answer at once behind it.
        words = "x" * 8192
        lines = [{"method": "notifications/message", "params": {"level": "info", "logger": words, "data": step}} for step in range(64)]
        print(json.dumps([{"jsonrpc": "2.0", **line} for line in lines]), flush=True)
        send({"id": message["id"], "result": {"content": []}})
    elif era == "legacy" and legacy and method == "tools/call" and manner == "batch":
        # Two answers in one line, the last first, and one of them again.
        together.insert(0, {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": params["name"]}]}})
        if len(together) == 2:
            print(json.dumps(together), flush=True)
            print(json.dumps(together[:1]), flush=True)
            together = []
    elif era == "legacy" and legacy and method == "tools/call":
        send({"id": message["id"], "result": {"content": [{"type": "text", "text": "legacy"}]}})
    elif era == "modern" and modern and claim not in modern:
        fail(message, -32022, "Unsupported protocol version", supported=modern + legacy, requested=claim)
    elif method == "server/discover" and manner.startswith("late ") and not os.path.exists(manner[5:]):
        # Whoever comes next answers.
        open(manner[5:], "x").close()
    elif era == "modern" and modern and method == "server/discover":
        send({"id": message["id"], "result": stamped({"supportedVersions": modern + legacy, "capabilities": {"tools": {"listChanged": True} if manner == "quiet" else {}}})})
    elif era == "modern" and modern and method == "tools/list":
        send({"id": message["id"], "result": stamped({"tools": tools})})
    elif era == "modern" and modern and method == "tools/call":
        call(message)
    elif era == "modern" and modern and method == "subscriptions/listen":
        listen(message)
    elif manner == "die":
        os._exit(3)
    elif manner != "silence":
        fail(message, -32601, "Method not found")

if manner == "obstinate":
    # Until a signal ends it that nobody can ignore.
    time.sleep(600)
