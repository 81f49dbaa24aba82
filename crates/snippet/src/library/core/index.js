// A small implementation of the part of @directive-run/core that snippets use, written from its public description
// and its behaviour. What it lacks is refused by name.

import { extractDeps as namesIn } from "./predicate.js";

export * from "./absent.js";
export { DirectiveError } from "./boundary.js";
export { createModule, createModuleFactory } from "./definition.js";
export {
  applyPatch, evaluateKeySelector, evaluatePredicate, evaluatePredicateExplained, evaluateTemplate, extractTemplateKeys, isPredicate, isTemplate, memoizePredicate,
} from "./predicate.js";
export { forType, generateRequirementId, isRequirementType, req, RequirementSet } from "./requirements.js";
export { isSnapshotExpired, shallowEqual, validateSnapshot } from "./snapshots.js";
export { createSystem } from "./system.js";
export { t } from "./types.js";

export const extractDeps = (spec) => namesIn(spec);

// Helpers for types, which give back what they get.
export const typedConstraint = (constraint) => constraint;
export const typedResolver = (resolver) => resolver;

export const isSingleModuleSystem = (system) => system._mode === "single";
export const isNamespacedSystem = (system) => system._mode === "namespaced";

// The names of how the waits between attempts grow.
export const Backoff = { None: "none", Linear: "linear", Exponential: "exponential" };
