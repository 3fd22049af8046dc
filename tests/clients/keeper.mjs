// A TypeScript SDK, keeping a list of tools: prints its names, and again when it is told that they have
// changed. The second argument says which: `v1`, or `legacy` or `modern` of the v2 line.
import { once, EventEmitter } from "node:events";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as OldTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const [, , url, kind] = process.argv;
const METHOD = "notifications/tools/list_changed";
const info = { name: "lictor-keeper", version: "1.0.0" };
const news = new EventEmitter();
const tell = () => void news.emit("changed");

const connect = async () => {
  if (kind === "v1") {
    const client = new OldClient(info);
    client.setNotificationHandler(ToolListChangedNotificationSchema, tell);
    await client.connect(new OldTransport(new URL(url)));
    return client;
  }
  const options =
    kind === "modern" ? { versionNegotiation: { mode: { pin: "2026-07-28" } } } : {};
  const client = new Client(info, options);
  client.setNotificationHandler(METHOD, tell);
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return client;
};

const show = async (client) => {
  const { tools } = await client.listTools();
  console.log(JSON.stringify(tools.map(({ name }) => name).sort()));
};

setTimeout(() => process.exit(1), 100_000).unref();
const client = await connect();
if (kind === "modern") await client.listen({ toolsListChanged: true });
const changed = once(news, "changed");
await show(client);
await changed;
await show(client);
await client.close();
process.exit(0);
