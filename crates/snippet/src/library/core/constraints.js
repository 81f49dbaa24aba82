// Constraints: while the condition of one holds, there are its requirements. Conditions are evaluated again
// when something changes that they have read.
import { generateRequirementId, RequirementSet } from "./requirements.js";
import { sameSet, track } from "./tracking.js";
import { within } from "./timing.js";

const DEFAULT_TIMEOUT = 5000;
// Of how many requirements a constraint is warned about.
const MANY_REQUIREMENTS = 10;

// The ids in an order in which each comes after those that it waits for.
const ordered = (definitions) => {
  const done = new Set();
  const path = [];
  const visit = (id) => {
    if (done.has(id)) return;
    if (path.includes(id)) {
      throw new Error(`[Directive] Constraint cycle detected: ${[...path.slice(path.indexOf(id)), id].join(" → ")}`);
    }
    path.push(id);
    for (const earlier of definitions[id].after ?? []) if (Object.hasOwn(definitions, earlier)) visit(earlier);
    path.pop();
    done.add(id);
  };
  Object.keys(definitions).forEach(visit);
  return [...done];
};

const warnAtStart = (definitions) => {
  for (const [id, { after, async, deps }] of Object.entries(definitions)) {
    for (const earlier of after ?? []) {
      if (!Object.hasOwn(definitions, earlier)) console.warn(`[Directive] the constraint "${id}" comes \`after\` "${earlier}", which is no constraint: that is ignored`);
    }
    if (async && !deps) console.warn(`[Directive] what the async constraint "${id}" reads is not noted: give it \`deps\``);
  }
};

// `keys` has the functions of resolvers that say which requirements of a type are the same. `hooks` has
// `evaluated(id, isActive, clauses)` and `failed(id, error)`.
export const createConstraints = (definitions, facts, derived, keys, names, hooks) => {
  const order = ordered(definitions);
  warnAtStart(definitions);
  const states = new Map();
  for (const [id, definition] of Object.entries(definitions)) {
    states.set(id, {
      id, priority: definition.priority ?? 0, isAsync: definition.async ?? false, after: definition.after ?? [],
      isActive: null, hitCount: 0, lastActiveAt: null, isDisabled: false, isResolved: false, isIdle: false,
      reads: new Set(), conditionReads: undefined, requirements: undefined,
    });
  }
  const sorted = [...order].sort((a, b) => states.get(b).priority - states.get(a).priority);
  const dirty = new Set();
  let hasEvaluated = false;

  const declared = (deps) => new Set(deps.map((name) => names.asDerivation(name) ?? name));
  const record = (state, isActive) => {
    state.isActive = isActive;
    if (isActive) {
      state.hitCount += 1;
      state.lastActiveAt = Date.now();
    }
    hooks.evaluated(state.id, isActive, definitions[state.id].explain?.(facts));
    return isActive;
  };
  const recordError = (state, error) => {
    state.isActive = false;
    hooks.failed(state.id, error);
    return false;
  };

  const evaluateNow = (state) => {
    const { when, deps } = definitions[state.id];
    try {
      let isActive;
      if (deps) {
        state.conditionReads = declared(deps);
        isActive = when(facts, derived);
      } else {
        const tracked = track(() => when(facts, derived));
        state.conditionReads = tracked.reads;
        isActive = tracked.value;
      }
      if (!(isActive instanceof Promise)) return record(state, isActive);
      state.isAsync = true;
      console.warn(`[Directive] the constraint "${state.id}" gives a promise: declare it with \`async: true\``);
      return isActive.then((value) => record(state, value)).catch((error) => recordError(state, error));
    } catch (error) {
      return recordError(state, error);
    }
  };
  const evaluateLater = async (state) => {
    const { when, deps, timeout = DEFAULT_TIMEOUT } = definitions[state.id];
    if (deps?.length) {
      state.reads = declared(deps);
      state.conditionReads = state.reads;
    }
    try {
      return record(state, await within(when(facts, derived), timeout, `Constraint "${state.id}" timed out after ${timeout}ms`));
    } catch (error) {
      return recordError(state, error);
    }
  };

  const required = (state) => {
    const { require } = definitions[state.id];
    const { value, reads } = typeof require === "function" ? track(() => require(facts, derived)) : { value: require, reads: new Set() };
    const list = (Array.isArray(value) ? value : [value]).filter((one) => one !== null && one !== undefined);
    if (Array.isArray(value) && list.length > MANY_REQUIREMENTS) console.warn(`[Directive] the constraint "${state.id}" has ${list.length} requirements: several constraints would be faster`);
    return { list, reads };
  };
  const setIdle = (state) => {
    if (state.conditionReads !== undefined) state.reads = state.conditionReads;
    state.isIdle = true;
    state.requirements = [];
  };
  const take = (state, isActive, into) => {
    if (state.isDisabled) return;
    if (!isActive) return setIdle(state);
    state.isIdle = false;
    try {
      const { list, reads } = required(state);
      const all = new Set([...(state.conditionReads ?? state.reads), ...reads]);
      if (all.size === 0 || !sameSet(state.reads, all)) state.reads = all;
      state.requirements = list.map((requirement) => ({ requirement, id: generateRequirementId(requirement, keys[requirement.type]), fromConstraint: state.id }));
      state.requirements.forEach((one) => into.add(one));
    } catch (error) {
      hooks.failed(state.id, error);
      setIdle(state);
    }
  };

  const isReady = ({ after }) =>
    after.every((id) => {
      const earlier = states.get(id);
      return !earlier || earlier.isDisabled || earlier.isIdle || earlier.isResolved;
    });

  // Evaluates what is ready, and gives what is not.
  const pass = async (list, into) => {
    const blocked = list.filter((state) => !isReady(state));
    const ready = list.filter((state) => !blocked.includes(state));
    for (const state of blocked) state.requirements?.forEach((one) => into.add(one));
    if (ready.length === 0) return blocked;
    const later = ready.filter(({ isAsync }) => isAsync);
    const promised = [];
    for (const state of ready) {
      if (later.includes(state)) continue;
      const isActive = evaluateNow(state);
      if (isActive instanceof Promise) promised.push([state, isActive]);
      else take(state, isActive, into);
    }
    const settle = async (pairs) => {
      const results = await Promise.all(pairs.map(async ([state, isActive]) => [state, await isActive]));
      for (const [state, isActive] of results) take(state, isActive, into);
    };
    if (promised.length > 0) await settle(promised);
    if (later.length > 0) await settle(later.map((state) => [state, evaluateLater(state)]));
    return blocked;
  };

  const ifKnown = (action, id, change) => {
    if (states.has(id)) change(states.get(id));
    else console.warn(`[Directive] constraints.${action}("${id}"): there is no such constraint`);
  };

  return {
    // The requirements after facts and derivations have changed.
    evaluate: async (changed) => {
      const into = new RequirementSet();
      for (const state of states.values()) state.isIdle = false;
      const enabled = sorted.map((id) => states.get(id)).filter(({ isDisabled }) => !isDisabled);
      let left = enabled;
      if (hasEvaluated && changed.size > 0) {
        const affected = new Set();
        for (const key of changed) for (const state of enabled) if (state.reads.has(key)) affected.add(state);
        for (const state of dirty) if (!state.isDisabled) affected.add(state);
        dirty.clear();
        left = [...affected];
        for (const state of enabled) if (!affected.has(state)) state.requirements?.forEach((one) => into.add(one));
      }
      hasEvaluated = true;
      for (let passes = left.length + 1; left.length > 0 && passes > 0; passes -= 1) {
        const count = left.length;
        left = await pass(left, into);
        if (left.length === count) break;
      }
      return into.all();
    },
    state: (id) => states.get(id),
    states: () => [...states.values()],
    isDisabled: (id) => states.get(id)?.isDisabled ?? false,
    disable: (id) => ifKnown("disable", id, (state) => {
      Object.assign(state, { isDisabled: true, requirements: undefined, reads: new Set(), conditionReads: undefined });
    }),
    enable: (id) => ifKnown("enable", id, (state) => {
      state.isDisabled = false;
      dirty.add(state);
    }),
    // The resolver for a constraint has succeeded: constraints that wait for it are evaluated again.
    markResolved: (id) => {
      if (!states.has(id)) return;
      states.get(id).isResolved = true;
      for (const state of states.values()) if (state.after.includes(id)) dirty.add(state);
    },
    reads: () => [...states.values()].flatMap(({ reads }) => [...reads]),
  };
};
