import { createModule, createSystem, t } from "@directive-run/core";

const counter = createModule("counter", {
  schema: {
    facts: { count: t.number() },
    derivations: { isPositive: t.boolean() },
    events: { bump: {} },
  },
  init: (facts) => {
    facts.count = 0;
  },
  derive: { isPositive: (facts) => facts.count > 0 },
  events: {
    bump: (facts) => {
      facts.count += 1;
    },
  },
});

const system = createSystem({ module: counter });
system.start();
system.events.bump();
system.events.bump();
await system.settle();
console.log("count =", system.facts.count);
