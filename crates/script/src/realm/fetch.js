// The guarded fetch, with its headers, requests and responses. A function that takes the host's
// services and returns the function that settles a fetch.
(host) => {
  "use strict";
  const define = (name, value) =>
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });
  const text = (value) => String(value).toWellFormed();

  const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
  class Headers {
    #pairs = [];
    constructor(init) {
      if (init === undefined || init === null) return;
      const pairs = typeof init[Symbol.iterator] === "function" ? init : Object.entries(init);
      for (const [name, value] of pairs) this.append(name, value);
    }
    #name(name) {
      if (!TOKEN.test(name)) throw new TypeError(`"${name}" is not a valid header name`);
      return String(name).toLowerCase();
    }
    append(name, value) {
      this.#pairs.push([this.#name(name), text(value).trim()]);
    }
    set(name, value) {
      this.delete(name);
      this.append(name, value);
    }
    delete(name) {
      const gone = this.#name(name);
      this.#pairs = this.#pairs.filter((pair) => pair[0] !== gone);
    }
    get(name) {
      const wanted = this.#name(name);
      const values = this.#pairs.filter((pair) => pair[0] === wanted).map((pair) => pair[1]);
      return values.length === 0 ? null : values.join(", ");
    }
    has(name) {
      return this.get(name) !== null;
    }
    getSetCookie() {
      return this.#pairs.filter((pair) => pair[0] === "set-cookie").map((pair) => pair[1]);
    }
    *entries() {
      const names = [...new Set(this.#pairs.map((pair) => pair[0]))].sort();
      for (const name of names) yield [name, this.get(name)];
    }
    *keys() {
      for (const [name] of this.entries()) yield name;
    }
    *values() {
      for (const [, value] of this.entries()) yield value;
    }
    forEach(callback) {
      for (const [name, value] of this.entries()) callback(value, name, this);
    }
    [Symbol.iterator]() {
      return this.entries();
    }
  }
  define("Headers", Headers);

  // The bytes of a body and its default content type.
  const bytesOf = (body) => {
    if (body === undefined || body === null) return [undefined, undefined];
    if (body instanceof ArrayBuffer) return [new Uint8Array(body.slice(0)), undefined];
    if (ArrayBuffer.isView(body)) {
      return [new Uint8Array(body.buffer, body.byteOffset, body.byteLength).slice(), undefined];
    }
    const form = body instanceof URLSearchParams;
    const type = form ? "application/x-www-form-urlencoded" : "text/plain";
    return [host.encode(text(body)), `${type};charset=UTF-8`];
  };

  // Requests and responses have a body that can be read once.
  class Body {
    #bytes;
    #used = false;
    constructor(bytes) {
      this.#bytes = bytes;
    }
    get bodyUsed() {
      return this.#used;
    }
    #take() {
      if (this.#used) throw new TypeError("the body has already been read");
      this.#used = this.#bytes !== undefined;
      return this.#bytes ?? new Uint8Array();
    }
    async bytes() {
      return this.#take();
    }
    async arrayBuffer() {
      return this.#take().buffer;
    }
    async text() {
      return host.decode(host.narrow(this.#take()), false).replace(/^\uFEFF/, "");
    }
    async json() {
      return JSON.parse(await this.text());
    }
    copy() {
      if (this.#used) throw new TypeError("the body has already been read");
      return this.#bytes?.slice();
    }
  }

  let answered;
  class Response extends Body {
    #head = { status: 200, statusText: "", url: "", redirected: false };
    constructor(body, { status = 200, statusText = "", headers } = {}) {
      const [bytes, type] = bytesOf(body);
      super(bytes);
      this.#head = { status, statusText: text(statusText), url: "", redirected: false };
      this.headers = new Headers(headers);
      if (type !== undefined && !this.headers.has("content-type")) {
        this.headers.set("content-type", type);
      }
    }
    static {
      answered = (head) => {
        const response = new Response(head.body, { headers: head.headers });
        response.#head = head;
        return response;
      };
    }
    static json(value, init = {}) {
      const headers = new Headers(init.headers);
      if (!headers.has("content-type")) headers.set("content-type", "application/json");
      return new Response(JSON.stringify(value), { ...init, headers });
    }
    get status() {
      return this.#head.status;
    }
    get statusText() {
      return this.#head.statusText;
    }
    get ok() {
      return this.status >= 200 && this.status <= 299;
    }
    get url() {
      return this.#head.url;
    }
    get redirected() {
      return this.#head.redirected;
    }
    get type() {
      return "basic";
    }
    clone() {
      return answered({ ...this.#head, body: this.copy(), headers: this.headers });
    }
  }
  define("Response", Response);

  const REDIRECTS = ["follow", "error", "manual"];
  class Request extends Body {
    constructor(input, init = {}) {
      const from = input instanceof Request ? input : undefined;
      const [bytes, type] = init.body === undefined ? [from?.copy()] : bytesOf(init.body);
      super(bytes);
      this.url = from ? from.url : new URL(text(input)).href;
      this.method = text(init.method ?? from?.method ?? "GET");
      if (!TOKEN.test(this.method)) throw new TypeError(`"${this.method}" is not a valid method`);
      this.headers = new Headers(init.headers ?? from?.headers);
      if (type !== undefined && !this.headers.has("content-type")) {
        this.headers.set("content-type", type);
      }
      this.redirect = init.redirect ?? from?.redirect ?? "follow";
      if (!REDIRECTS.includes(this.redirect)) throw new TypeError("invalid redirect mode");
      this.signal = init.signal ?? from?.signal ?? null;
    }
    clone() {
      return new Request(this);
    }
  }
  define("Request", Request);

  const pending = new Map();
  define("fetch", async (input, init) => {
    const request = new Request(input, init ?? {});
    const { signal } = request;
    signal?.throwIfAborted();
    return new Promise((resolve, reject) => {
      const redirect = REDIRECTS.indexOf(request.redirect);
      const pairs = [...request.headers];
      const bytes = request.copy();
      const body = bytes && host.narrow(bytes);
      const id = host.fetch(request.method, request.url, pairs, body, redirect);
      const onAbort = () => {
        pending.delete(id);
        host.abort(id);
        reject(signal.reason);
      };
      const done = () => {
        pending.delete(id);
        signal?.removeEventListener("abort", onAbort);
      };
      pending.set(id, { resolve, reject, done });
      signal?.addEventListener("abort", onAbort, { once: true });
    });
  });

  return {
    settle(id, error, head) {
      const entry = pending.get(id);
      if (entry === undefined) return;
      entry.done();
      if (head === undefined) entry.reject(new TypeError(error));
      else entry.resolve(answered(head));
    },
  };
}
