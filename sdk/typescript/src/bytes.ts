// Bytes that are mostly text, as they travel in JSON.
import type { Bytes } from "./generated/models.ts";

/** The bytes of a value. */
export const bytesOf = (value: Bytes): Uint8Array =>
  typeof value === "string" ? Buffer.from(value) : Buffer.from(value.base64, "base64");

/** A value as text; what is no UTF-8 is replaced. */
export const textOf = (value: Bytes): string =>
  typeof value === "string" ? value : Buffer.from(value.base64, "base64").toString();

/** Bytes or text as a value. */
export const fromBytes = (bytes: Uint8Array | string): Bytes => {
  if (typeof bytes === "string") return bytes;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return { base64: Buffer.from(bytes).toString("base64") };
  }
};
