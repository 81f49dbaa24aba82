// Waiting until a system has nothing left to do.

const DEFAULT_LIMIT = 5000;

export const settle = async (engine, limit = DEFAULT_LIMIT) => {
  const { resolvers, state } = engine;
  resolvers.runBatches();
  await new Promise((resolve) => queueMicrotask(resolve));
  if (engine.isSettled()) return;
  await new Promise((resolve, reject) => {
    let isDone = false;
    const end = () => {
      isDone = true;
      clearTimeout(timer);
      stop();
    };
    const timer = setTimeout(() => {
      end();
      const running = resolvers.running();
      const unmet = engine.requirements().all();
      const details = [
        running.length > 0 && `${running.length} resolvers inflight: ${running.map(({ resolverId }) => resolverId).join(", ")}`,
        state.isReconciling && "reconciliation in progress",
        state.isScheduled && "reconcile scheduled",
        unmet.length > 0 && `${unmet.length} unmet requirements: ${unmet.map(({ requirement }) => requirement.type).join(", ")}`,
      ];
      reject(new Error(`[Directive] settle() timed out after ${limit}ms. ${details.filter(Boolean).join("; ")}`));
    }, limit);
    const stop = engine.onSettledChange(() => {
      resolvers.runBatches();
      queueMicrotask(() => {
        if (isDone || !engine.isSettled()) return;
        end();
        resolve();
      });
    });
  });
};
