"""What every Python client is put through; the same steps and the same report as `drive.mjs`."""

import json
import sys

from mcp.shared.exceptions import MCPError


async def drive(list_tools, call):
    plan = json.loads(sys.argv[2])
    seen = {"progress": [], "refusal": None}

    async def on_progress(progress, _total, _message):
        seen["progress"].append(progress)

    seen["tools"] = await list_tools()
    seen["before"] = text(await call(plan["allowed"]))
    seen["streamed"] = text(await call(plan["streaming"], on_progress))
    try:
        await call(plan["refused"])
    except MCPError as error:
        seen["refusal"] = {"code": error.code, "message": error.message, "data": error.data}
    seen["after"] = text(await call(plan["allowed"]))
    print(json.dumps(seen), flush=True)


def text(content):
    return "".join(getattr(block, "text", "") for block in content)
