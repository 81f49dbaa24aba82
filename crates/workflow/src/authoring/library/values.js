// Values of attributes in the form that the host reads.
import { Element } from "stockade:elements";

// A value that JSON cannot express is replaced by an object with the key `$`.
export const plain = (value) => {
  if (typeof value === "function") return { $: "function" };
  if (typeof value === "number" && !Number.isFinite(value)) return { $: "number", value: String(value) };
  if (typeof value === "bigint") return { $: "number", value: String(value) };
  if (value instanceof Date) return { $: "date", value: value.toISOString() };
  if (value instanceof Element) return { $: "element" };
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value === "object" && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, plain(item)]));
  }
  return value;
};
