// URL, events and abort signals. A function that takes the host's services.
(host) => {
  "use strict";
  const define = (name, value) =>
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });

  class URLSearchParams {
    #pairs = [];
    #changed;
    constructor(init = "", changed = () => {}) {
      this.#changed = typeof changed === "function" ? changed : () => {};
      if (typeof init === "string") this.#pairs = host.parseQuery(init.replace(/^\?/, ""));
      else if (typeof init?.[Symbol.iterator] === "function") {
        for (const [name, value] of init) this.#pairs.push([String(name), String(value)]);
      } else {
        for (const name of Object.keys(init)) this.#pairs.push([name, String(init[name])]);
      }
    }
    #change(pairs) {
      this.#pairs = pairs;
      this.#changed(this.toString());
    }
    get size() {
      return this.#pairs.length;
    }
    append(name, value) {
      this.#change([...this.#pairs, [String(name), String(value)]]);
    }
    // An undefined value is the same as none.
    static #isPair([name, value], wanted, held) {
      return name === String(wanted) && (held === undefined || value === String(held));
    }
    delete(name, value) {
      this.#change(this.#pairs.filter((pair) => !URLSearchParams.#isPair(pair, name, value)));
    }
    get(name) {
      return this.#pairs.find((pair) => pair[0] === String(name))?.[1] ?? null;
    }
    getAll(name) {
      return this.#pairs.filter((pair) => pair[0] === String(name)).map((pair) => pair[1]);
    }
    has(name, value) {
      return this.#pairs.some((pair) => URLSearchParams.#isPair(pair, name, value));
    }
    set(name, value) {
      const at = this.#pairs.findIndex((pair) => pair[0] === String(name));
      if (at < 0) return this.append(name, value);
      const rest = this.#pairs.filter((pair, index) => index <= at || pair[0] !== String(name));
      rest[at] = [String(name), String(value)];
      this.#change(rest);
    }
    sort() {
      this.#change([...this.#pairs].sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0)));
    }
    forEach(callback, self) {
      if (typeof callback !== "function") throw new TypeError("the callback must be a function");
      for (const [name, value] of this.#pairs) callback.call(self, value, name, this);
    }
    get [Symbol.toStringTag]() {
      return "URLSearchParams";
    }
    // Takes over the query of a URL that was changed.
    static replace(params, query) {
      params.#pairs = host.parseQuery(query.replace(/^\?/, ""));
    }
    *entries() {
      for (const pair of this.#pairs) yield [...pair];
    }
    *keys() {
      for (const pair of this.#pairs) yield pair[0];
    }
    *values() {
      for (const pair of this.#pairs) yield pair[1];
    }
    [Symbol.iterator]() {
      return this.entries();
    }
    toString() {
      return host.writeQuery(this.#pairs);
    }
  }
  const { replace } = URLSearchParams;
  delete URLSearchParams.replace;
  define("URLSearchParams", URLSearchParams);

  class URL {
    #href;
    #params;
    constructor(url, base) {
      const href = host.parseUrl(String(url), base === undefined ? "" : String(base));
      if (href === undefined) throw new TypeError(`Invalid URL: ${url}`);
      this.#href = href;
    }
    static parse(url, base) {
      return URL.canParse(url, base) ? new URL(url, base) : null;
    }
    static canParse(url, base) {
      return host.parseUrl(String(url), base === undefined ? "" : String(base)) !== undefined;
    }
    static {
      for (const part of host.urlParts) {
        Object.defineProperty(this.prototype, part, {
          get() {
            return host.urlPart(this.#href, part);
          },
          set(value) {
            this.#href = host.setUrlPart(this.#href, part, String(value)) ?? this.#href;
            if (this.#params !== undefined) replace(this.#params, this.search);
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
      this.#params ??= new URLSearchParams(this.search, (query) => {
        this.#href = host.setUrlPart(this.#href, "search", query) ?? this.#href;
      });
      return this.#params;
    }
    toString() {
      return this.#href;
    }
    toJSON() {
      return this.#href;
    }
  }
  define("URL", URL);

  class Event {
    defaultPrevented = false;
    target = null;
    constructor(type, { cancelable = false } = {}) {
      this.type = String(type);
      this.cancelable = cancelable;
    }
    preventDefault() {
      this.defaultPrevented = this.cancelable;
    }
  }
  define("Event", Event);

  class EventTarget {
    #listeners = new Map();
    addEventListener(type, listener, { once = false } = {}) {
      const list = this.#listeners.get(type) ?? [];
      if (list.some((entry) => entry.listener === listener)) return;
      this.#listeners.set(type, [...list, { listener, once }]);
    }
    removeEventListener(type, listener) {
      const list = this.#listeners.get(type) ?? [];
      this.#listeners.set(type, list.filter((entry) => entry.listener !== listener));
    }
    dispatchEvent(event) {
      event.target = this;
      for (const { listener, once } of this.#listeners.get(event.type) ?? []) {
        if (once) this.removeEventListener(event.type, listener);
        if (typeof listener === "function") listener.call(this, event);
        else listener.handleEvent(event);
      }
      return !event.defaultPrevented;
    }
  }
  define("EventTarget", EventTarget);

  const abortError = (name, message) => {
    if (typeof DOMException === "function") return new DOMException(message, name);
    return Object.assign(new Error(message), { name });
  };
  let abort;
  class AbortSignal extends EventTarget {
    #aborted = false;
    #reason;
    onabort = null;
    static {
      abort = (signal, reason = abortError("AbortError", "This operation was aborted")) => {
        if (signal.#aborted) return;
        signal.#aborted = true;
        signal.#reason = reason;
        const event = new Event("abort");
        signal.onabort?.(event);
        signal.dispatchEvent(event);
      };
    }
    get aborted() {
      return this.#aborted;
    }
    get reason() {
      return this.#reason;
    }
    throwIfAborted() {
      if (this.#aborted) throw this.#reason;
    }
    static abort(reason) {
      const signal = new AbortSignal();
      abort(signal, reason);
      return signal;
    }
    static timeout(delay) {
      const signal = new AbortSignal();
      setTimeout(() => abort(signal, abortError("TimeoutError", "signal timed out")), delay);
      return signal;
    }
    static any(signals) {
      const signal = new AbortSignal();
      for (const source of signals) {
        if (source.aborted) abort(signal, source.reason);
        else source.addEventListener("abort", () => abort(signal, source.reason));
      }
      return signal;
    }
  }
  define("AbortSignal", AbortSignal);
  define("AbortController", class AbortController {
    signal = new AbortSignal();
    abort(reason) {
      abort(this.signal, reason);
    }
  });
}
