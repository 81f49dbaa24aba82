// Listeners of facts and derivations. `all` gives the facts of all modules.

export const watchers = (engine, kind, all) => {
  const { store, derivations, schema } = engine;
  return {
    subscribe: (ids, listener) => {
      const known = { derivations: [], facts: [] };
      for (const id of ids.flatMap((id) => (kind.mode === "namespaced" && id.endsWith(".*") ? kind.keysOf(id.slice(0, -2)) ?? [] : [kind.keyOf(id)]))) {
        if (derivations.isKnown(id)) known.derivations.push(id);
        else if (Object.hasOwn(schema, id)) known.facts.push(id);
        else console.warn(`[Directive] subscribe: unknown key "${id}"`);
      }
      const stops = [derivations.subscribe(known.derivations, listener), store.subscribe(known.facts, listener)];
      return () => stops.forEach((stop) => stop());
    },
    watch: (name, listener, options) => {
      const id = kind.keyOf(name);
      const isEqual = options?.equalityFn ?? Object.is;
      const isDerivation = derivations.isKnown(id);
      if (!isDerivation && !Object.hasOwn(schema, id)) console.warn(`[Directive] watch: unknown key "${id}"`);
      const { get, subscribe } = isDerivation ? derivations : store;
      let before = get(id);
      return subscribe([id], () => {
        const now = get(id);
        if (isEqual(now, before)) return;
        const last = before;
        before = now;
        listener(now, last);
      });
    },
    when: (predicate, options) =>
      new Promise((resolve, reject) => {
        const holds = () => predicate(kind.mode === "single" ? store.toObject() : all());
        if (holds()) return resolve();
        let timer;
        const stop = store.subscribeAll(() => {
          if (!holds()) return;
          stop();
          clearTimeout(timer);
          resolve();
        });
        if (!(options?.timeout > 0)) return;
        timer = setTimeout(() => {
          stop();
          reject(new Error(`[Directive] when: timed out after ${options.timeout}ms`));
        }, options.timeout);
      }),
  };
};
