// What every TypeScript client is put through, on one client object: list the tools, call one that is
// allowed, one that reports progress, one that is refused, and the allowed one again.
// Arguments: URL, and a plan `{"allowed": TOOL, "streaming": TOOL, "refused": TOOL}`. Prints one line of
// JSON that says what the client saw; judging it is the caller's business.

export async function drive(connect) {
  const [, , url, plan] = process.argv;
  const { allowed, streaming, refused } = JSON.parse(plan);
  const client = await connect(new URL(url));
  const seen = { progress: [], refusal: null };

  seen.tools = (await client.list()).tools.map((tool) => tool.name);
  seen.before = text(await client.call(allowed));
  seen.streamed = text(await client.call(streaming, ({ progress }) => seen.progress.push(progress)));
  try {
    await client.call(refused);
  } catch ({ code, message, data }) {
    seen.refusal = { code, message, data };
  }
  seen.after = text(await client.call(allowed));

  await client.close();
  console.log(JSON.stringify(seen));
}

function text(result) {
  return result.content.map((block) => block.text ?? "").join("");
}
