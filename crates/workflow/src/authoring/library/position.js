// The place of the element that is being rendered, from which names are derived that are the same in
// every rendering.

const UNSAFE = /[^A-Za-z0-9_.-]/g;

let current = [];

export const here = {
  // The name of something at a place: a path of keys and positions.
  named: (path, prefix) => [prefix, ...path].map((part) => String(part).replace(UNSAFE, "-")).join("."),
  // The name of something at the current place.
  name: (prefix) => here.named(current, prefix),
  // Renders a component at a place.
  at: (path, render) => {
    const before = current;
    current = path;
    try {
      return render();
    } finally {
      current = before;
    }
  },
};
