// What happens after an error in a constraint, resolver, effect or derivation.

const HANDLERS = { constraint: "onConstraintError", resolver: "onResolverError", effect: "onEffectError", derivation: "onDerivationError" };
const LATER = "retry-later";

export class DirectiveError extends Error {
  constructor(message, source, sourceId, context, recoverable = true) {
    super(message);
    this.name = "DirectiveError";
    this.source = source;
    this.sourceId = sourceId;
    this.context = context;
    this.recoverable = recoverable;
  }
}

const call = (what, action, ...given) => {
  try {
    return action?.(...given);
  } catch (error) {
    console.error(`[Directive] Error in ${what} callback:`, error);
    return undefined;
  }
};

const LATER_DEFAULTS = { delayMs: 1000, maxRetries: 3, backoffMultiplier: 2, maxDelayMs: 30_000 };
const [SHORTEST_POLL, LONGEST_POLL] = [250, 500];

// Errors after which something is tried again later: `due` is called when the time of one has come.
const createLater = (config, due) => {
  const { delayMs, maxRetries, backoffMultiplier, maxDelayMs } = { ...LATER_DEFAULTS, ...config };
  const attempts = new Map();
  const pending = new Map();
  let polling;
  return {
    add: (source, id) => {
      const attempt = (attempts.get(id) ?? 0) + 1;
      attempts.set(id, attempt);
      if (attempt <= maxRetries) {
        pending.set(id, Date.now() + Math.min(delayMs * backoffMultiplier ** (attempt - 1), maxDelayMs));
        return true;
      }
      attempts.delete(id);
      console.warn(`[Directive] the ${source} "${id}" has been tried ${maxRetries} times later, and is skipped`);
      return false;
    },
    clear: (id) => {
      attempts.delete(id);
      pending.delete(id);
    },
    // As in the package, nothing is looked for unless `retryLater` is given.
    start: () => {
      if (config === undefined || polling !== undefined) return;
      polling = setInterval(() => {
        for (const [id, time] of pending) {
          if (time > Date.now()) continue;
          pending.delete(id);
          due();
        }
      }, Math.min(Math.max(delayMs, SHORTEST_POLL), LONGEST_POLL));
    },
    stop: () => {
      clearInterval(polling);
      polling = undefined;
      pending.clear();
    },
  };
};

// `handle` gives the strategy for an error: "skip", "retry", "retry-later" or "disable". "throw" throws.
export const createBoundary = (config = {}, plugins, due) => {
  const later = createLater(config.retryLater, due);
  const handle = (source, id, thrown, context) => {
    const error = thrown instanceof DirectiveError ? thrown : new DirectiveError(thrown instanceof Error ? thrown.message : String(thrown), source, id, context);
    plugins.emit("onError", error);
    call("config.onError", config.onError, error);
    const handler = config[HANDLERS[source]];
    const chosen = typeof handler === "function" ? call("error handler", handler, thrown instanceof Error ? thrown : new Error(String(thrown)), id) : handler;
    const wanted = typeof chosen === "string" ? chosen : "skip";
    const strategy = wanted === LATER && !later.add(source, id) ? "skip" : wanted;
    plugins.emit("onErrorRecovery", error, strategy);
    if (strategy === "throw") throw error;
    return strategy;
  };
  return { handle, later };
};
