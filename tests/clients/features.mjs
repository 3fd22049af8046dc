// Everything that a client can do, one feature after the other on one client object, for each
// TypeScript client. The first argument is where the server is: a URL, `sse+URL`, or a command as a
// JSON list, which the client starts. A third argument `everything` says that it is the everything
// server, no fixture. Prints one line of JSON: for each feature either what was `seen`, in words
// that don't depend on client or server, with whatever more there is in `detail`, or the `error`
// that it ended in. A feature that the client's interface doesn't have is left out. Judging it all
// is the caller's business.
import { EventEmitter, once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";

import { EVERYTHING } from "./everything.mjs";

const PATIENCE = 20_000;
const WATCHED = "test://watched-resource";
export const CAPABILITIES = {
  elicitation: { form: {}, url: {} },
  roots: { listChanged: true },
  sampling: {},
};

// What the client answers when a server asks for something.
const ANSWERS = {
  "sampling/createMessage": () => ({
    role: "assistant",
    model: "none",
    content: { type: "text", text: "Paris" },
  }),
  "elicitation/create": ({ params }) =>
    params.mode === "url" ? { action: "accept" } : { action: "accept", content: filled(params) },
  "roots/list": () => ({ roots: [{ uri: "file:///workspace", name: "workspace" }] }),
};
const TOLD = [
  "notifications/message",
  "notifications/elicitation/complete",
  "notifications/resources/updated",
  "notifications/tools/list_changed",
  "notifications/prompts/list_changed",
];

function filled({ requestedSchema }) {
  const values = { string: "Ada", boolean: true, integer: 7, number: 7 };
  const answer = ([name, { type }]) => [name, values[type]];
  return Object.fromEntries(Object.entries(requestedSchema.properties).map(answer));
}

const text = ({ content }) => content.map((block) => block.text ?? block.type).join(" ");
const names = (list) => list.map(({ name, uri }) => name ?? uri).sort();

// `modern` is the era of the connection; `call(name, arguments, options)` calls a tool.
const FEATURES = {
  connect: ({ client, version, modern }) => ({
    seen: version() === (modern ? "2026-07-28" : "2025-11-25"),
    detail: [client.getServerVersion(), client.getServerCapabilities(), client.getInstructions()],
  }),
  ping: async ({ client }) => ({ seen: Object.keys(await client.ping()).length }),
  list_tools: async ({ client }) => {
    const { tools } = await client.listTools();
    const found = tools.some(({ name }) => name === "test_simple_text");
    // The one that may be hidden on the way.
    return { seen: found, detail: tools.filter(({ name }) => name !== "test_refused") };
  },
  call: async ({ call }) => ({ seen: text(await call("test_simple_text")) }),
  arguments: async ({ call }) => ({ seen: text(await call("test_echo", { text: "Grüße, 世界 🌍" })) }),
  large: async ({ call }) => {
    const sent = "0123456789abcdef".repeat(1 << 15);
    return { seen: text(await call("test_echo", { text: sent })) === sent };
  },
  many: async ({ call }) => {
    const sent = Array.from({ length: 12 }, (_, index) => `call ${index}`);
    const answers = sent.map((line) => call("test_echo", { text: line }));
    return { seen: (await Promise.all(answers)).map(text) };
  },
  content: ({ call }) => blocks(call("test_multiple_content_types")),
  audio: ({ call }) => blocks(call("test_audio_content")),
  structured: async ({ call }) => {
    const { structuredContent } = await call("test_structured_content");
    return { seen: structuredContent };
  },
  tool_error: async ({ call }) => {
    const result = await call("test_error_handling");
    return { seen: result.isError, detail: result };
  },
  protocol_error: ({ call }) => code(() => call("test_unknown_tool")),
  progress: async ({ call }) => {
    const seen = [];
    const onprogress = ({ progress }) => seen.push(progress);
    await call("test_tool_with_progress", {}, { onprogress });
    return { seen };
  },
  logging: async ({ client, call, modern, heard }) => {
    if (!modern) await client.setLoggingLevel("info");
    const level = { "io.modelcontextprotocol/logLevel": "info" };
    await call("test_tool_with_logging", {}, {}, modern ? level : undefined);
    return { seen: heard("notifications/message").map(({ params }) => params.data) };
  },
  mirrored_headers: async ({ call }) => ({
    seen: text(await call("test_x_mcp_header", { region: "Nürnberg" })),
  }),
  list_resources: async ({ client }) => {
    const { resources } = await client.listResources();
    return { seen: names(resources), detail: resources };
  },
  list_templates: async ({ client }) => {
    const { resourceTemplates } = await client.listResourceTemplates();
    return { seen: names(resourceTemplates), detail: resourceTemplates };
  },
  read_text: async ({ client }) => read(client, "test://static-text", "text"),
  read_binary: async ({ client }) => read(client, "test://static-binary", "blob"),
  read_template: async ({ client }) => read(client, "test://template/42/data", "text"),
  resource_error: ({ client }) => code(() => client.readResource({ uri: "test://nothing" })),
  list_prompts: async ({ client }) => {
    const { prompts } = await client.listPrompts();
    return { seen: names(prompts), detail: prompts };
  },
  get_prompt: async ({ client }) => {
    const given = { arg1: "one", arg2: "two" };
    const detail = await client.getPrompt({ name: "test_prompt_with_arguments", arguments: given });
    return { seen: detail.messages.map(({ content }) => content.text), detail };
  },
  complete: async ({ client }) => {
    const refs = [
      { type: "ref/prompt", name: "test_prompt_with_arguments" },
      { type: "ref/resource", uri: "test://template/{id}/data" },
    ];
    const seen = [];
    for (const ref of refs) {
      const argument = { name: ref.name ? "arg1" : "id", value: "par" };
      seen.push((await client.complete({ ref, argument })).completion.values);
    }
    return { seen };
  },
  sampling: async ({ call, modern }) => ({
    seen: (modern
      ? text(await call("test_input_required_result_sampling"))
      : text(await call("test_sampling", { prompt: "The capital of France?" }))
    ).includes("Paris"),
  }),
  elicitation_form: async ({ call, modern }) => ({
    seen: modern
      ? text(await call("test_input_required_result_elicitation")).includes("Ada")
      : text(await call("test_elicitation", { message: "Who is it?" })).includes("Ada"),
  }),
  elicitation_url: async ({ call, modern }) => ({
    seen: text(await call(modern ? "test_input_required_result_url" : "test_elicitation_url")),
  }),
  roots: async ({ call, modern }) => {
    const tool = modern ? "test_input_required_result_list_roots" : "test_roots";
    return { seen: text(await call(tool)).includes("file:///workspace") };
  },
  rounds: async ({ call }) => ({
    seen: text(await call("test_input_required_result_multi_round")).startsWith("state-ok"),
  }),
  prompt_rounds: async ({ client }) => {
    const { messages } = await client.getPrompt({ name: "test_input_required_result_prompt" });
    return { seen: messages.map(({ content }) => content.text) };
  },
  server_ping: async ({ call }) => ({ seen: text(await call("test_ping_client")) }),
  cancel: async ({ call }) => {
    const abort = new AbortController();
    const options = { signal: abort.signal, onprogress: () => abort.abort("no longer wanted") };
    const ended = await call("test_cancellable", {}, options).then(text, () => "raised");
    return { seen: [ended, text(await call("test_cancelled"))] };
  },
  resume: async ({ call }) => ({ seen: text(await call("test_reconnection")) }),
  tools_changed: (about) => told(about, "tools/list_changed", { toolsListChanged: true }),
  prompts_changed: (about) => told(about, "prompts/list_changed", { promptsListChanged: true }),
  resource_changed: async (about) => {
    if (!about.modern) await about.client.subscribeResource({ uri: WATCHED });
    const filter = { resourceSubscriptions: [WATCHED] };
    const { seen } = await told(about, "resources/updated", filter);
    if (!about.modern) await about.client.unsubscribeResource({ uri: WATCHED });
    return { seen };
  },
  end_session: async ({ transport, call }) => {
    await transport.terminateSession();
    const ended = transport.sessionId === undefined;
    return { seen: ended, detail: await call("test_simple_text").then(text, ({ code }) => code) };
  },
};
const TRIGGERS = {
  "tools/list_changed": ["test_trigger_tool_change"],
  "prompts/list_changed": ["test_trigger_prompt_change"],
  "resources/updated": ["test_trigger_resource_change", { uri: WATCHED }],
};
const LEGACY = ["ping", "server_ping", "resume", "end_session"];
const SESSION = ["resume", "end_session"];
const MODERN = ["mirrored_headers", "rounds", "prompt_rounds"];

async function blocks(called) {
  const { content } = await called;
  return { seen: content.map(({ type }) => type), detail: content };
}

async function read(client, uri, kind) {
  const { contents } = await client.readResource({ uri });
  return { seen: contents.map((content) => content[kind].length), detail: contents };
}

async function code(attempt) {
  try {
    await attempt();
    return { seen: "no error" };
  } catch ({ code, message, data }) {
    return { seen: code === -32002 ? -32602 : code, detail: { code, message, data } };
  }
}

// Subscribes in the way of the era, makes the server announce something, and waits for the news.
async function told({ client, call, modern, news, heard }, kind, filter) {
  const method = `notifications/${kind}`;
  const subscription = modern ? await client.listen(filter) : undefined;
  const arrives = once(news, method);
  await call(...TRIGGERS[kind]);
  await arrives;
  // News that comes twice would come within this time.
  await sleep(50);
  await subscription?.close();
  return { seen: heard(method).length };
}

// The transport that the first argument is for, out of the client's own classes.
export function transport(Http, Sse, Stdio) {
  const [, , target] = process.argv;
  if (target.startsWith("[")) {
    const [command, ...args] = JSON.parse(target);
    return new Stdio({ command, args });
  }
  if (target.startsWith("sse+")) return new Sse(new URL(target.slice("sse+".length)));
  return new Http(new URL(target));
}

// `connect` makes a client that answers requests by `answers` and gives each notification in `told`
// to `tell`.
export async function features(connect, { modern }) {
  const news = new EventEmitter();
  const kept = [];
  const tell = (notification) => {
    kept.push(notification);
    news.emit(notification.method, notification);
  };
  const connection = await connect({ answers: ANSWERS, told: TOLD, tell });
  const heard = (method) => kept.filter((one) => one.method === method);
  const about = { ...connection, modern, news, heard };

  const seen = {};
  const all = process.argv[4] === "everything" ? EVERYTHING : FEATURES;
  for (const [name, run] of Object.entries(all)) {
    if ((modern ? LEGACY : MODERN).includes(name)) continue;
    // Only Streamable HTTP has sessions that are ended and streams that are resumed.
    if (!connection.transport.terminateSession && SESSION.includes(name)) continue;
    const late = sleep(PATIENCE).then(() => ({ error: "nothing happened" }));
    const failed = (error) => ({ error: `${error.code ?? error.name}: ${error.message}` });
    seen[name] = await Promise.race([Promise.resolve(about).then(run).catch(failed), late]);
  }
  await connection.client.close().catch(() => {});
  console.log(JSON.stringify(seen));
  process.exit(0);
}
