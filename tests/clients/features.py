"""Everything that a client can do, for each Python client; the same arguments, steps and report as
`features.mjs`.
"""

import asyncio
import base64
import contextlib
import json

import mcp_types as types
from mcp.shared.exceptions import MCPError

PATIENCE = 20
WATCHED = "test://watched-resource"
FORM_VALUES = {"string": "Ada", "boolean": True, "integer": 7, "number": 7}
LOG_LEVEL = {"io.modelcontextprotocol/logLevel": "info"}
LEGACY = {"ping", "server_ping", "resume"}
SESSION = {"resume"}
"""What only Streamable HTTP has."""
MODERN = {"mirrored_headers", "rounds", "prompt_rounds"}


class News:
    """The notifications that came."""

    def __init__(self):
        self.kept = []
        self._arrived = asyncio.Event()

    async def tell(self, message):
        if not isinstance(message, Exception):
            self.kept.append(message)
            self._arrived.set()

    def heard(self, method):
        return [one for one in self.kept if one.method == method]

    async def of(self, method):
        while not self.heard(method):
            self._arrived.clear()
            await self._arrived.wait()


class NotOffered(Exception):
    """The client's interface has no such thing."""


def sampled():
    return types.CreateMessageResult(
        role="assistant", model="none", content=types.TextContent(type="text", text="Paris")
    )


def elicited(params):
    if params.mode == "url":
        return types.ElicitResult(action="accept")
    fields = params.requested_schema["properties"]
    content = {name: FORM_VALUES[field["type"]] for name, field in fields.items()}
    return types.ElicitResult(action="accept", content=content)


def roots():
    return types.ListRootsResult(roots=[types.Root(uri="file:///workspace", name="workspace")])


class Features:
    """The features, in the order of their definition. `adapter` gives all clients one interface."""

    def __init__(self, adapter, news, modern):
        self.adapter = adapter
        self.call = adapter.call
        self.news = news
        self.modern = modern

    async def run(self):
        seen = {}
        for name, feature in list(vars(Features).items()):
            skipped = name in (LEGACY if self.modern else MODERN)
            skipped = skipped or (name in SESSION and not self.adapter.sessions)
            if name.startswith("_") or name == "run" or skipped:
                continue
            try:
                seen[name] = await asyncio.wait_for(feature(self), PATIENCE)
            except NotOffered:
                pass
            except TimeoutError:
                seen[name] = {"error": "nothing happened"}
            except Exception as error:
                seen[name] = {"error": f"{getattr(error, 'code', type(error).__name__)}: {error}"}
        return seen

    async def connect(self):
        client = self.adapter.client
        detail = plain([client.server_info, client.server_capabilities])
        version = "2026-07-28" if self.modern else "2025-11-25"
        seen = client.protocol_version == version
        return {"seen": seen, "detail": [*detail, client.instructions]}

    async def ping(self):
        await self.adapter.ping()
        return {"seen": 0}

    async def list_tools(self):
        tools = await self.adapter.list_tools()
        found = any(tool.name == "test_simple_text" for tool in tools)
        # The one that may be hidden on the way.
        rest = [tool for tool in tools if tool.name != "test_refused"]
        return {"seen": found, "detail": plain(rest)}

    async def call(self):
        return {"seen": text(await self.call("test_simple_text"))}

    async def arguments(self):
        return {"seen": text(await self.call("test_echo", {"text": "Grüße, 世界 🌍"}))}

    async def large(self):
        sent = "0123456789abcdef" * (1 << 15)
        return {"seen": text(await self.call("test_echo", {"text": sent})) == sent}

    async def many(self):
        calls = [self.call("test_echo", {"text": f"call {index}"}) for index in range(12)]
        return {"seen": [text(result) for result in await asyncio.gather(*calls)]}

    async def content(self):
        return blocks(await self.call("test_multiple_content_types"))

    async def audio(self):
        return blocks(await self.call("test_audio_content"))

    async def structured(self):
        return {"seen": (await self.call("test_structured_content")).structured_content}

    async def tool_error(self):
        result = await self.call("test_error_handling")
        return {"seen": result.is_error, "detail": plain(result.content)}

    async def protocol_error(self):
        return await code(self.call("test_unknown_tool"))

    async def progress(self):
        seen = []

        async def on_progress(progress, _total, _message):
            seen.append(int(progress))

        await self.call("test_tool_with_progress", progress=on_progress)
        return {"seen": seen}

    async def logging(self):
        if not self.modern:
            await self.adapter.set_level("info")
        await self.call("test_tool_with_logging", meta=LOG_LEVEL if self.modern else None)
        return {"seen": [one.params.data for one in self.news.heard("notifications/message")]}

    async def mirrored_headers(self):
        return {"seen": text(await self.call("test_x_mcp_header", {"region": "Nürnberg"}))}

    async def list_resources(self):
        return names(await self.adapter.list_resources())

    async def list_templates(self):
        return names(await self.adapter.list_templates())

    async def read_text(self):
        contents = await self.adapter.read("test://static-text")
        return {"seen": [len(content.text) for content in contents], "detail": plain(contents)}

    async def read_binary(self):
        contents = await self.adapter.read("test://static-binary")
        sizes = [len(base64.b64encode(base64.b64decode(content.blob))) for content in contents]
        return {"seen": sizes, "detail": plain(contents)}

    async def read_template(self):
        contents = await self.adapter.read("test://template/42/data")
        return {"seen": [len(content.text) for content in contents], "detail": plain(contents)}

    async def resource_error(self):
        return await code(self.adapter.read("test://nothing"))

    async def list_prompts(self):
        return names(await self.adapter.list_prompts())

    async def get_prompt(self):
        given = {"arg1": "one", "arg2": "two"}
        messages = await self.adapter.get_prompt("test_prompt_with_arguments", given)
        return {"seen": [one.content.text for one in messages], "detail": plain(messages)}

    async def complete(self):
        prompt = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
        template = types.ResourceTemplateReference(
            type="ref/resource", uri="test://template/{id}/data"
        )
        return {
            "seen": [
                await self.adapter.complete(prompt, {"name": "arg1", "value": "par"}),
                await self.adapter.complete(template, {"name": "id", "value": "par"}),
            ]
        }

    async def sampling(self):
        if self.modern:
            answer = await self.call("test_input_required_result_sampling")
        else:
            answer = await self.call("test_sampling", {"prompt": "The capital of France?"})
        return {"seen": "Paris" in text(answer)}

    async def elicitation_form(self):
        if self.modern:
            answer = await self.call("test_input_required_result_elicitation")
        else:
            answer = await self.call("test_elicitation", {"message": "Who is it?"})
        return {"seen": "Ada" in text(answer)}

    async def elicitation_url(self):
        tool = "test_input_required_result_url" if self.modern else "test_elicitation_url"
        return {"seen": text(await self.call(tool))}

    async def roots(self):
        tool = "test_input_required_result_list_roots" if self.modern else "test_roots"
        return {"seen": "file:///workspace" in text(await self.call(tool))}

    async def rounds(self):
        answer = text(await self.call("test_input_required_result_multi_round"))
        return {"seen": answer.startswith("state-ok")}

    async def prompt_rounds(self):
        messages = await self.adapter.get_prompt("test_input_required_result_prompt", {})
        return {"seen": [one.content.text for one in messages]}

    async def server_ping(self):
        return {"seen": text(await self.call("test_ping_client"))}

    async def cancel(self):
        started = asyncio.Event()

        async def on_progress(_progress, _total, _message):
            started.set()

        running = asyncio.create_task(self.call("test_cancellable", progress=on_progress))
        await started.wait()
        running.cancel()
        try:
            ended = text(await running)
        except asyncio.CancelledError:
            ended = "raised"
        return {"seen": [ended, text(await self.call("test_cancelled"))]}

    async def resume(self):
        return {"seen": text(await self.call("test_reconnection"))}

    async def tools_changed(self):
        wanted = {"tools_list_changed": True}
        return await self._told("tools/list_changed", wanted, "test_trigger_tool_change")

    async def prompts_changed(self):
        wanted = {"prompts_list_changed": True}
        return await self._told("prompts/list_changed", wanted, "test_trigger_prompt_change")

    async def resource_changed(self):
        if not self.modern:
            await self.adapter.subscribe(WATCHED)
        wanted = {"resource_subscriptions": [WATCHED]}
        trigger = ("test_trigger_resource_change", {"uri": WATCHED})
        seen = await self._told("resources/updated", wanted, *trigger)
        if not self.modern:
            await self.adapter.unsubscribe(WATCHED)
        return seen

    async def _told(self, kind, wanted, *trigger):
        """Subscribes in the way of the era, makes the server announce something, waits for it."""
        if self.modern:
            async with self.adapter.listen(**wanted) as subscription:
                await self.call(*trigger)
                await anext(aiter(subscription))
            return {"seen": 1}
        method = f"notifications/{kind}"
        await self.call(*trigger)
        await self.news.of(method)
        return {"seen": len(self.news.heard(method))}


async def code(attempt):
    try:
        await attempt
        return {"seen": "no error"}
    except MCPError as error:
        code = -32602 if error.code == -32002 else error.code
        return {"seen": code, "detail": [error.code, error.message, error.data]}


def names(items):
    return {"seen": sorted(item.name for item in items), "detail": plain(items)}


def blocks(result):
    return {"seen": [block.type for block in result.content], "detail": plain(result.content)}


def text(result):
    return " ".join(getattr(block, "text", block.type) for block in result.content)


def plain(items):
    return [item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in items]


async def features(connect, modern):
    """Prints what the client that `connect` makes saw. It is given a place for notifications."""
    news = News()
    async with contextlib.AsyncExitStack() as stack:
        adapter = await stack.enter_async_context(connect(news))
        print(json.dumps(await Features(adapter, news, modern).run()), flush=True)
