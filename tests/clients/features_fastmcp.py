"""The fastmcp client, doing all it can in the mode of the second argument: `legacy` or `auto`."""

import asyncio
import contextlib
import sys

import features
from fastmcp import Client

URL, MODE = sys.argv[1:3]


class Adapter:
    sessions = True

    def __init__(self, client):
        self.client = client
        self.ping = client.ping
        self.set_level = client.set_logging_level
        self.list_tools = client.list_tools
        self.list_resources = client.list_resources
        self.list_templates = client.list_resource_templates
        self.list_prompts = client.list_prompts
        self.read = client.read_resource

    async def call(self, name, arguments=None, progress=None, meta=None):
        return await self.client.call_tool(
            name, arguments or {}, progress_handler=progress, meta=meta, raise_on_error=False
        )

    async def get_prompt(self, name, arguments):
        return (await self.client.get_prompt(name, arguments)).messages

    async def complete(self, ref, argument):
        return (await self.client.complete(ref, argument)).values

    async def subscribe(self, _uri):
        raise features.NotOffered

    def listen(self, **_wanted):
        raise features.NotOffered


@contextlib.asynccontextmanager
async def connect(news):
    async def sample(_messages, _params, _context):
        return features.sampled()

    async def elicit(_message, _response_type, params, _context):
        return features.elicited(params)

    async with Client(
        URL,
        mode=MODE,
        message_handler=news.tell,
        sampling_handler=sample,
        elicitation_handler=elicit,
        roots=features.roots().roots,
    ) as client:
        yield Adapter(client)


asyncio.run(asyncio.wait_for(features.features(connect, MODE != "legacy"), 60))
