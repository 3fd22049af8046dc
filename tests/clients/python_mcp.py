"""The Python SDK, in the mode that the third argument names: `legacy`, `auto` or a pinned revision."""

import asyncio
import sys

from mcp import Client

from drive import drive


async def main():
    async with Client(sys.argv[1], mode=sys.argv[3]) as client:

        async def list_tools():
            return [tool.name for tool in (await client.list_tools()).tools]

        async def call(name, progress=None):
            result = await client.call_tool(name, {}, progress_callback=progress)
            return result.content

        await drive(list_tools, call)


asyncio.run(asyncio.wait_for(main(), 30))
