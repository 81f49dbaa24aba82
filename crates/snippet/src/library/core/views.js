// The derivations and events of a system, for reading and dispatching.
import { dynamic, isReserved } from "./refusal.js";

export const derivationView = (engine) => {
  const methods = dynamic("derive");
  const { derivations, definitions } = engine;
  return new Proxy({}, {
    get: (target, key) => (Object.hasOwn(methods, key) ? methods[key] : derivations.isKnown(key) ? derivations.get(key) : undefined),
    has: (target, key) => derivations.isKnown(key) || Object.hasOwn(methods, key),
    ownKeys: () => Object.keys(definitions.derive),
    getOwnPropertyDescriptor: (target, key) => (derivations.isKnown(key) ? { configurable: true, enumerable: true } : undefined),
    set: () => false,
    defineProperty: () => false,
    getPrototypeOf: () => null,
    setPrototypeOf: () => false,
  });
};
export const eventView = (engine) => {
  const isKnown = (key) => typeof key === "string" && Object.hasOwn(engine.events, key);
  return new Proxy({}, {
    get: (target, key) => (typeof key === "symbol" || isReserved(key) ? undefined : (payload) => engine.dispatch(key, payload)),
    has: (target, key) => isKnown(key),
    ownKeys: () => Object.keys(engine.events),
    getOwnPropertyDescriptor: (target, key) => (isKnown(key) ? { configurable: true, enumerable: true } : undefined),
    set: () => false,
    defineProperty: () => false,
    getPrototypeOf: () => null,
    setPrototypeOf: () => false,
  });
};
