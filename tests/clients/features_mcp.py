"""The Python SDK, doing all it can in the mode of the second argument: `legacy` or `auto`."""

import asyncio
import contextlib
import json
import sys

import features
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client

TARGET, MODE = sys.argv[1:3]


def transport():
    if TARGET.startswith("["):
        command, *arguments = json.loads(TARGET)
        return StdioServerParameters(command=command, args=arguments)
    if TARGET.startswith("sse+"):
        return sse_client(TARGET.removeprefix("sse+"))
    return TARGET


class Adapter:
    sessions = TARGET.startswith("http")

    def __init__(self, client):
        self.client = client
        self.ping = client.send_ping
        self.set_level = client.set_logging_level
        self.subscribe = client.subscribe_resource
        self.unsubscribe = client.unsubscribe_resource
        self.listen = client.listen

    async def call(self, name, arguments=None, progress=None, meta=None):
        return await self.client.call_tool(
            name, arguments or {}, progress_callback=progress, meta=meta
        )

    async def list_tools(self):
        return (await self.client.list_tools()).tools

    async def list_resources(self):
        return (await self.client.list_resources()).resources

    async def list_templates(self):
        return (await self.client.list_resource_templates()).resource_templates

    async def read(self, uri):
        return (await self.client.read_resource(uri)).contents

    async def list_prompts(self):
        return (await self.client.list_prompts()).prompts

    async def get_prompt(self, name, arguments):
        return (await self.client.get_prompt(name, arguments)).messages

    async def complete(self, ref, argument):
        return (await self.client.complete(ref, argument)).completion.values


@contextlib.asynccontextmanager
async def connect(news):
    async def sample(_context, _params):
        return features.sampled()

    async def elicit(_context, params):
        return features.elicited(params)

    async def list_roots(_context):
        return features.roots()

    async with Client(
        transport(),
        mode=MODE,
        message_handler=news.tell,
        sampling_callback=sample,
        elicitation_callback=elicit,
        list_roots_callback=list_roots,
    ) as client:
        yield Adapter(client)


asyncio.run(asyncio.wait_for(features.features(connect, MODE != "legacy"), 60))
