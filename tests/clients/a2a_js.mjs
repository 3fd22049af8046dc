// The JavaScript A2A SDK, doing everything it can with `tests/fixtures/a2a_agent.py`: the same
// options, steps and lines as `a2a_python.py`, but what was seen is written as this SDK has it. With
// `--http2` it speaks that where it is offered.
import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

import { Role, TaskState } from "@a2a-js/sdk";
import {
  ClientFactory,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory,
  ServiceParameters,
  withA2AExtensions,
} from "@a2a-js/sdk/client";
import { Agent, fetch as fetchBy } from "undici";

// Milliseconds for one step, and between two looks at a task that is expected to get somewhere.
const PATIENCE = 20_000;
const POLL = 20;
// No task has this name.
const NOWHERE = "00000000-0000-0000-0000-000000000000";
// Needs nobody to look it up, and the fixture calls nobody.
const HOOK_NAME = "hook";
const HOOK = "https://1.1.1.1/a2a";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    binding: { type: "string", default: "JSONRPC" },
    version: { type: "string", default: "1.0" },
    ca: { type: "string" },
    cert: { type: "string" },
    key: { type: "string" },
    http2: { type: "boolean", default: false },
    refused: { type: "boolean", default: false },
    steps: { type: "string" },
  },
});
const url = positionals[0].replace(/\/$/, "");
const { origin } = new URL(url);

const fetchImpl = await fetchFor(options);
const { client, raw } = await connect();
let asking;

const target = ({ id, contextId }) => ({ taskId: id, contextId });

const STEPS = {
  read_card: () => raw,
  send_message: () => send("hello"),
  send_task: () => send("task"),
  send_parts: () => send("task with parts", { more: parts() }),
  stream_parts: () => stream("task with parts", { more: parts() }),
  stream_task: () => stream("pieces"),
  stream_message: () => stream("hello"),
  // Twice 512 KiB, there and back; of that only what its ends and size are.
  large: async () => {
    const { parts } = await send(`large ${"ä".repeat(262_144)} end`);
    const { value } = parts[0].content;
    return [value.length, value.slice(0, 20), value.slice(-20)];
  },
  many: async () => {
    const numbers = Array.from({ length: 12 }, (_, index) => send(`number ${index}`));
    return (await Promise.all(numbers)).map(({ parts }) => parts[0].content.value);
  },
  tenant: () => send("about", { tenant: "acme" }),
  extensions: () =>
    send("about", { extensions: ["https://example.com/x/1", "https://example.com/y/2"] }),
  references: async () => send("about", { references: [(await send("task")).id] }),
  fail: async () => [(await send("fail")).status, (await send("reject")).status],
  ask: async () => {
    const task = await send("ask");
    return [task, await send("answer blue", target(task))];
  },
  stream_ask: async () => {
    const asked = await stream("ask");
    return [asked, await stream("answer red", target(asked[0].payload.value))];
  },
  get: async () => {
    const { id } = await send("task");
    const seen = [];
    for (const historyLength of [undefined, 0, 1]) {
      seen.push(await client.getTask({ tenant: "", id, historyLength }));
    }
    return seen;
  },
  list: async () => {
    const contextId = randomUUID();
    for (const said of ["task one", "task two", "ask"]) await send(said, { contextId });
    const first = await list({ contextId, pageSize: 2 });
    const rest = await list({ contextId, pageSize: 2, pageToken: first.nextPageToken });
    const done = await list({ contextId, status: TaskState.TASK_STATE_COMPLETED });
    return [first, rest, done];
  },
  cancel: async () => cancel((await startSlow()).id),
  cancel_done: async () => cancel((await send("task")).id),
  subscribe: async () => {
    const { id } = await startSlow();
    const events = [];
    for await (const event of client.resubscribeTask({ tenant: "", id })) {
      events.push(event);
      if (events.length === 1) await cancel(id);
    }
    return events;
  },
  subscribe_done: async () => subscribe((await send("task")).id),
  push_create: async () => {
    asking = (await send("ask")).id;
    return client.createTaskPushNotificationConfig(hook(asking));
  },
  push_get: () =>
    client.getTaskPushNotificationConfig({ tenant: "", taskId: asking, id: HOOK_NAME }),
  push_list: () => hooks(asking),
  push_delete: () =>
    client.deleteTaskPushNotificationConfig({ tenant: "", taskId: asking, id: HOOK_NAME }),
  push_list_again: () => hooks(asking),
  push_inline: async () =>
    hooks((await send("ask", { configuration: { taskPushNotificationConfig: hook("") } })).id),
  extended_card: () => client.getAgentCard(),
  unknown_get: () => client.getTask({ tenant: "", id: NOWHERE }),
  unknown_cancel: () => cancel(NOWHERE),
  unknown_send: () => send("task", { taskId: NOWHERE }),
  unknown_stream: () => stream("task", { taskId: NOWHERE }),
  unknown_subscribe: () => subscribe(NOWHERE),
  unknown_push: () => hooks(NOWHERE),
  counters: () => send("counters"),
};
// The first two are what a proxy is expected to refuse, and then nothing.
const REFUSED = ["send_parts", "stream_parts", "send_message", "stream_message"];

function chosen() {
  if (options.refused) return REFUSED;
  return options.steps?.split(",") ?? Object.keys(STEPS).filter((step) => step !== "counters");
}

function part(kind, value, mediaType = "", filename = "") {
  return { content: { $case: kind, value }, metadata: undefined, filename, mediaType };
}

function parts() {
  return [
    part("data", { list: [1, 2.5, null, true], text: "Grüße, 世界" }),
    part("raw", Buffer.from([0, 1, 255]), "application/octet-stream", "bytes"),
    part("url", "https://files.example.com/report.pdf", "application/pdf"),
  ];
}

function request(said, about = {}) {
  const { tenant = "", taskId = "", contextId = "", references = [], more = [] } = about;
  const defaults = { acceptedOutputModes: [], returnImmediately: false };
  return {
    tenant,
    message: {
      messageId: randomUUID(),
      contextId,
      taskId,
      role: Role.ROLE_USER,
      parts: [part("text", said), ...more],
      metadata: undefined,
      extensions: [],
      referenceTaskIds: references,
    },
    configuration: about.configuration && { ...defaults, ...about.configuration },
    metadata: undefined,
  };
}

function send(said, about) {
  const wanted = about?.extensions ?? [];
  const serviceParameters = ServiceParameters.create(withA2AExtensions(...wanted));
  return client.sendMessage(request(said, about), wanted.length ? { serviceParameters } : {});
}

function stream(said, about) {
  return all(client.sendMessageStream(request(said, about)));
}

function list(about) {
  const defaults = { tenant: "", contextId: "", status: 0, pageToken: "" };
  return client.listTasks({ ...defaults, statusTimestampAfter: undefined, ...about });
}

function cancel(id) {
  return client.cancelTask({ tenant: "", id, metadata: undefined });
}

function subscribe(id) {
  return all(client.resubscribeTask({ tenant: "", id }));
}

function hook(taskId) {
  const authentication = undefined;
  return { tenant: "", taskId, id: HOOK_NAME, url: HOOK, token: "told", authentication };
}

function hooks(taskId) {
  const page = { pageSize: 0, pageToken: "" };
  return client.listTaskPushNotificationConfig({ tenant: "", taskId, ...page });
}

// A task that is being worked on.
async function startSlow() {
  let task = await send("slow", { configuration: { returnImmediately: true } });
  while (task.status.state !== TaskState.TASK_STATE_WORKING) {
    await sleep(POLL);
    task = await client.getTask({ tenant: "", id: task.id });
  }
  return task;
}

async function all(events) {
  const seen = [];
  for await (const event of events) seen.push(event);
  return seen;
}

// Shows a certificate where it has one. An SVID names a workload, not a host.
async function fetchFor({ ca, cert, key, http2 }) {
  if (!ca) return fetch;
  const [trusted, chain, secret] = await Promise.all(
    [ca, cert, key].map((file) => file && readFile(file)),
  );
  const identity = { ca: trusted, cert: chain, key: secret };
  const connect = { ...identity, checkServerIdentity: () => undefined };
  const dispatcher = new Agent({ allowH2: http2, connect });
  return (input, init) => fetchBy(input, { ...init, dispatcher });
}

// The card tells where to go; of its interfaces only the one that is asked for is left.
async function connect() {
  const legacyCompat = { enabled: true };
  const resolver = new DefaultAgentCardResolver({ fetchImpl, legacyCompat });
  const card = await resolver.resolve(`${url}/`);
  card.supportedInterfaces = card.supportedInterfaces.filter(
    ({ protocolBinding, protocolVersion }) =>
      protocolBinding === options.binding && protocolVersion === options.version,
  );
  const transports = [JsonRpcTransportFactory, RestTransportFactory].map(
    (Factory) => new Factory({ fetchImpl, legacyCompat }),
  );
  const client = await new ClientFactory({ transports }).createFromAgentCard(card);
  const raw = await (await fetchImpl(`${url}/.well-known/agent-card.json`)).json();
  return { client, raw };
}

// An error as a program can read it, with what it was made from.
function describe(error) {
  const { name, message, code, envelopeCode, data, statusCode, metadata, cause } = error;
  const told = { class: error.constructor.name, name, message, code, envelopeCode, data };
  const below = cause instanceof Error ? describe(cause) : undefined;
  return { ...told, status: statusCode, metadata, cause: below };
}

// Names in place of what the agent made up, anew for each step, and of where it is.
const names = new Map();
const IDENTITY = /[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g;
const INSTANT = /\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|\+00:00)/g;

function normalise(key, value) {
  if (typeof value !== "string") return value;
  if (key === "nextPageToken" && value !== "") return "<page>";
  if (value === origin || value.startsWith(`${origin}/`)) return "<here>";
  // HTTP/2 has no words for a status.
  const told = value.replace(/(Status: \d{3}) [A-Za-z ]*\. /, "$1. ");
  return told.replace(INSTANT, "<instant>").replace(IDENTITY, name);
}

function name(found) {
  if (!names.has(found)) names.set(found, `<${names.size}>`);
  return names.get(found);
}

for (const step of chosen()) {
  names.clear();
  names.set(NOWHERE, "<nowhere>");
  const late = sleep(PATIENCE, undefined, { ref: false }).then(() => {
    throw new Error("nothing happened");
  });
  const line = await Promise.race([Promise.resolve().then(STEPS[step]), late]).then(
    (seen) => ({ step, seen: seen ?? null }),
    (error) => ({ step, error: describe(error) }),
  );
  console.log(JSON.stringify(line, normalise));
}
process.exit(0);
