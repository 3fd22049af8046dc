// The TypeScript SDK of the v2 line, in the era that the third argument names: `legacy` or `modern`.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

import { drive } from "./drive.mjs";

const modern = process.argv[4] === "modern";
const options = modern ? { versionNegotiation: { mode: { pin: "2026-07-28" } } } : {};

await drive(async (url) => {
  const client = new Client({ name: "lictor-driver", version: "1.0.0" }, options);
  await client.connect(new StreamableHTTPClientTransport(url));
  return {
    list: () => client.listTools(),
    call: (name, onprogress) =>
      client.callTool({ name, arguments: {} }, { onprogress, timeout: 10_000 }),
    close: () => client.close(),
  };
});
