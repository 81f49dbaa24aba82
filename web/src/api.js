// The server's answer to a snippet.

/** A snippet to start with. */
export const EXAMPLE = `import { createModule, createSystem, t } from "@directive-run/core";

const counter = createModule("counter", {
  schema: {
    facts: { count: t.number() },
    derivations: { isPositive: t.boolean() },
    events: { increment: {} },
    requirements: {},
  },
  init: (facts) => {
    facts.count = 0;
  },
  derive: {
    isPositive: (facts) => facts.count > 0,
  },
  events: {
    increment: (facts) => {
      facts.count += 1;
    },
  },
});

const system = createSystem({ module: counter });
system.start();
console.log("[start] count =", system.facts.count);
system.events.increment();
system.events.increment();
await system.settle();
console.log("[settled] count =", system.facts.count);
`;

/** Runs files. The result has the fields of the reference, and how long the request took. */
export async function run(files, timeoutMs, key, signal) {
  const started = performance.now();
  const headers = { 'content-type': 'application/json' };
  if (key) headers['x-api-key'] = key;
  const response = await fetch('/api/sandbox', {
    method: 'POST',
    headers,
    body: JSON.stringify({ files, timeoutMs }),
    signal,
    credentials: 'omit',
    cache: 'no-store',
  });
  const body = await response.json().catch(() => ({}));
  const requestMs = Math.round(performance.now() - started);
  if (Array.isArray(body.errors)) return { ...body, requestMs };
  const message = body.message ?? `the server answered ${response.status}`;
  const remedy = body.remediation ? `${message}\n${body.remediation}` : message;
  throw Object.assign(new Error(remedy), { needsKey: response.status === 401 });
}
