"""Tells Lictor which inbound call an outbound one is made for, exactly.

Lictor gives each inbound call a handle, as a member `lictor` of `tracestate` and of `baggage`, in
headers or in MCP's `_meta`. An agent that works on one call at a time needs no shim; one that works
on several puts a call's handle on what it does for that call:

    with caused_by(request.headers):  # or a tool's `_meta`; or `app = Inbound(app)` for all of ASGI
        await client.post(url)        # client = httpx.AsyncClient(event_hooks={"request": [mark]})
        await session.call_tool(name, meta=outgoing())

MCP's client sends from a task of its own, which doesn't know the cause: give it `meta`, not `mark`.
Use either only where all calls go through Lictor: it keeps the handle from leaving, others don't.
"""

import re
from contextlib import contextmanager
from contextvars import ContextVar

HANDLE = re.compile(r"(?:^|,)\s*lictor=([\w-]+)\s*(?=,|;|$)", re.ASCII)
_handle = ContextVar("lictor", default=None)


@contextmanager
def caused_by(carrier):
    """What is called within is called for the call with these headers, or this `_meta`."""
    found = [HANDLE.search(carrier.get(name) or "") for name in ("tracestate", "baggage")]
    token = _handle.set(next((match[1] for match in found if match), None))
    try:
        yield
    finally:
        _handle.reset(token)


def outgoing(carrier=None):
    """What to add to headers or `_meta`, in which other members of the two are kept."""
    if _handle.get() is None:
        return {}
    member, others = f"lictor={_handle.get()}", {}
    for name in ("tracestate", "baggage"):
        members = ((carrier or {}).get(name) or "").split(",")
        others[name] = [kept for kept in map(str.strip, members) if kept and not ours(kept)]
    return {name: ",".join([member, *kept]) for name, kept in others.items()}


def ours(member):
    return member.partition("=")[0].strip() == "lictor"


async def mark(request):
    """An event hook for requests of httpx."""
    request.headers.update(outgoing(request.headers))


class Inbound:
    """ASGI middleware: whatever a request's handler calls, it calls for that request."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        carrier = {}
        for name, value in scope.get("headers", ()):
            name = name.decode("latin-1").lower()
            carrier[name] = ",".join(filter(None, [carrier.get(name), value.decode("latin-1")]))
        with caused_by(carrier):
            await self.app(scope, receive, send)
