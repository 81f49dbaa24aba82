// A plugin that counts and measures what a system does.

const durations = () => ({ totalDurationMs: 0, avgDurationMs: 0, maxDurationMs: 0 });
// Adds a duration to the measurements of so many runs.
const add = (measured, duration, runs) => {
  measured.totalDurationMs += duration;
  measured.avgDurationMs = measured.totalDurationMs / runs;
  measured.maxDurationMs = Math.max(measured.maxDurationMs, duration);
};
const byId = (create) => {
  const all = new Map();
  return {
    of: (id) => {
      if (!all.has(id)) all.set(id, create());
      return all.get(id);
    },
    copy: () => Object.fromEntries([...all].map(([id, measured]) => [id, { ...measured }])),
    clear: () => all.clear(),
  };
};

export const performancePlugin = ({ onSlowConstraint, onSlowResolver, slowConstraintThresholdMs = 16, slowResolverThresholdMs = 1000 } = {}) => {
  const constraints = byId(() => ({ evaluations: 0, ...durations(), lastEvaluatedAt: 0 }));
  const resolvers = byId(() => ({ starts: 0, completions: 0, errors: 0, retries: 0, cancellations: 0, ...durations(), lastCompletedAt: 0 }));
  const effects = byId(() => ({ runs: 0, errors: 0, lastRunAt: 0 }));
  let reconcile = { runs: 0, ...durations() };
  let startedAt = 0;
  let reconcileStart = 0;
  // When the last constraint was evaluated in this round: the first one has no duration.
  let lastEvaluation;
  const count = (of, member) => (id) => {
    of.of(id)[member] += 1;
  };
  return {
    name: "performance",
    onStart: () => {
      startedAt = Date.now();
    },
    onConstraintEvaluate: (id) => {
      const now = performance.now();
      const measured = constraints.of(id);
      measured.evaluations += 1;
      measured.lastEvaluatedAt = Date.now();
      if (lastEvaluation !== undefined) {
        const duration = now - lastEvaluation;
        add(measured, duration, measured.evaluations);
        if (duration > slowConstraintThresholdMs) onSlowConstraint?.(id, duration);
      }
      lastEvaluation = now;
    },
    onResolverStart: count(resolvers, "starts"),
    onResolverComplete: (id, requirement, duration) => {
      const measured = resolvers.of(id);
      measured.completions += 1;
      measured.lastCompletedAt = Date.now();
      add(measured, duration, measured.completions);
      if (duration > slowResolverThresholdMs) onSlowResolver?.(id, duration);
    },
    onResolverError: count(resolvers, "errors"),
    onResolverRetry: count(resolvers, "retries"),
    onResolverCancel: count(resolvers, "cancellations"),
    onEffectRun: (id) => {
      const measured = effects.of(id);
      measured.runs += 1;
      measured.lastRunAt = Date.now();
    },
    onEffectError: count(effects, "errors"),
    onReconcileStart: () => {
      reconcileStart = performance.now();
      lastEvaluation = undefined;
    },
    onReconcileEnd: () => {
      reconcile.runs += 1;
      add(reconcile, performance.now() - reconcileStart, reconcile.runs);
    },
    getSnapshot: () => ({
      constraints: constraints.copy(),
      resolvers: resolvers.copy(),
      effects: effects.copy(),
      reconcile: { ...reconcile },
      uptime: startedAt === 0 ? 0 : Date.now() - startedAt,
    }),
    reset: () => {
      for (const measured of [constraints, resolvers, effects]) measured.clear();
      reconcile = { runs: 0, ...durations() };
      lastEvaluation = undefined;
    },
  };
};
