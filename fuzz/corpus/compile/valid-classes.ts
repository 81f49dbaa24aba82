import { b } from "./b.js";
export class A<T> { #x = 1; static y: number = 2; constructor(private readonly z: T) {} get w() { return this.#x; }
  async *g(): AsyncGenerator<number> { for await (const v of b(this.z)) yield v! * 2; } }
label: for (const [k, { v = 1 }] of Object.entries({})) { if (k) continue label; console.log(`${k}:${v}`, /a(?<n>b)/u); }
