// URL and URLSearchParams. A function that takes the host's services.
(host) => {
  "use strict";
  const define = (name, value) =>
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });
  const text = (value) => String(value).toWellFormed();
  const need = (given, count, names) => {
    if (given < count) throw new TypeError(`${names} must be given`);
  };

  // The pairs that a value stands for.
  const pairsOf = (init) => {
    if ((typeof init !== "object" && typeof init !== "function") || init === null) {
      return init === undefined || init === null ? [] : host.parseQuery(text(init).replace(/^\?/, ""));
    }
    if (init[Symbol.iterator] === undefined || init[Symbol.iterator] === null) {
      return Reflect.ownKeys(init).filter((name) => Object.prototype.propertyIsEnumerable.call(init, name)).map((name) => [text(name), text(init[name])]);
    }
    return Array.from(init, (pair) => {
      if (typeof pair !== "object" || pair === null || typeof pair[Symbol.iterator] !== "function") throw new TypeError("each pair must be an iterable of a name and a value");
      const items = [...pair];
      if (items.length !== 2) throw new TypeError("each pair must have a name and a value");
      return items.map(text);
    });
  };

  let connect;
  let take;
  class URLSearchParams {
    #pairs;
    #changed = () => {};
    constructor(init = undefined) {
      this.#pairs = pairsOf(init);
    }
    static {
      connect = (params, changed) => (params.#changed = changed);
      take = (params, query) => (params.#pairs = host.parseQuery(query.replace(/^\?/, "")));
    }
    #change(pairs) {
      this.#pairs = pairs;
      this.#changed(this.toString());
    }
    // An undefined value is the same as none.
    static #isPair([name, value], wanted, held) {
      return name === text(wanted) && (held === undefined || value === text(held));
    }
    get size() {
      return this.#pairs.length;
    }
    append(name, value) {
      need(arguments.length, 2, "the name and the value");
      this.#change([...this.#pairs, [text(name), text(value)]]);
    }
    delete(name, value = undefined) {
      need(arguments.length, 1, "the name");
      this.#change(this.#pairs.filter((pair) => !URLSearchParams.#isPair(pair, name, value)));
    }
    get(name) {
      need(arguments.length, 1, "the name");
      return this.#pairs.find((pair) => pair[0] === text(name))?.[1] ?? null;
    }
    getAll(name) {
      need(arguments.length, 1, "the name");
      return this.#pairs.filter((pair) => pair[0] === text(name)).map((pair) => pair[1]);
    }
    has(name, value = undefined) {
      need(arguments.length, 1, "the name");
      return this.#pairs.some((pair) => URLSearchParams.#isPair(pair, name, value));
    }
    set(name, value) {
      need(arguments.length, 2, "the name and the value");
      const at = this.#pairs.findIndex((pair) => pair[0] === text(name));
      if (at < 0) return this.append(name, value);
      const rest = this.#pairs.filter((pair, index) => index <= at || pair[0] !== text(name));
      rest[at] = [text(name), text(value)];
      this.#change(rest);
    }
    sort() {
      this.#change([...this.#pairs].sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0)));
    }
    forEach(callback, self = undefined) {
      if (typeof callback !== "function") throw new TypeError("the callback must be a function");
      for (const [name, value] of this) callback.call(self, value, name, this);
    }
    // An iterator follows changes that are made while it runs.
    static #iterate(params, part) {
      let at = 0;
      return Object.setPrototypeOf({
        next() {
          const pair = params.#pairs[at];
          at += 1;
          return pair === undefined ? { value: undefined, done: true } : { value: part(pair), done: false };
        },
      }, ITERATOR);
    }
    entries() {
      return URLSearchParams.#iterate(this, (pair) => [...pair]);
    }
    keys() {
      return URLSearchParams.#iterate(this, (pair) => pair[0]);
    }
    values() {
      return URLSearchParams.#iterate(this, (pair) => pair[1]);
    }
    toString() {
      return host.writeQuery(this.#pairs);
    }
  }
  const ITERATOR = Object.create(Object.getPrototypeOf(Object.getPrototypeOf([][Symbol.iterator]())), {
    [Symbol.toStringTag]: { value: "URLSearchParams Iterator", configurable: true },
  });
  const hidden = (object, key, value) => Object.defineProperty(object, key, { value, writable: true, configurable: true });
  hidden(URLSearchParams.prototype, Symbol.iterator, URLSearchParams.prototype.entries);
  Object.defineProperty(URLSearchParams.prototype, Symbol.toStringTag, { value: "URLSearchParams", configurable: true });
  define("URLSearchParams", URLSearchParams);

  const parse = (url, base) => host.parseUrl(text(url), base === undefined ? "" : text(base));
  class URL {
    #href;
    #params;
    constructor(url, base = undefined) {
      need(arguments.length, 1, "the URL");
      const href = parse(url, base);
      if (href === undefined) throw new TypeError(`Invalid URL: ${text(url)}`);
      this.#href = href;
    }
    static parse(url, base = undefined) {
      return URL.canParse(url, base) ? new URL(url, base) : null;
    }
    static canParse(url, base = undefined) {
      need(arguments.length, 1, "the URL");
      return parse(url, base) !== undefined;
    }
    static {
      for (const part of host.urlParts) {
        Object.defineProperty(this.prototype, part, {
          get() {
            return host.urlPart(this.#href, part);
          },
          set(value) {
            const href = host.setUrlPart(this.#href, part, text(value));
            if (href === undefined && part === "href") throw new TypeError(`Invalid URL: ${text(value)}`);
            this.#href = href ?? this.#href;
            if (this.#params !== undefined) take(this.#params, this.search);
          },
          enumerable: true,
          configurable: true,
        });
      }
    }
    get origin() {
      return host.urlPart(this.#href, "origin");
    }
    // One object for the lifetime of the URL: each shows the changes of the other.
    get searchParams() {
      if (this.#params === undefined) {
        this.#params = new URLSearchParams(this.search);
        connect(this.#params, (query) => {
          this.#href = host.setUrlPart(this.#href, "search", query) ?? this.#href;
        });
      }
      return this.#params;
    }
    toString() {
      return this.#href;
    }
    toJSON() {
      return this.#href;
    }
  }
  for (const name of ["origin", "searchParams", "toString", "toJSON"]) {
    Object.defineProperty(URL.prototype, name, { enumerable: true });
  }
  Object.defineProperty(URL.prototype, Symbol.toStringTag, { value: "URL", configurable: true });
  define("URL", URL);
}
