// Disables the functions that compile code from strings. The engine compiles modules with the same
// intrinsic, so it cannot be left out. The constructors of other kinds of functions are disabled, too.
() => {
  "use strict";
  const stub = (name, prototype) => {
    const refuse = function () {
      throw new EvalError("code generation from strings is disabled in the sandbox");
    };
    const fixed = { writable: false, configurable: false, enumerable: false };
    Object.defineProperty(refuse, "name", { value: name });
    Object.defineProperty(refuse, "prototype", { value: prototype, writable: false });
    Object.defineProperty(prototype, "constructor", { value: refuse, ...fixed });
    return refuse;
  };
  const kinds = [async function () {}, function* () {}, async function* () {}];
  for (const kind of kinds) stub("", Object.getPrototypeOf(kind));
  const value = stub("Function", Function.prototype);
  Object.defineProperty(globalThis, "Function", { value, writable: true, configurable: true });
  delete globalThis.eval;
}
