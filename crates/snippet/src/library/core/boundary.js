// What happens after an error in a constraint, resolver, effect or derivation.
import { refuse } from "./refusal.js";

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

// Gives the strategy for an error: "skip", "retry" or "disable". "throw" throws.
export const createBoundary = (config = {}, plugins) => {
  if (config.retryLater !== undefined || Object.values(config).includes(LATER)) refuse(`\`${LATER}\` of errorBoundary`);
  return (source, id, thrown, context) => {
    const error = thrown instanceof DirectiveError ? thrown : new DirectiveError(thrown instanceof Error ? thrown.message : String(thrown), source, id, context);
    plugins.tell("onError", error);
    call("config.onError", config.onError, error);
    const handler = config[HANDLERS[source]];
    const chosen = typeof handler === "function" ? call("error handler", handler, thrown instanceof Error ? thrown : new Error(String(thrown)), id) : handler;
    const strategy = typeof chosen === "string" ? chosen : "skip";
    if (strategy === LATER) refuse(`\`${LATER}\` of errorBoundary`);
    plugins.tell("onErrorRecovery", error, strategy);
    if (strategy === "throw") throw error;
    return strategy;
  };
};
