// A provider of <Sandbox> that sends its work to a service over HTTP, and gets heartbeats and the result
// as signed callbacks. In providers.json of the data directory:
//   { "remote": { "module": "/path/to/provider.mjs",
//       "environment": ["PROVIDER_URL", "PROVIDER_SECRET", "PROVIDER_CALLBACK_HOST"] } }
import { createServer } from "node:http";
import { randomUUID } from "node:crypto";
import { sign, verify } from "./signature.mjs";

/** The longest body of a callback. */
const MAX_BYTES = 16 << 20;
/** How often the service is asked, in case a callback was lost. */
const POLL_MS = 5000;
/** How often a request is sent, and the first pause. */
const ATTEMPTS = 4;
const PAUSE_MS = 250;

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const key = (request) => `${request.runId}/${request.sandboxId}`;

function settings() {
  const { PROVIDER_URL: url, PROVIDER_SECRET: secret } = process.env;
  if (!url || !secret || secret.length < 32) {
    throw new Error("PROVIDER_URL and PROVIDER_SECRET (32 characters or more) must be set");
  }
  return { url: url.replace(/\/$/, ""), secret, host: process.env.PROVIDER_CALLBACK_HOST ?? "127.0.0.1" };
}

/** A signed request. It is repeated only where the service recognizes it: each has the key of its run. */
async function call({ url, secret }, method, path, body, idempotencyKey, signal) {
  const text = body === undefined ? "" : JSON.stringify(body);
  for (let attempt = 1; ; attempt += 1) {
    let failure;
    try {
      const response = await fetch(`${url}${path}`, {
        method,
        body: body === undefined ? undefined : text,
        redirect: "error",
        signal,
        headers: {
          ...sign(secret, `${method} ${path}`, text),
          "content-type": "application/json",
          "idempotency-key": idempotencyKey,
        },
      });
      const answer = await response.text();
      if (response.ok) return answer === "" ? undefined : JSON.parse(answer);
      failure = new Error(`the provider answered ${response.status}: ${answer.slice(0, 500)}`);
      if (response.status < 500 && response.status !== 429) throw Object.assign(failure, { final: true });
    } catch (error) {
      if (error.final || signal?.aborted) throw error;
      failure = error;
    }
    if (attempt === ATTEMPTS) throw failure;
    await sleep(PAUSE_MS * 2 ** (attempt - 1));
  }
}

/** Receives callbacks for one run: each must be signed for its path, and newer than those before it. */
async function listen({ secret, host }, onHeartbeat, onResult) {
  const path = `/callbacks/${randomUUID()}`;
  let last = 0;
  const server = createServer((incoming, answer) => {
    const parts = [];
    let bytes = 0;
    incoming.on("data", (part) => {
      bytes += part.length;
      if (bytes > MAX_BYTES) incoming.destroy();
      else parts.push(part);
    });
    incoming.on("end", () => {
      const body = Buffer.concat(parts);
      const reply = (status) => answer.writeHead(status).end();
      if (incoming.method !== "POST" || incoming.url !== path) return reply(404);
      if (!verify(secret, `POST ${path}`, body, incoming.headers)) return reply(401);
      let message;
      try {
        message = JSON.parse(body);
      } catch {
        return reply(400);
      }
      // The same callback again is no news, and an older one is a replay.
      if (!Number.isSafeInteger(message?.sequence) || message.sequence <= last) return reply(409);
      last = message.sequence;
      reply(204);
      if (message.type === "heartbeat") onHeartbeat(message.data);
      else if (message.type === "result") onResult(message.result);
    });
  });
  await new Promise((done, failed) => server.once("error", failed).listen(0, host, done));
  const { port } = server.address();
  return { url: `http://${host}:${port}${path}`, close: () => server.close() };
}

export default {
  id: "remote",

  async run(request) {
    const service = settings();
    let finish;
    const result = new Promise((done) => (finish = done));
    const callbacks = await listen(service, (data) => request.heartbeat(data), finish);
    try {
      // Only what the work needs: no path or variable of this machine.
      const sent = {
        runId: request.runId,
        sandboxId: request.sandboxId,
        input: request.input,
        allowNetwork: request.allowNetwork,
        egress: request.egress,
        maxOutputBytes: request.maxOutputBytes,
        toolTimeoutMs: request.toolTimeoutMs,
        callbackUrl: callbacks.url,
      };
      const started = await call(service, "POST", "/runs", sent, key(request), request.signal);
      const path = `/runs/${encodeURIComponent(started.remoteRunId)}`;
      request.heartbeat({ phase: "started", remoteRunId: started.remoteRunId });
      const stop = new AbortController();
      request.signal?.addEventListener("abort", () => stop.abort(request.signal.reason));
      const polled = (async () => {
        for (;;) {
          await sleep(POLL_MS);
          stop.signal.throwIfAborted();
          const state = await call(service, "GET", path, undefined, key(request), stop.signal);
          if (state.result !== undefined) return state.result;
          request.heartbeat({ phase: state.phase });
        }
      })();
      polled.catch(() => {});
      const { status, output, diffBundle } = await Promise.race([result, polled]);
      stop.abort();
      return { status, output, diffBundle, remoteRunId: started.remoteRunId };
    } finally {
      callbacks.close();
    }
  },

  /** Ends the run at the service, also one whose start was never answered. */
  async cleanup(request) {
    const service = settings();
    await call(service, "DELETE", `/runs?key=${encodeURIComponent(key(request))}`, undefined, key(request));
  },
};
