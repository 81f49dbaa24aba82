import { createModule, t } from "@directive-run/core";
interface Wide<T> { x: T; y?: number }
type Keys = keyof Wide<string> | `a${string}`;
enum Kind { One = 1, Two }
export const counter = createModule("counter", {
  schema: { facts: { count: t.number() } },
  init: (facts: any) => { facts.count = Kind.One as number; },
});
