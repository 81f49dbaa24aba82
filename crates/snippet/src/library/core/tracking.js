// Who reads what: while a function is tracked, the facts and derivations that it reads are noted. A derivation
// has another name in such a set than a fact of the same name.

const frames = [];
const DERIVATION = "\u0000derivation ";

export const derivationKey = (id) => DERIVATION + id;
export const isDerivationKey = (key) => key.startsWith(DERIVATION);
// The name that a person gave.
export const plainName = (key) => (isDerivationKey(key) ? key.slice(DERIVATION.length) : key);

// Calls a function, and gives its value with what it read. `inner` is for the functions of derivations, whose
// reads do not belong to those who watch.
export const track = (action, inner = false) => {
  const reads = new Set();
  frames.push({ reads, inner });
  try {
    return { value: action(), reads };
  } finally {
    frames.pop();
  }
};

// Calls a function whose reads are not noted.
export const untracked = (action) => {
  const held = frames.splice(0, frames.length);
  try {
    return action();
  } finally {
    frames.push(...held);
  }
};

export const recordRead = (key) => frames.at(-1)?.reads.add(key);
// Whether a constraint or an effect reads, and not a derivation.
export const isWatching = () => frames.length > 0 && !frames.at(-1).inner;

export const sameSet = (a, b) => a.size === b.size && [...b].every((one) => a.has(one));
