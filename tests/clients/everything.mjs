// What a client sees of the everything server (`server-everything`), in the form of `features.mjs`.
// Only what is the same in each run is asked for: none of its tools that tell the time or the
// environment.
const CALLS = {
  echo: { message: "Grüße, 世界 🌍" },
  "get-annotated-message": { messageType: "error", includeImage: true },
  "get-resource-links": { count: 3 },
  "get-structured-content": { location: "Chicago" },
  "get-sum": { a: 2, b: 40 },
  "get-tiny-image": {},
  "get-roots-list": {},
  "trigger-url-elicitation": { url: "https://confirm.example.com/1", elicitationId: "visit-1" },
  "trigger-sampling-request": { prompt: "The capital of France?", maxTokens: 10 },
};

const calls = Object.entries(CALLS).map(([name, given]) => [
  `call ${name}`,
  async ({ call }) => ({ seen: await call(name, given) }),
]);

export const EVERYTHING = {
  connect: ({ client }) => ({
    seen: [client.getServerVersion(), client.getServerCapabilities(), client.getInstructions()],
  }),
  "list tools": async ({ client }) => ({ seen: await client.listTools() }),
  "list resources": async ({ client }) => ({ seen: await client.listResources() }),
  "list templates": async ({ client }) => ({ seen: await client.listResourceTemplates() }),
  "list prompts": async ({ client }) => ({ seen: await client.listPrompts() }),
  read: async ({ client }) => ({
    seen: await client.readResource({ uri: "demo://resource/static/document/features.md" }),
  }),
  prompt: async ({ client }) => ({
    seen: await client.getPrompt({ name: "args-prompt", arguments: { city: "Bern" } }),
  }),
  complete: async ({ client }) => ({
    seen: await client.complete({
      ref: { type: "ref/prompt", name: "completable-prompt" },
      argument: { name: "department", value: "E" },
    }),
  }),
  ...Object.fromEntries(calls),
  progress: async ({ call }) => {
    const progress = [];
    const options = { onprogress: (one) => progress.push(one) };
    const given = { duration: 0.3, steps: 3 };
    const result = await call("trigger-long-running-operation", given, options);
    // The last step and the result come at once, and clients of HTTP+SSE may forget the call first.
    return { seen: [progress.slice(0, 2), result] };
  },
  // Tasks of 2025-11-25: one that is awaited, one that is cancelled, one that nobody gave.
  tasks: async ({ tasks }) => {
    if (!tasks) return undefined;
    const start = () => {
      const research = { name: "simulate-research-query", arguments: { topic: "lictors" } };
      return tasks.callToolStream(research, undefined, { task: { ttl: 60_000 } });
    };
    const told = [];
    for await (const { type, task, result } of start()) {
      told.push([type, task?.status, result?.content]);
    }
    const { value } = await start().next();
    const { taskId } = value.task;
    const { status } = await tasks.getTask(taskId);
    await tasks.cancelTask(taskId);
    const all = (await tasks.listTasks()).tasks.map((task) => task.status);
    const strange = await tasks.getTask("made-up").catch(({ code }) => code);
    // How often it was asked for news is a matter of time.
    const kinds = [...new Set(told.map((one) => JSON.stringify(one)))];
    return { seen: { kinds, status, all, strange } };
  },
  subscribe: async ({ client }) => {
    const uri = "demo://resource/dynamic/text/1";
    await client.subscribeResource({ uri });
    return { seen: await client.unsubscribeResource({ uri }) };
  },
  "no such tool": async ({ call }) => ({ seen: await call("no-such-tool") }),
  "no such resource": async ({ client }) => ({
    seen: await client.readResource({ uri: "demo://none" }),
  }),
};
