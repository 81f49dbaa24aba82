// Plugins of a system: objects with functions that are called when something happens. What one throws is reported, and stops
// nothing.

export const createPlugins = (list = []) => {
  const plugins = [];
  const report = (error) => console.error("[Directive] Plugin error:", error);
  const remove = (name) => {
    const at = plugins.findIndex((plugin) => plugin.name === name);
    if (at >= 0) plugins.splice(at, 1);
  };
  const add = (plugin) => {
    if (plugins.some(({ name }) => name === plugin.name)) {
      console.warn(`[Directive] the plugin "${plugin.name}" is replaced by another of its name`);
      remove(plugin.name);
    }
    plugins.push(plugin);
  };
  list.forEach(add);
  return {
    add,
    remove,
    list: () => [...plugins],
    isEmpty: () => plugins.length === 0,
    emit: (hook, ...values) => {
      for (const plugin of [...plugins]) {
        try {
          plugin[hook]?.(...values);
        } catch (error) {
          report(error);
        }
      }
    },
    // Calls `onInit` of all plugins, also of those that are added by it.
    init: async (system) => {
      const done = new WeakSet();
      for (let pass = 0; pass < 100; pass += 1) {
        const left = plugins.filter((plugin) => !done.has(plugin));
        if (left.length === 0) return;
        for (const plugin of left) {
          done.add(plugin);
          try {
            await plugin.onInit?.(system);
          } catch (error) {
            report(error);
          }
        }
      }
    },
  };
};
