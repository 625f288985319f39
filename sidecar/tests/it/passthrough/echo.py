"""A server over stdio of one revision that answers requests with their parameters, byte for byte."""

import json
import sys

revision = sys.argv[1]
modern = revision >= "2026"
capabilities = {"tools": {}}
me = {"name": "echo", "version": "1"}


def answer(id, member, text):
    sys.stdout.buffer.write(b'{"jsonrpc":"2.0","id":%s,"%s":%s}\n' % (id, member, text))
    sys.stdout.buffer.flush()


for line in sys.stdin.buffer:
    if "noisy" in sys.argv:
        # What people write when nothing is wrong, and what they write when something is.
        sys.stderr.write("info: a message has come\nFATAL ERROR: panic: Traceback (most recent call last)\n")
        sys.stderr.flush()
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    method, id = message["method"], json.dumps(message["id"]).encode()
    if method in ("tools/call", "prompts/get", "resources/read", "completion/complete"):
        # The first of these words is the member's name: what may stand before it holds none of them.
        start = line.index(b'"params":') + len(b'"params":')
        text = line[start:].decode()
        skipped = len(text) - len(text.lstrip())
        _, end = json.JSONDecoder().raw_decode(text, skipped)
        answer(id, b"result", text[skipped:end].encode())
    elif method == "server/discover" and modern:
        result = {"resultType": "complete", "supportedVersions": [revision], "capabilities": capabilities}
        result |= {"ttlMs": 0, "cacheScope": "private", "_meta": {"io.modelcontextprotocol/serverInfo": me}}
        answer(id, b"result", json.dumps(result).encode())
    elif method == "initialize" and not modern:
        result = {"protocolVersion": revision, "capabilities": capabilities, "serverInfo": me}
        answer(id, b"result", json.dumps(result).encode())
    elif method == "ping" and not modern:
        answer(id, b"result", b"{}")
    elif method == "tools/list":
        result = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
        if modern:
            result |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        answer(id, b"result", json.dumps(result).encode())
    else:
        answer(id, b"error", b'{"code":-32601,"message":"Method not found"}')
