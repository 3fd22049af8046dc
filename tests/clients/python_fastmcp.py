"""The fastmcp client, which chooses the protocol revision by itself."""

import asyncio
import sys

from fastmcp import Client

from drive import drive


async def main():
    async with Client(sys.argv[1]) as client:

        async def list_tools():
            return [tool.name for tool in await client.list_tools()]

        async def call(name, progress=None):
            result = await client.call_tool(name, {}, progress_handler=progress)
            return result.content

        await drive(list_tools, call)


asyncio.run(asyncio.wait_for(main(), 30))
