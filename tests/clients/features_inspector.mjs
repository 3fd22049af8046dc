// The Inspector's command line, doing everything it can in the era that the third argument names.
// It is a process of its own, with a connection of its own, for each call. The report is that of
// `features.mjs`.
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const [, , url, era] = process.argv;
const VERSION = era === "modern" ? "2026-07-28" : "2025-11-25";
const PROGRAM = fileURLToPath(new URL("node_modules/.bin/mcp-inspector", import.meta.url));
const COMMON = ["--cli", url, "--transport", "http", "--protocol-era", era]
  .concat("-q", "--format", "json");
// It keeps a catalogue of servers in the home directory.
const home = mkdtempSync(join(tmpdir(), "lictor-inspector-"));

const tool = (name, given = {}) =>
  ["tools/call", "--tool-name", name, "--tool-args-json", JSON.stringify(given)];
const names = (list) => list.map(({ name }) => name).sort();
const types = ({ content }) => content.map(({ type }) => type);
const text = ({ content }) => content.map((block) => block.text ?? block.type).join(" ");
const sizes = ({ contents }) => contents.map((content) => (content.text ?? content.blob).length);
const listed = ({ tools }) => tools.filter(({ name }) => name !== "test_refused");

// What is asked of it, what of the answer doesn't depend on client or server, and the rest.
const FEATURES = {
  connect: [["initialize"], ({ protocolVersion }) => protocolVersion === VERSION, (all) => all],
  list_tools: [
    ["tools/list"],
    ({ tools }) => tools.some(({ name }) => name === "test_simple_text"),
    listed,
  ],
  call: [tool("test_simple_text"), text],
  arguments: [tool("test_echo", { text: "Grüße, 世界 🌍" }), text],
  content: [tool("test_multiple_content_types"), types, ({ content }) => content],
  audio: [tool("test_audio_content"), types, ({ content }) => content],
  structured: [tool("test_structured_content"), ({ structuredContent }) => structuredContent],
  tool_error: [tool("test_error_handling"), ({ isError }) => isError, ({ content }) => content],
  mirrored_headers: [tool("test_x_mcp_header", { region: "Nürnberg" }), text],
  list_resources: [["resources/list"], ({ resources }) => names(resources), (all) => all.resources],
  list_templates: [
    ["resources/templates/list"],
    ({ resourceTemplates }) => names(resourceTemplates),
    (all) => all.resourceTemplates,
  ],
  read_text: [["resources/read", "--uri", "test://static-text"], sizes, (all) => all.contents],
  read_binary: [["resources/read", "--uri", "test://static-binary"], sizes, (all) => all.contents],
  read_template: [["resources/read", "--uri", "test://template/42/data"], sizes],
  list_prompts: [["prompts/list"], ({ prompts }) => names(prompts), (all) => all.prompts],
  get_prompt: [
    ["prompts/get", "--prompt-name", "test_prompt_with_arguments", "--prompt-args", "arg1=one"]
      .concat("arg2=two"),
    ({ messages }) => messages.map(({ content }) => content.text),
    ({ messages }) => messages,
  ],
  resume: [tool("test_reconnection"), text],
};
const LEGACY = ["resume"];
const MODERN = ["mirrored_headers"];

async function run([method, ...options]) {
  const command = [PROGRAM, ...COMMON, "--method", method, ...options];
  const env = { ...process.env, HOME: home };
  const limits = { env, timeout: 30_000, maxBuffer: 1 << 24 };
  // A tool that reports an error makes it exit with a code of its own.
  const done = promisify(execFile)(process.execPath, command, limits).catch((failed) => failed);
  const { stdout, stderr } = await done;
  if (!stdout) throw new Error(stderr.trim());
  return JSON.parse(stdout).result;
}

const seen = {};
for (const [name, [request, see, detail]] of Object.entries(FEATURES)) {
  if ((era === "modern" ? LEGACY : MODERN).includes(name)) continue;
  try {
    const result = await run(request);
    seen[name] = { seen: see(result), detail: detail?.(result) };
  } catch (error) {
    seen[name] = { error: error.message };
  }
}
rmSync(home, { recursive: true, force: true });
console.log(JSON.stringify(seen));
