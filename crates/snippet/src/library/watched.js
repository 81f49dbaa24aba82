// The installed package @directive-run/core as snippets import it: every system that they create is
// registered, so that its facts at the end can be reported.
import * as core from "it";
import { register } from "stockade:systems";

export * from "it";

const derivations = (module) => Object.keys(module?.derive ?? {});

const modules = (options) => {
  const { module, modules: named } = options ?? {};
  if (module) return [{ space: false, name: module.id, derivations: derivations(module) }];
  return Object.entries(named ?? {}).map(([name, one]) => ({
    space: true,
    name,
    derivations: derivations(one),
  }));
};

export const createSystem = (options, ...rest) => {
  const system = core.createSystem(options, ...rest);
  register(system, modules(options));
  return system;
};

// Older versions do not have this function.
export const createSystemWithStatus =
  core.createSystemWithStatus &&
  ((options, ...rest) => {
    const made = core.createSystemWithStatus(options, ...rest);
    register(made.system, modules(options));
    return made;
  });
