// Runs a client through a Lictor of its own: governed.mjs LICTOR CLIENT URL. The Lictor is `LICTOR
// run --mcp URL` with a fresh home on a free port; the client gets the Lictor's URL in place of the
// server's. For suites that start a server by themselves and tell nobody but the client where it
// is.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const [, , lictor, client, url] = process.argv;
const home = await mkdtemp(join(tmpdir(), "lictor-client-"));
const governor = spawn(lictor, ["run", "--mcp", url, "--bind", "127.0.0.1:0"], {
  cwd: home,
  env: { ...process.env, HOME: home, XDG_STATE_HOME: join(home, "state"), NO_COLOR: "1" },
  stdio: ["ignore", "ignore", "pipe"],
});
const lines = createInterface({ input: governor.stderr });
// The suite gives up on a client by ending it; nothing of it may stay behind.
process.on("SIGTERM", () => governor.kill("SIGKILL"));

const address = await new Promise((resolve, reject) => {
  const seen = [];
  lines.on("line", (line) => {
    const found = line.match(/listener="?local"? .*address=([0-9.:]+)/);
    if (found) resolve(found[1]);
    seen.push(line);
  });
  governor.on("exit", () => reject(new Error(`Lictor ended: ${seen.join("\n")}`)));
});
const [code] = await once(
  spawn(process.execPath, [client, `http://${address}/mcp`], { stdio: "inherit" }),
  "exit",
);
const ended = once(governor, "exit");
governor.kill("SIGKILL");
await ended;
await rm(home, { recursive: true, force: true });
process.exitCode = code ?? 1;
