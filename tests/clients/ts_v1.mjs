// The TypeScript SDK of the v1 line, as agents use it today: `initialize`, sessions, event streams.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

import { drive } from "./drive.mjs";

await drive(async (url) => {
  const client = new Client({ name: "lictor-driver", version: "1.0.0" });
  await client.connect(new StreamableHTTPClientTransport(url));
  return {
    list: () => client.listTools(),
    call: (name, onprogress) =>
      client.callTool({ name, arguments: {} }, undefined, { onprogress, timeout: 10_000 }),
    close: () => client.close(),
  };
});
