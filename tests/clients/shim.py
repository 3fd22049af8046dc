"""The Python shim within one process: by MCP's `_meta`, and as middleware of requests.

Each of two calls that are under way at once has a handle, or none, and calls on; prints what those
calls arrived with, as one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import httpx
import mcp_types as types
from mcp import Client
from mcp.server.lowlevel import Server
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

sys.path.append(str(Path(__file__).parents[2] / "examples/shim"))
from lictor_shim import Inbound, caused_by, mark, outgoing

PATIENCE = 20
"""Seconds for all of it."""
HANDLES = ["one", "two", None]


async def no_tools(_ctx, _params):
    """Clients look a tool up once they have called it."""
    return types.ListToolsResult(tools=[])


def text(value):
    return types.CallToolResult(content=[types.TextContent(type="text", text=json.dumps(value))])


def carrier(handle):
    return {"tracestate": f"theirs=1,lictor={handle}"} if handle else {"tracestate": "theirs=1"}


async def by_meta():
    together = asyncio.Barrier(len(HANDLES))

    async def last(ctx, _params):
        return text({name: (ctx.meta or {}).get(name) for name in ("tracestate", "baggage")})

    async def first(ctx, _params):
        with caused_by(ctx.meta):
            await together.wait()
            return await near.call_tool("last", meta=outgoing({"tracestate": "mine=1"}) or None)

    servers = (Server("shim", on_list_tools=no_tools, on_call_tool=run) for run in (last, first))
    near, client = (Client(server) for server in servers)
    async with near, client:
        calls = (client.call_tool("first", meta=carrier(handle)) for handle in HANDLES)
        answers = await asyncio.gather(*calls)
    return [json.loads(answer.content[0].text) for answer in answers]


async def by_middleware():
    together = asyncio.Barrier(len(HANDLES))

    async def last(request):
        return JSONResponse({name: request.headers.get(name) for name in ("tracestate", "baggage")})

    async def first(_request):
        await together.wait()
        return JSONResponse((await near.get("http://last/")).json())

    def serve(handler):
        return httpx.ASGITransport(Inbound(Starlette(routes=[Route("/", handler)])))

    near = httpx.AsyncClient(transport=serve(last), event_hooks={"request": [mark]})
    async with near, httpx.AsyncClient(transport=serve(first)) as client:
        calls = (client.get("http://first/", headers=carrier(handle)) for handle in HANDLES)
        return [answer.json() for answer in await asyncio.gather(*calls)]


async def main():
    print(json.dumps({"meta": await by_meta(), "middleware": await by_middleware()}))


asyncio.run(asyncio.wait_for(main(), PATIENCE))
