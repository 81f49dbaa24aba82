// What a system consists of, and what it is doing.
import { refuse } from "./refusal.js";

const frozen = (meta) => (meta ? Object.freeze(meta) : undefined);
const listed = (parts, name = "id") => Object.entries(parts).map(([key, part]) => ({ [name]: key, meta: frozen(part?.meta) }));

export const inspect = (engine, options) => {
  const { schema, constraints, resolvers, derivations, definitions, events, modules, requirements } = engine;
  const result = {
    unmet: requirements().all(),
    inflight: resolvers.running(),
    pendingInvalidations: derivations.pendingCount(),
    observedDerivations: derivations.observedCount(),
    facts: Object.entries(schema).map(([key, type]) => ({ key, meta: frozen(type?._meta) })),
    events: listed(events, "name"),
    constraints: constraints.states().map(({ id, isActive, isDisabled, priority, hitCount, lastActiveAt }) => ({
      id, active: isActive ?? false, disabled: isDisabled, priority, hitCount, lastActiveAt, meta: frozen(definitions.constraints[id].meta),
      ...(definitions.constraints[id].spec && { whenSpec: definitions.constraints[id].spec }),
    })),
    resolvers: Object.fromEntries(resolvers.running().map(({ id }) => [id, resolvers.status(id)])),
    resolverDefs: Object.entries(definitions.resolvers).map(([id, { requirement, meta }]) => ({
      id, requirement: typeof requirement === "string" ? requirement : "(predicate)", meta: frozen(meta),
    })),
    effects: listed(definitions.effects),
    sources: [],
    attachedSourceCount: 0,
    derivations: Object.keys(definitions.derive).map((id) => ({ id, meta: undefined })),
    modules: modules.map(({ id, meta }) => ({ id, meta: frozen(meta) })),
    traceEnabled: Boolean(options.trace),
  };
  if (options.trace) Object.defineProperty(result, "trace", { get: () => refuse("`trace` of system.inspect()"), enumerable: false });
  return result;
};
