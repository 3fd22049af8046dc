// The TypeScript SDK of the v1 line, doing everything it can.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import * as schemas from "@modelcontextprotocol/sdk/types.js";

import { CAPABILITIES, features } from "./features.mjs";

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

const connect = async (url, { answers, told, tell }) => {
  const info = { name: "lictor-features", version: "1.0.0" };
  const client = new Client(info, { capabilities: CAPABILITIES });
  for (const [method, answer] of Object.entries(answers)) {
    client.setRequestHandler(SCHEMAS[method], answer);
  }
  for (const method of told) client.setNotificationHandler(SCHEMAS[method], tell);
  const transport = new StreamableHTTPClientTransport(url);
  await client.connect(transport);
  return {
    client,
    transport,
    version: () => transport.protocolVersion,
    call: (name, given = {}, options = {}) =>
      client.callTool({ name, arguments: given }, undefined, options),
  };
};

await features(connect, { modern: false });
