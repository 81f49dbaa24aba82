// Snapshots of derivations and facts that are given to others, and functions on them.
import { stableText } from "./requirements.js";
import { SEPARATOR } from "./namespace.js";

const HASH_START = 5381;
const hashOf = (value) => {
  let hash = HASH_START;
  for (const unit of stableText(value).split("")) hash = ((hash << 5) + hash) ^ unit.charCodeAt(0);
  return (hash >>> 0).toString(16);
};

// "module::key" as an object in an object.
const byModule = (data) => {
  const nested = {};
  for (const [key, value] of Object.entries(data)) {
    const at = key.indexOf(SEPARATOR);
    const name = at > 0 ? key.slice(0, at) : "_root";
    nested[name] ??= {};
    nested[name][at > 0 ? key.slice(at + SEPARATOR.length) : key] = value;
  }
  return nested;
};

const warnUnknown = (what, ids, isKnown, known) => {
  const unknown = ids.filter((id) => !isKnown(id));
  if (unknown.length > 0) console.warn(`[Directive] getDistributableSnapshot: there is no ${what} ${unknown.join(", ")}; there are ${known.join(", ") || "none"}`);
};

export const distributable = (engine, kind, { includeDerivations, excludeDerivations, includeFacts, ttlSeconds, metadata, includeVersion }) => {
  const { derivations, store } = engine;
  const all = Object.keys(engine.definitions.derive);
  const wanted = includeDerivations?.map(kind.keyOf) ?? all;
  const left = new Set(excludeDerivations?.map(kind.keyOf));
  warnUnknown("derivation", wanted, derivations.isKnown, all);
  const data = {};
  for (const id of wanted) {
    if (!derivations.isKnown(id) || left.has(id)) continue;
    try {
      data[id] = derivations.get(id);
    } catch (error) {
      console.warn(`[Directive] getDistributableSnapshot: the derivation "${id}" is left out:`, error);
    }
  }
  const facts = store.toObject();
  const keys = includeFacts?.map(kind.keyOf) ?? [];
  warnUnknown("fact", keys, (key) => Object.hasOwn(facts, key), Object.keys(facts));
  for (const key of keys) if (Object.hasOwn(facts, key)) data[key] = facts[key];
  const snapshot = { data: kind.mode === "single" ? data : byModule(data), createdAt: Date.now() };
  if (ttlSeconds > 0) snapshot.expiresAt = snapshot.createdAt + ttlSeconds * 1000;
  if (includeVersion) snapshot.version = hashOf(data);
  if (metadata) snapshot.metadata = metadata;
  return snapshot;
};

export const isSnapshotExpired = ({ expiresAt }, now = Date.now()) => expiresAt !== undefined && now > expiresAt;

export const validateSnapshot = (snapshot, now = Date.now()) => {
  if (typeof snapshot !== "object" || snapshot === null) throw new Error("[Directive] Invalid snapshot: an object with data and createdAt is needed");
  if (!("data" in snapshot)) throw new Error("[Directive] Invalid snapshot: `data` is missing");
  if (typeof snapshot.createdAt !== "number") throw new Error("[Directive] Invalid snapshot: `createdAt` is no number");
  if (isSnapshotExpired(snapshot, now)) throw new Error(`[Directive] Snapshot expired at ${new Date(snapshot.expiresAt).toISOString()}`);
  return snapshot.data;
};

export const shallowEqual = (a, b) => {
  if (a === b) return true;
  if (!a || !b) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => a[key] === b[key]);
};
