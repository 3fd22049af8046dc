// Tells Lictor which inbound call an outbound one is made for, exactly.
//
// Lictor gives each inbound call a handle, as a member `lictor` of `tracestate` and of `baggage`, in
// headers or in MCP's `_meta`. An agent that works on one call at a time needs no shim; one that
// works on several puts a call's handle on what it does for that call:
//
//     app.use((request, _response, next) => causedBy(request.headers, next));
//     const call = marking(fetch);  // give this to a client as its `fetch`
//     await client.callTool({ name, arguments: {}, _meta: outgoing() });
//
// Use it only where all calls go through Lictor: it keeps the handle from leaving, others don't.
import { AsyncLocalStorage } from "node:async_hooks";

const NAMES = ["tracestate", "baggage"];
const HANDLE = /(?:^|,)\s*lictor=([\w-]+)\s*(?=,|;|$)/;
const handles = new AsyncLocalStorage();

// What `act` calls, it calls for the call with these headers, or this `_meta`.
export function causedBy(carrier, act) {
  const found = NAMES.map((name) => HANDLE.exec(member(carrier, name))?.[1]);
  return handles.run(found.find(Boolean), act);
}

// What to add to headers or `_meta`, in which other members of the two are kept.
export function outgoing(carrier) {
  const handle = handles.getStore();
  if (handle === undefined) return {};
  return Object.fromEntries(
    NAMES.map((name) => {
      const members = member(carrier, name).split(",").map((one) => one.trim());
      const others = members.filter((one) => one && !/^lictor\s*=/.test(one));
      return [name, [`lictor=${handle}`, ...others].join(",")];
    }),
  );
}

// A `fetch` that says what it is called for.
export function marking(fetchImpl) {
  return (input, init = {}) => {
    const headers = new Headers(init.headers ?? (input instanceof Request ? input.headers : {}));
    for (const [name, value] of Object.entries(outgoing(headers))) headers.set(name, value);
    return fetchImpl(input, { ...init, headers });
  };
}

function member(carrier, name) {
  return (carrier instanceof Headers ? carrier.get(name) : carrier?.[name]) ?? "";
}
