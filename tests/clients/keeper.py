"""The Python SDK, keeping a list of tools: prints its names, and again when it is told that they have changed.

The mode is the second argument: `legacy` or `auto`.
"""

import asyncio
import json
import sys

from mcp import Client

URL, MODE = sys.argv[1:3]


async def show(client):
    print(json.dumps(sorted(tool.name for tool in (await client.list_tools()).tools)), flush=True)


async def main():
    told = asyncio.Event()

    async def tell(message):
        if getattr(message, "method", None) == "notifications/tools/list_changed":
            told.set()

    async with Client(URL, mode=MODE, message_handler=tell) as client:
        if MODE == "legacy":
            await show(client)
            await told.wait()
        else:
            async with client.listen(tools_list_changed=True) as subscription:
                await show(client)
                await anext(aiter(subscription))
        await show(client)


asyncio.run(asyncio.wait_for(main(), 100))
