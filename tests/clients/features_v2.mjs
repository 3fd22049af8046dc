// The TypeScript SDK of the v2 line, doing everything it can in the era that the third argument
// names: `legacy` or `modern`.
import {
  Client,
  SSEClientTransport,
  StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

import { CAPABILITIES, features, transport as transportOf } from "./features.mjs";

const modern = process.argv[3] === "modern";
const negotiation = modern ? { versionNegotiation: { mode: { pin: "2026-07-28" } } } : {};

const connect = async ({ answers, told, tell }) => {
  const info = { name: "lictor-features", version: "1.0.0" };
  const client = new Client(info, { capabilities: CAPABILITIES, ...negotiation });
  for (const [method, answer] of Object.entries(answers)) client.setRequestHandler(method, answer);
  for (const method of told) client.setNotificationHandler(method, tell);
  const transport = transportOf(
    StreamableHTTPClientTransport,
    SSEClientTransport,
    StdioClientTransport,
  );
  await client.connect(transport);
  return {
    client,
    transport,
    version: () => client.getNegotiatedProtocolVersion(),
    call: (name, given = {}, options = {}, meta = undefined) =>
      client.callTool({ name, arguments: given, ...(meta && { _meta: meta }) }, options),
  };
};

await features(connect, { modern });
