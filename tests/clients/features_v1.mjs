// The TypeScript SDK of the v1 line, doing everything it can.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import * as schemas from "@modelcontextprotocol/sdk/types.js";

import { CAPABILITIES, features, transport as transportOf } from "./features.mjs";

// This line names its handlers by schemas.
const SCHEMAS = {
  "sampling/createMessage": schemas.CreateMessageRequestSchema,
  "elicitation/create": schemas.ElicitRequestSchema,
  "roots/list": schemas.ListRootsRequestSchema,
  "notifications/message": schemas.LoggingMessageNotificationSchema,
  "notifications/elicitation/complete": schemas.ElicitationCompleteNotificationSchema,
  "notifications/resources/updated": schemas.ResourceUpdatedNotificationSchema,
  "notifications/tools/list_changed": schemas.ToolListChangedNotificationSchema,
  "notifications/prompts/list_changed": schemas.PromptListChangedNotificationSchema,
};

const connect = async ({ answers, told, tell }) => {
  const info = { name: "lictor-features", version: "1.0.0" };
  const client = new Client(info, { capabilities: CAPABILITIES });
  for (const [method, answer] of Object.entries(answers)) {
    client.setRequestHandler(SCHEMAS[method], answer);
  }
  for (const method of told) client.setNotificationHandler(SCHEMAS[method], tell);
  const transport = transportOf(
    StreamableHTTPClientTransport,
    SSEClientTransport,
    StdioClientTransport,
  );
  // Not every transport remembers what was agreed on.
  let agreed;
  const agree = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (version) => {
    agreed = version;
    agree?.(version);
  };
  await client.connect(transport);
  return {
    client,
    transport,
    version: () => agreed,
    tasks: client.experimental.tasks,
    call: (name, given = {}, options = {}) =>
      client.callTool({ name, arguments: given }, undefined, options),
  };
};

await features(connect, { modern: false });
