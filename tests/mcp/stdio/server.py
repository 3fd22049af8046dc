"""An MCP server on standard input and output, whose tools do what tests want to see.

Serves both eras. Every tool answers with one text; `seen` tells which lines came in, as they came.
"""

import json
import os
import subprocess
import sys
import threading
import time

lock = threading.Lock()
seen: list[str] = []
held: list[dict] = []
answers: dict[str, threading.Event] = {}
answered: dict[str, dict] = {}


def write(message) -> None:
    raw(json.dumps({"jsonrpc": "2.0", **message}))


def raw(line: str) -> None:
    with lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def reply(request, text) -> None:
    content = [{"type": "text", "text": text if isinstance(text, str) else json.dumps(text)}]
    write({"id": request["id"], "result": {"resultType": "complete", "content": content}})


QUESTIONS = {
    "sampling/createMessage": {"messages": [], "maxTokens": 8},
    "elicitation/create": {
        "message": "well?",
        "requestedSchema": {"type": "object", "properties": {}},
    },
}


def ask(method: str, key: str) -> dict:
    answers[key] = threading.Event()
    write({"id": key, "method": method, "params": QUESTIONS.get(method, {})})
    answers[key].wait(20)
    return answered.get(key, {})


def call(request) -> None:
    params = request["params"]
    arguments = params.get("arguments", {})
    token = params.get("_meta", {}).get("progressToken")
    match params["name"]:
        case "echo":
            reply(request, arguments)
        case "pid":
            reply(request, str(os.getpid()))
        case "seen":
            reply(request, seen)
        case "env":
            reply(request, dict(os.environ))
        case "where":
            reply(request, os.getcwd())
        case "progress":
            for step in range(arguments.get("steps", 3)):
                time.sleep(arguments.get("pause", 0))
                progress = {"progressToken": token, "progress": step}
                write({"method": "notifications/progress", "params": progress})
            reply(request, "done")
        case "stray":
            for stray in (token, 4711, "invented"):
                params = {"progressToken": stray, "progress": 1}
                write({"method": "notifications/progress", "params": params})
            reply(request, "done")
            late = {"progressToken": token, "progress": 2}
            write({"method": "notifications/progress", "params": late})
        case "ask":
            reply(request, ask(arguments["method"], arguments.get("key", "q-1")))
        case "later":
            time.sleep(arguments["seconds"])
            reply(request, "late")
        case "swap":
            # The first waits for the second, and is answered after it.
            held.append(request)
            if len(held) == 2:
                for one in reversed(held):
                    reply(one, one["params"]["arguments"])
                held.clear()
        case "hang":
            pass
        case "log":
            write({"method": "notifications/message", "params": {"level": "info", "data": "x"}})
            reply(request, "logged")
        case "crash":
            os._exit(3)
        case "chatter":
            raw("this is no message")
            raw("")
            reply(request, "done")
        case "broken":
            raw('{"jsonrpc":"2.0","id":')
        case "huge":
            raw('{"jsonrpc":"2.0","result":"' + "x" * (17 << 20) + '"}')
        case "flood":
            for line in range(20_000):
                print(f"line {line}", file=sys.stderr)
            reply(request, "done")
        case "fork":
            command = "trap '' TERM HUP; sleep 600 & wait"
            child = subprocess.Popen(["sh", "-c", command], stdout=sys.stdout)
            reply(request, str(child.pid))
        case "deaf":
            reply(request, "done")
            threading.Event().wait()
        case other:
            error = {"code": -32602, "message": f"no tool `{other}`"}
            write({"id": request["id"], "error": error})


def listen(request) -> None:
    meta = {"io.modelcontextprotocol/subscriptionId": request["id"]}
    wanted = request["params"]["notifications"]
    acknowledged = "notifications/subscriptions/acknowledged"
    write({"method": acknowledged, "params": {"_meta": meta, "notifications": wanted}})
    write({"method": "notifications/tools/list_changed", "params": {"_meta": meta}})


def handle(message) -> None:
    method = message.get("method")
    if method is None:
        answered[message["id"]] = message
        answers[message["id"]].set()
    elif method == "initialize":
        if message["params"].get("refuse"):
            write({"id": message["id"], "error": {"code": -32602, "message": "no"}})
        elif not message["params"].get("silent"):
            version = message["params"].get("protocolVersion", "2025-11-25")
            server = {"name": "scripted", "version": "1"}
            result = {"protocolVersion": version, "capabilities": {}, "serverInfo": server}
            write({"id": message["id"], "result": result})
    elif method == "notifications/initialized" and "--eager" in sys.argv:
        write({"method": "notifications/tools/list_changed"})
    elif method == "server/discover" and "--sessions" not in sys.argv:
        result = {"resultType": "complete", "supportedVersions": ["2026-07-28"]}
        write({"id": message["id"], "result": result | {"capabilities": {}}})
    elif method == "tools/list":
        write({"id": message["id"], "result": {"tools": [{"name": "echo"}, {"name": "wipe"}]}})
    elif method == "tools/call":
        if message["params"]["name"] in ("swap", "deaf", "crash"):
            call(message)
        else:
            threading.Thread(target=call, args=(message,), daemon=True).start()
    elif method == "subscriptions/listen":
        listen(message)
    elif "id" in message:
        write({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})


if "--crash" in sys.argv:
    sys.exit(4)
print("scripted server up", file=sys.stderr, flush=True)
for received in sys.stdin:
    seen.append(received.rstrip("\n"))
    handle(json.loads(received))
if "--stays" in sys.argv:
    threading.Event().wait()
