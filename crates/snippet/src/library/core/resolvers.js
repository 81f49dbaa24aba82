// Resolvers: they meet requirements. One runs for each requirement at a time, is tried again as its `retry` says,
// and is aborted when its requirement is gone. Batches collect requirements for a while.
import { LateError, pause, within } from "./timing.js";

const RETRY = { attempts: 1, backoff: "none", initialDelay: 100, maxDelay: 30_000 };
const BATCH = { enabled: false, windowMs: 50 };

const delayOf = ({ backoff, initialDelay, maxDelay }, attempt) => {
  const factor = { linear: attempt, exponential: 2 ** (attempt - 1) }[backoff] ?? 1;
  return Math.max(1, Math.min(initialDelay * factor, maxDelay));
};
const asError = (error) => (error instanceof Error ? error : new Error(String(error)));

const checkDefinitions = (definitions) => {
  for (const [id, { resolve, resolveBatch, resolveBatchWithResults, batch }] of Object.entries(definitions)) {
    if (!resolve && !resolveBatch && !resolveBatchWithResults) throw new Error(`[Directive] Resolver "${id}" must define either resolve() or resolveBatch()`);
    if (batch?.enabled && !resolveBatch && !resolveBatchWithResults) console.warn(`[Directive] the resolver "${id}" has a batch without resolveBatch(): requirements are resolved one by one`);
  }
};

// `hooks` has `started`, `completed`, `failed`, `retried` and `canceled` with the id of the resolver and the
// requirement, `ended()` after each resolution, and `requeued(id)`.
export const createResolvers = (definitions, facts, store, hooks) => {
  checkDefinitions(definitions);
  const running = new Map();
  const statuses = new Map();
  const batches = new Map();

  const find = (requirement) =>
    Object.keys(definitions).find((id) => {
      const wanted = definitions[id].requirement;
      return typeof wanted === "function" ? wanted(requirement) : wanted === requirement.type;
    });

  const context = (signal, ids) => ({
    facts,
    signal,
    snapshot: () => facts.$snapshot(),
    requeue: () => ids.forEach((id) => hooks.requeued(id)),
  });
  // Calls a function of a resolver, whose first changes of facts are one batch.
  const call = (action, limit, message) => {
    let work;
    store.batch(() => {
      work = action();
    });
    return limit > 0 ? within(work, limit, message) : work;
  };

  const succeed = (id, one, startedAt) => {
    const duration = Date.now() - startedAt;
    statuses.set(one.id, { state: "success", requirementId: one.id, completedAt: Date.now(), duration });
    hooks.completed(id, one, duration);
  };
  const fail = (id, one, error, attempts) => {
    statuses.set(one.id, { state: "error", requirementId: one.id, error, failedAt: Date.now(), attempts });
    hooks.failed(id, one, error);
  };

  // Tries some work as often as `retry` allows. `begin` is called before each attempt.
  const attempt = async (id, list, signal, work, begin) => {
    const policy = { ...RETRY, ...definitions[id].retry };
    let last;
    for (let count = 1; count <= policy.attempts; count += 1) {
      if (signal.aborted) return;
      begin(count);
      try {
        if (await work(count)) return;
      } catch (error) {
        last = asError(error);
        if (signal.aborted) return;
        if (policy.shouldRetry && !policy.shouldRetry(last, count, { reason: last instanceof LateError ? "timeout" : "error" })) break;
        if (count < policy.attempts) {
          await pause(delayOf(policy, count), signal);
          if (signal.aborted) return;
          for (const one of list) hooks.retried(id, one, count + 1);
        }
      }
    }
    for (const one of list) fail(id, one, last, policy.attempts);
  };

  const resolveOne = (id, one, signal, startedAt) => {
    const { resolve, timeout } = definitions[id];
    return attempt(id, [one], signal, async () => {
      await call(() => resolve?.(one.requirement, context(signal, [one.id])), timeout, `Resolver "${id}" timed out after ${timeout}ms`);
      succeed(id, one, startedAt);
      return true;
    }, (count) => {
      const state = running.get(one.id);
      if (state) state.status = { state: "running", requirementId: one.id, startedAt, attempt: count };
    });
  };

  const resolveBatch = async (id, list) => {
    const definition = definitions[id];
    const { signal } = new AbortController();
    const startedAt = Date.now();
    if (!definition.resolveBatch && !definition.resolveBatchWithResults) {
      await Promise.all(list.map((one) => resolveOne(id, one, signal, startedAt)));
      return;
    }
    const limit = definition.batch?.timeoutMs ?? definition.timeout;
    const message = `Batch resolver "${id}" timed out after ${limit}ms`;
    const requirements = list.map(({ requirement }) => requirement);
    const inner = context(signal, list.map((one) => one.id));
    await attempt(id, list, signal, async (count) => {
      if (!definition.resolveBatchWithResults) {
        await call(() => definition.resolveBatch(requirements, inner), limit, message);
        for (const one of list) succeed(id, one, startedAt);
        return true;
      }
      const results = await call(() => definition.resolveBatchWithResults(requirements, inner), limit, message);
      if (results.length !== list.length) throw new Error(`[Directive] Batch resolver "${id}" returned ${results.length} results, and ${list.length} are needed`);
      results.forEach(({ success, error }, at) => {
        if (success) succeed(id, list[at], startedAt);
        else fail(id, list[at], error ?? new Error("Batch item failed"), count);
      });
      return results.every(({ success }) => success) || results.some(({ success }) => success);
    }, () => {});
  };

  const runBatch = (id) => {
    const batch = batches.get(id);
    if (!batch || batch.list.length === 0) return;
    const list = batch.list.splice(0);
    clearTimeout(batch.timer);
    resolveBatch(id, list).then(() => hooks.ended());
  };
  const collect = (id, one) => {
    const { windowMs, maxSize } = { ...BATCH, ...definitions[id].batch };
    if (!batches.has(id)) batches.set(id, { list: [], timer: undefined });
    const batch = batches.get(id);
    batch.list.push(one);
    clearTimeout(batch.timer);
    if (maxSize && batch.list.length >= maxSize) runBatch(id);
    else batch.timer = setTimeout(() => runBatch(id), windowMs);
  };

  const cancelled = (id, one) => {
    statuses.set(one.id, { state: "canceled", requirementId: one.id, canceledAt: Date.now() });
    hooks.canceled(id, one);
  };
  const abort = (requirementId) => {
    const state = running.get(requirementId);
    if (state) {
      state.controller.abort();
      running.delete(requirementId);
      cancelled(state.id, state.one);
      return;
    }
    for (const [id, { list }] of batches) {
      const at = list.findIndex((one) => one.id === requirementId);
      if (at >= 0) return cancelled(id, list.splice(at, 1)[0]);
    }
  };

  return {
    resolve: (one) => {
      if (running.has(one.id)) return;
      const id = find(one.requirement);
      if (id === undefined) {
        console.warn(`[Directive] No resolver found for requirement type "${one.requirement.type}" (id: ${one.id})`);
        return;
      }
      if (definitions[id].batch?.enabled) return collect(id, one);
      const controller = new AbortController();
      const startedAt = Date.now();
      running.set(one.id, { id, one, controller, startedAt, status: { state: "pending", requirementId: one.id, startedAt } });
      hooks.started(id, one);
      resolveOne(id, one, controller.signal, startedAt).finally(() => {
        if (running.get(one.id)?.controller === controller && running.delete(one.id)) hooks.ended();
      });
    },
    abort,
    abortAll: () => {
      for (const id of [...running.keys()]) abort(id);
      for (const [id, { list, timer }] of batches) {
        clearTimeout(timer);
        for (const one of list) cancelled(id, one);
      }
      batches.clear();
    },
    status: (id) => running.get(id)?.status ?? statuses.get(id) ?? { state: "idle" },
    running: () => [...running].map(([id, state]) => ({ id, resolverId: state.id, startedAt: state.startedAt })),
    isResolving: (id) => running.has(id),
    hasBatches: () => [...batches.values()].some(({ list }) => list.length > 0),
    runBatches: () => [...batches.keys()].forEach(runBatch),
  };
};
