// Observers of a system: functions that get an event for everything that happens.

const MAX_OBSERVERS = 100;
const PREFIX = "__observer_";
let count = 0;

// The event for each hook of a plugin.
const EVENTS = {
  onInit: () => ({ type: "system.init" }),
  onStart: () => ({ type: "system.start" }),
  onStop: () => ({ type: "system.stop" }),
  onDestroy: () => ({ type: "system.destroy" }),
  onFactSet: (key, next, prev) => ({ type: "fact.change", key, prev, next }),
  onConstraintEvaluate: (id, active, whenExplain) => ({ type: "constraint.evaluate", id, active, ...(whenExplain && { whenExplain }) }),
  onConstraintError: (id, error) => ({ type: "constraint.error", id, error }),
  onRequirementCreated: ({ id, requirement }) => ({ type: "requirement.created", id, requirementType: requirement.type }),
  onRequirementMet: ({ id }, byResolver) => ({ type: "requirement.met", id, byResolver }),
  onRequirementCanceled: ({ id }) => ({ type: "requirement.canceled", id }),
  onResolverStart: (resolver, { id }) => ({ type: "resolver.start", resolver, requirementId: id }),
  onResolverComplete: (resolver, { id }, duration) => ({ type: "resolver.complete", resolver, requirementId: id, duration }),
  onResolverError: (resolver, { id }, error) => ({ type: "resolver.error", resolver, requirementId: id, error }),
  onEffectRun: (id) => ({ type: "effect.run", id }),
  onEffectError: (id, error) => ({ type: "effect.error", id, error }),
  onDerivationCompute: (id, value) => ({ type: "derivation.compute", id, value }),
  onReconcileStart: () => ({ type: "reconcile.start" }),
  onReconcileEnd: ({ completed, canceled }) => ({ type: "reconcile.end", resolversCompleted: completed.length, resolversCanceled: canceled.length }),
};

export const createObserver = (plugins, observer) => {
  if (plugins.list().filter(({ name }) => name.startsWith(PREFIX)).length >= MAX_OBSERVERS) {
    console.warn(`[Directive] there are ${MAX_OBSERVERS} observers, and no more: call what observe() gives to end one`);
    return () => {};
  }
  count += 1;
  const plugin = { name: `${PREFIX}${count}` };
  for (const [hook, event] of Object.entries(EVENTS)) plugin[hook] = (...values) => void observer(event(...values));
  plugins.add(plugin);
  return () => plugins.remove(plugin.name);
};
