"""A server over stdio that does what it is asked for, also what no server should."""

import json
import os
import signal
import sys
import threading
import time

flags = set(sys.argv[1:])
calls = 0
level = None
subscriptions = []
cancelled = set()
yielding = set()
waiting = []
tardy = []
grown = []
heard = []
begun = []
stdin = sys.stdin.buffer
# What is read is looked at when the test is over.
kept = os.environ.get("LONGSHORE_HEARD")
copy = open(f"{kept}/{os.getpid()}", "ab", buffering=0) if kept else None
# And what that answers, and which revision was agreed on.
own_words = open(f"{kept}/{os.getpid()}.asked", "ab", buffering=0) if kept else None


def write(data):
    while data:
        data = data[os.write(1, data) :]


def send(message):
    as_what = str if "ids-as-text" in flags else float if "ids-as-floats" in flags else None
    if as_what and "method" not in message:
        message = {**message, "id": as_what(message["id"])}
    elif as_what and "progressToken" in message.get("params", {}):
        params = message["params"]
        message = {**message, "params": {**params, "progressToken": as_what(params["progressToken"])}}
    line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
    greets = isinstance(message.get("result"), dict) and "protocolVersion" in message["result"]
    if own_words and ({"id", "method"} <= message.keys() or greets):
        own_words.write(line)
    write(line)


def note(method, **params):
    send({"method": method, "params": params})


def text(message, words, failed=False):
    result = {"content": [{"type": "text", "text": str(words)}]}
    send({"id": message["id"], "result": {**result, "isError": True} if failed else result})


def read():
    line = stdin.readline()
    if not line:
        raise SystemExit
    if copy:
        copy.write(line)
    return json.loads(line)


def task(name):
    at = "2026-11-20T00:00:00Z"
    return {"taskId": name, "status": "working", "createdAt": at, "lastUpdatedAt": at, "ttl": 60000}


def progress(message):
    token = message["params"]["_meta"]["progressToken"]
    for step in range(message["params"]["arguments"]["steps"]):
        note("notifications/progress", progressToken=token, progress=step)
    text(message, "done")


def pour(message):
    # Until it is told that nobody wants it. A line has to fit into PIPE_BUF: the other thread answers between two
    # lines then, and never in the middle of one.
    token = message["params"]["_meta"]["progressToken"]
    step = 0
    while message["id"] not in cancelled:
        note("notifications/progress", progressToken=token, progress=step, message="x" * 3072)
        step += 1


def who(message):
    # Answers who asked, and says so all the time before.
    params = message["params"]
    arguments = params["arguments"]
    for step in range(arguments["steps"]):
        note("notifications/progress", progressToken=params["_meta"]["progressToken"], progress=step, message=arguments["who"])
    text(message, arguments["who"])


def call(message):
    global calls
    calls += 1
    params = message["params"]
    name, arguments = params["name"], params.get("arguments", {})
    if "task" in params:
        begun.append(f"task-{len(begun) + 1}")
        send({"id": message["id"], "result": {"task": task(begun[-1])}})
        # How far it is, though the call is over.
        for step in range(arguments.get("steps", 0)):
            related = {"io.modelcontextprotocol/related-task": {"taskId": begun[-1]}}
            note("notifications/progress", progressToken=params["_meta"]["progressToken"], progress=step, _meta=related)
    elif name == "pid":
        text(message, os.getpid())
    elif name == "count":
        text(message, calls)
    elif name == "echo":
        text(message, arguments["text"] * arguments.get("times", 1))
    elif name == "refuse":
        send({"id": message["id"], "error": {"code": 7, "message": "x" * arguments["times"]}})
    elif name == "grow":
        grown.append(b"x" * arguments["bytes"])
        text(message, len(grown[-1]))
    elif name == "exit":
        os.write(2, b"first words\nlast words\n")
        os._exit(arguments["status"])
    elif name == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif name == "write":
        # Bytes for stdout, and then the answer.
        write(bytes.fromhex(arguments["hex"]) * arguments.get("times", 1))
        text(message, "written")
    elif name == "log":
        # What it logs, how far it is and its answer, all in one piece.
        said = [{"method": "notifications/message", "params": {"level": "error", "data": n}} for n in range(arguments["times"])]
        token = params.get("_meta", {}).get("progressToken")
        if token is not None:
            said.insert(0, {"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
        said.append({"id": message["id"], "result": {"content": [{"type": "text", "text": "logged"}]}})
        write(b"".join(json.dumps({"jsonrpc": "2.0", **it}).encode() + b"\n" for it in said))
    elif name == "half":
        # The answer without its end, or so much of it, and the end of the process.
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}}
        write(json.dumps(answer).encode()[: arguments.get("bytes")])
        os._exit(0)
    elif name == "pause":
        # All of the answer but its end, which comes at that time.
        content = [{"type": "text", "text": arguments["text"] * arguments["times"]}]
        answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": content}}).encode() + b"\n"
        write(answer[:-2])
        time.sleep(max(0, arguments["until"] - time.time()))
        write(answer[-2:])
    elif name == "flood":
        while True:
            write(b"no message\n" * 1000)
    elif name == "flood-blank":
        while True:
            write(b"\n" * 65536)
    elif name == "flood-batches":
        while True:
            write((b"[" + b" " * 1000 + b"]\n") * 64)
    elif name == "flood-messages":
        while True:
            write(b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}\n' * 1000)
    elif name == "flood-stderr":
        while True:
            os.write(2, b"e" * 1000 + b"\n")
    elif name == "endless-line":
        while True:
            write(b"x" * 65536)
    elif name == "close":
        os.close(1)
        time.sleep(60)
    elif name == "deaf":
        text(message, "from now on")
        time.sleep(600)
    elif name == "hang":
        pass
    elif name == "yield":
        yielding.add(message["id"])
    elif name == "progress":
        # By another thread, so that other calls come meanwhile.
        threading.Timer(arguments["seconds"], progress, (message,)).start()
    elif name == "pour":
        threading.Timer(0, pour, (message,)).start()
    elif name == "strange-answers":
        send({"id": "nobody", "result": {}})
        send({"id": None, "error": {"code": 1, "message": "m"}})
        text(message, "still there")
    elif name == "who":
        threading.Timer(arguments["seconds"], who, (message,)).start()
    elif name == "state":
        text(message, json.dumps({"level": level, "subscriptions": subscriptions, "heard": heard}))
    elif name == "say":
        note(arguments["method"], **arguments["params"])
        text(message, "said")
    elif name == "busy":
        time.sleep(arguments["seconds"])
        text(message, "done")
    elif name == "later":
        # Answered by another thread, so that others are answered in between.
        threading.Timer(arguments["seconds"], text, (message, "later", arguments.get("fails", False))).start()
    elif name == "wait":
        # Answered when another call says so. It may say something before.
        waiting.append(message)
    elif name == "release":
        while waiting:
            first = waiting.pop(0)
            if says := first["params"].get("arguments", {}).get("says"):
                note(says)
            text(first, "released")
        text(message, "released")
    elif name == "ask":
        send({"id": "q", "method": arguments["method"], "params": {}})
        while (answer := read()).get("id") != "q":
            pass
        text(message, json.dumps(answer.get("result", answer.get("error"))))
    elif name == "ask-and-go":
        # Answered all the same a while later, by another thread. The question can be put by one too.
        question = {"id": "q", "method": arguments["method"], "params": {}}
        if "after" in arguments:
            threading.Timer(arguments["after"], send, (question,)).start()
        else:
            send(question)
        words = arguments["text"] * arguments["times"]
        threading.Timer(arguments["seconds"], text, (message, words)).start()
    elif name == "need":
        # As a server does that cannot do without: an answer that is an error is one of the call. It asks when there is
        # this file.
        while "when" in arguments and not os.path.exists(arguments["when"]):
            time.sleep(0.02)
        send({"id": "n", "method": arguments["method"], "params": arguments.get("params", {})})
        while (answer := read()).get("id") != "n":
            pass
        failed = "error" in answer
        content = [{"type": "text", "text": json.dumps(answer.get("result", answer.get("error")))}]
        send({"id": message["id"], "result": {"content": content, "isError": failed}})
    elif name == "ask-all":
        # Several questions at once, and then as many again as are wanted.
        for turn in range(arguments.get("rounds", 1)):
            asked = arguments["questions"]
            for number, (method, params) in enumerate(asked):
                send({"id": number, "method": method, "params": params})
            answers = {}
            while len(answers) < len(asked):
                heard_now = read()
                if "method" not in heard_now:
                    answers[heard_now["id"]] = heard_now.get("result", heard_now.get("error"))
        text(message, json.dumps([answers[number] for number in range(len(asked))]))
    elif name == "ask-beside":
        # Says that it has begun, and asks when another call has come, which is not answered.
        note("notifications/progress", progressToken=params["_meta"]["progressToken"], progress=1)
        while read().get("method") != "tools/call":
            pass
        send({"id": "q", "method": arguments["method"], "params": {}})
        while (answer := read()).get("id") != "q":
            pass
        text(message, json.dumps(answer.get("result", answer.get("error"))))
    elif name == "ask-later":
        text(message, "asked")
        time.sleep(0.2)
        send({"id": "q", "method": arguments["method"], "params": {}})
        while (answer := read()).get("id") != "q":
            pass
        os.write(2, json.dumps(answer).encode() + b"\n")
        os._exit(7)
    elif name == "ask-outside":
        # In no call, and goes on.
        text(message, "asked")
        time.sleep(0.2)
        send({"id": "q", "method": arguments["method"], "params": {}})
    elif name == "ask-and-leave":
        for number in range(arguments["questions"]):
            send({"id": f"{arguments['name']}-{number}", "method": arguments["method"], "params": {}})
        text(message, "left")
    elif name == "hear":
        while (answer := read()).get("id") != "q":
            pass
        text(message, json.dumps(answer.get("result", answer.get("error"))))
    elif name == "change":
        text(message, "soon")
        note("notifications/tools/list_changed")
    elif name == "say-after":
        # Behind the answer, and in one piece with it: nobody calls in between.
        answer = {"id": message["id"], "result": {"content": [{"type": "text", "text": "soon"}]}}
        said = {"method": arguments["method"], "params": arguments["params"]}
        write(b"".join(json.dumps({"jsonrpc": "2.0", **it}).encode() + b"\n" for it in (answer, said)))


def main():
    global level
    for flag in flags:
        # Takes longer to start from when there is this file.
        if flag.startswith("slow-with=") and os.path.exists(flag.partition("=")[2]):
            time.sleep(13)
        # Installs what is there for all that come after it.
        if flag.startswith("installs=") and not os.path.exists(flag.partition("=")[2]):
            open(flag.partition("=")[2], "x").close()
            time.sleep(8)
    if "banner" in flags:
        write(b"\xef\xbb\xbfStarting\x1b[1m a server\r\n\r\n{}\nlog: \xff\xfe\n")
    if "exit" in flags:
        os.write(2, b"usage: a flag is missing\n")
        os._exit(2)
    if "obstinate" in flags:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "ping" in flags:
        send({"id": "p", "method": "ping"})
    while True:
        try:
            message = read()
        except SystemExit:
            if flags & {"obstinate", "lingering"}:
                # Until a signal ends it.
                time.sleep(600)
            raise
        method = message.get("method")
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            if "fickle" in flags and os.urandom(1)[0] % 2:
                # Whatever it is asked for.
                version = {"2025-11-25": "2025-06-18", "2025-06-18": "2025-03-26"}.get(version, version)
            if "slow" in flags:
                time.sleep(0.5)
            if "sluggish" in flags:
                time.sleep(3)
            if "wordy" in flags:
                note("notifications/message", level="info", data="a model is loaded")
            if "proud" in flags:
                version = "2025-11-25"
            heard.append(message["params"])
            if "frank" in flags:
                os.write(2, b"shook hands\n")
            if "wordy" in flags and message["params"]["clientInfo"].get("name") == "test":
                # A model that is never loaded, where it is for a client.
                continue
            capabilities = {"tools": {"listChanged": True}, "logging": {}, "resources": {"subscribe": True}}
            result = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": {"name": "scripted", "version": "1"}}
            send({"id": message["id"], "result": result})
        elif method == "tools/list":
            send({"id": message["id"], "result": {"tools": [{"name": "pid", "inputSchema": {"type": "object"}}]}})
        elif method == "ping":
            send({"id": message["id"], "result": {}})
        elif method == "tools/call":
            call(message)
        elif method == "tasks/get" and message["params"]["taskId"] in begun:
            send({"id": message["id"], "result": task(message["params"]["taskId"])})
        elif method == "tasks/get":
            send({"id": message["id"], "error": {"code": -32602, "message": "the process knows no such task"}})
        elif method == "logging/setLevel" and any(os.path.exists(flag[9:]) for flag in flags if flag.startswith("reticent=")):
            # Answered only until there is this file.
            pass
        elif method == "logging/setLevel" and "discreet" in flags and message["params"]["level"] == "debug":
            send({"id": message["id"], "error": {"code": -32602, "message": "not that much"}})
        elif method == "logging/setLevel" and "sulky" in flags and "debug" in (level, message["params"]["level"]):
            # And not the next one either.
            level = None if level == "debug" else "debug"
            send({"id": message["id"], "error": {"code": -32602, "message": "not any more"}})
        elif method == "logging/setLevel":
            level = message["params"]["level"]
            # More than there is room for on its way to a client that does not read.
            for number in range(4_000 if "effusive" in flags else 0):
                note("notifications/message", level=level, logger=str(number), data="x" * 4_000)
            send({"id": message["id"], "result": {}})
        elif method == "resources/subscribe" and "tardy" in flags and not tardy:
            # Done after whatever is asked for next.
            tardy.append(message)
        elif method == "resources/subscribe":
            subscriptions.append(message["params"]["uri"])
            send({"id": message["id"], "result": {}})
            if "telling" in flags:
                note("notifications/resources/updated", uri=message["params"]["uri"])
            if "fragile" in flags:
                os._exit(1)
        elif method == "resources/unsubscribe":
            uri = message["params"]["uri"]
            if uri in subscriptions or "tardy" not in flags:
                subscriptions.remove(uri)
            send({"id": message["id"], "result": {}})
            for late in tardy:
                if late["id"] is not None:
                    subscriptions.append(late["params"]["uri"])
                    send({"id": late["id"], "result": {}})
                    late["id"] = None
        elif method == "resources/list":
            send({"id": message["id"], "result": {"resources": []}})
        elif method == "resources/templates/list":
            send({"id": message["id"], "result": {"resourceTemplates": []}})
        elif method in ("notifications/initialized", "notifications/roots/list_changed"):
            if "curious" in flags and method == "notifications/initialized" and "roots" in heard[-1]["capabilities"]:
                said = [{"id": "q", "method": "roots/list"}]
                if "inconstant" in flags:
                    said.append({"method": "notifications/cancelled", "params": {"requestId": "q"}})
                write(b"".join(json.dumps({"jsonrpc": "2.0", **it}).encode() + b"\n" for it in said))
                os.write(2, b"asked for roots\n")
            heard.append(method)
        elif method == "notifications/cancelled":
            cancelled.add(message["params"]["requestId"])
            if message["params"]["requestId"] in yielding:
                send({"id": message["params"]["requestId"], "error": {"code": 0, "message": "Request cancelled"}})
            if "frank" not in flags:
                continue
            os.write(2, b"cancelled %s\n" % json.dumps(message["params"]["requestId"]).encode())
        elif method == "server/discover":
            send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
        elif method is None and "curious" in flags:
            os.write(2, b"was answered: %s\n" % json.dumps(message.get("result", message.get("error"))).encode())


main()
