// Refuses unknown keys of objects that the author of a workflow writes, with the nearest known key.
import { SmithersError } from "stockade:smithers";

// The number of letters to add, remove, replace or swap with their neighbours.
const distance = (one, other) => {
  let before = [];
  let last = Array.from({ length: other.length + 1 }, (_, at) => at);
  for (let i = 0; i < one.length; i++) {
    const row = [i + 1];
    for (let j = 0; j < other.length; j++) {
      let least = Math.min(last[j] + (one[i] === other[j] ? 0 : 1), last[j + 1] + 1, row[j] + 1);
      if (i > 0 && j > 0 && one[i] === other[j - 1] && one[i - 1] === other[j]) least = Math.min(least, before[j - 1] + 1);
      row.push(least);
    }
    [before, last] = [last, row];
  }
  return last[other.length];
};

const nearest = (key, known) => {
  const name = key.toLowerCase();
  const allowed = name.length < 3 ? 1 : Math.floor(name.length / 3) + 1;
  const near = known.map((other) => [distance(name, other.toLowerCase()), other]).filter(([far]) => far <= allowed);
  return near.sort(([one], [other]) => one - other)[0]?.[1];
};

// The keys of an object that are not known. A key without a value counts as absent.
export const unknownKeys = (object, known) => Object.keys(object).filter((key) => !known.includes(key) && object[key] !== undefined);

// `what` is the name of the object in messages.
export const checkKeys = (what, object, known) => {
  if (typeof object !== "object" || object === null) return;
  const [key] = unknownKeys(object, known);
  if (key === undefined) return;
  const meant = nearest(key, known);
  const hint = meant === undefined ? `it has ${known.join(", ")}` : `did you mean \`${meant}\`?`;
  throw new SmithersError("INVALID_INPUT", `${what} has no \`${key}\` — ${hint}`);
};
