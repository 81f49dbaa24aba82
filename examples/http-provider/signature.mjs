// Signatures of the HTTP provider protocol: HMAC-SHA256 over the time, the target and the body. Both
// sides use them; docs/providers.md has the protocol.
import { createHmac, timingSafeEqual } from "node:crypto";

/** How far the clocks of both sides may differ, in seconds. */
const MAX_AGE = 300;

const mac = (secret, time, target, body) =>
  createHmac("sha256", secret).update(`${time}\n${target}\n`).update(body).digest("hex");

/** The headers of a request or callback. `target` is its method and path. */
export function sign(secret, target, body, now = Date.now()) {
  const time = String(Math.floor(now / 1000));
  return { "stockade-time": time, "stockade-signature": `v1=${mac(secret, time, target, body)}` };
}

/** Whether the headers of a message were made with the secret, for this target and body, and just now. */
export function verify(secret, target, body, headers, now = Date.now()) {
  const time = headers["stockade-time"] ?? "";
  if (!/^\d{1,12}$/.test(time) || Math.abs(now / 1000 - Number(time)) > MAX_AGE) return false;
  const expected = Buffer.from(`v1=${mac(secret, time, target, body)}`);
  const found = Buffer.from(String(headers["stockade-signature"] ?? ""));
  return found.length === expected.length && timingSafeEqual(found, expected);
}
