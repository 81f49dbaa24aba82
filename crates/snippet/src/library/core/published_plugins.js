// The part `plugins` of the package: plugins that systems are created with.
import { absentExport } from "./refusal.js";

export { CircuitBreakerOpenError, createCircuitBreaker } from "./circuit_breaker.js";
export { performancePlugin } from "./performance_plugin.js";

const LEVELS = { debug: 0, info: 1, warn: 2, error: 3 };

// Where there is no browser, this one shows nothing.
export const devtoolsPlugin = () => ({ name: "devtools" });

// Logs what happens, from a level on.
export const loggingPlugin = ({ level = "info", filter = () => true, logger = console, prefix = "[Directive]" } = {}) => {
  const hook = (severity, event, describe) => (...values) => {
    if (LEVELS[severity] < LEVELS[level] || !filter(event)) return;
    logger[severity](`${prefix} ${event}`, ...(describe ? [describe(...values)] : []));
  };
  const count = ({ length }) => length;
  return {
    name: "logging",
    onInit: hook("debug", "init"),
    onStart: hook("info", "start"),
    onStop: hook("info", "stop"),
    onDestroy: hook("debug", "destroy"),
    onFactSet: hook("debug", "fact.set", (key, value, prev) => ({ key, value, prev })),
    onFactsBatch: hook("debug", "facts.batch", (changes) => ({ count: count(changes), changes })),
    onDerivationCompute: hook("debug", "derivation.compute", (id, value, deps) => ({ id, value, deps })),
    onDerivationInvalidate: hook("debug", "derivation.invalidate", (id) => ({ id })),
    onReconcileStart: hook("debug", "reconcile.start"),
    onReconcileEnd: hook("debug", "reconcile.end", ({ unmet, inflight, completed, canceled }) => ({ unmet: count(unmet), inflight: count(inflight), completed: count(completed), canceled: count(canceled) })),
    onConstraintEvaluate: hook("debug", "constraint.evaluate", (id, active) => ({ id, active })),
    onConstraintError: hook("error", "constraint.error", (id, error) => ({ id, error })),
    onRequirementCreated: hook("debug", "requirement.created", ({ id, requirement }) => ({ id, type: requirement.type })),
    onRequirementMet: hook("info", "requirement.met", ({ id }, byResolver) => ({ id, byResolver })),
    onRequirementCanceled: hook("debug", "requirement.canceled", ({ id }) => ({ id })),
    onResolverStart: hook("debug", "resolver.start", (resolver, { id }) => ({ resolver, requirementId: id })),
    onResolverComplete: hook("info", "resolver.complete", (resolver, { id }, duration) => ({ resolver, requirementId: id, duration })),
    onResolverError: hook("error", "resolver.error", (resolver, { id }, error) => ({ resolver, requirementId: id, error })),
    onResolverRetry: hook("warn", "resolver.retry", (resolver, { id }, attempt) => ({ resolver, requirementId: id, attempt })),
    onResolverCancel: hook("debug", "resolver.cancel", (resolver, { id }) => ({ resolver, requirementId: id })),
    onEffectRun: hook("debug", "effect.run", (id) => ({ id })),
    onEffectError: hook("error", "effect.error", (id, error) => ({ id, error })),
    onSnapshot: hook("debug", "history.snapshot", ({ id, trigger }) => ({ id, trigger })),
    onHistoryNavigate: hook("info", "history.navigate", (from, to) => ({ from, to })),
    onError: hook("error", "error", ({ source, sourceId, message }) => ({ source, sourceId, message })),
    onErrorRecovery: hook("warn", "error.recovery", ({ source, sourceId }, strategy) => ({ source, sourceId, strategy })),
  };
};

export const persistencePlugin = absentExport("persistencePlugin()");
export const createOTLPExporter = absentExport("createOTLPExporter()");
export const emitDevToolsEvent = absentExport("emitDevToolsEvent()");
export const DEVTOOLS_EVENT_NAME = absentExport("DEVTOOLS_EVENT_NAME");
