// Events, their targets, and abort signals. A function that takes the host's services.
(host) => {
  "use strict";
  const define = (name, value) => {
    Object.defineProperty(value.prototype, Symbol.toStringTag, { value: name, configurable: true });
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });
  };
  const need = (given, count, names) => {
    if (given < count) throw new TypeError(`${names} must be given`);
  };
  const failure = (message, name) => new DOMException(message, name);

  const PHASES = { NONE: 0, CAPTURING_PHASE: 1, AT_TARGET: 2, BUBBLING_PHASE: 3 };
  let run;
  class Event {
    #type;
    #options;
    #time = host.now();
    #target = null;
    #current = null;
    #isCanceled = false;
    #isPassive = false;
    #isStopped = false;
    #isEnded = false;
    constructor(type, options = undefined) {
      need(arguments.length, 1, "the type");
      if (options !== undefined && options !== null && typeof options !== "object") throw new TypeError("the options must be an object");
      const { bubbles = false, cancelable = false, composed = false } = options ?? {};
      this.#type = String(type);
      this.#options = { bubbles: Boolean(bubbles), cancelable: Boolean(cancelable), composed: Boolean(composed) };
    }
    static {
      // Calls listeners with an event, until one of them ends that. A listener that throws stops no other.
      run = (event, target, listeners) => {
        if (event.#current !== null) throw failure("the event is being dispatched", "InvalidStateError");
        [event.#target, event.#current] = [target, target];
        for (const entry of listeners) {
          if (event.#isEnded) break;
          if (entry.isRemoved) continue;
          if (entry.once) entry.remove();
          event.#isPassive = entry.passive;
          try {
            if (typeof entry.listener === "function") entry.listener.call(target, event);
            else entry.listener.handleEvent(event);
          } catch (error) {
            Promise.reject(error);
          }
        }
        event.#isPassive = false;
        event.#current = null;
        event.#isStopped = false;
        event.#isEnded = false;
        return !event.#isCanceled;
      };
    }
    get type() {
      return this.#type;
    }
    get bubbles() {
      return this.#options.bubbles;
    }
    get cancelable() {
      return this.#options.cancelable;
    }
    get composed() {
      return this.#options.composed;
    }
    get target() {
      return this.#target;
    }
    get srcElement() {
      return this.#target;
    }
    get currentTarget() {
      return this.#current;
    }
    get eventPhase() {
      return this.#current === null ? PHASES.NONE : PHASES.AT_TARGET;
    }
    get timeStamp() {
      return this.#time;
    }
    get isTrusted() {
      return false;
    }
    get defaultPrevented() {
      return this.#isCanceled;
    }
    get returnValue() {
      return !this.#isCanceled;
    }
    set returnValue(value) {
      if (!value) this.preventDefault();
    }
    get cancelBubble() {
      return this.#isStopped;
    }
    set cancelBubble(value) {
      if (value) this.stopPropagation();
    }
    preventDefault() {
      if (this.#options.cancelable && !this.#isPassive) this.#isCanceled = true;
    }
    stopPropagation() {
      this.#isStopped = true;
    }
    stopImmediatePropagation() {
      this.#isStopped = true;
      this.#isEnded = true;
    }
    composedPath() {
      return this.#current === null ? [] : [this.#current];
    }
  }
  for (const [name, value] of Object.entries(PHASES)) {
    for (const place of [Event, Event.prototype]) Object.defineProperty(place, name, { value, enumerable: true });
  }
  define("Event", Event);

  const read = (options) => {
    if (typeof options === "boolean") return { capture: options };
    return typeof options === "object" && options !== null ? options : {};
  };
  class EventTarget {
    #listeners = new Map();
    addEventListener(type, listener, options = undefined) {
      need(arguments.length, 2, "the type and the listener");
      if (listener === null || listener === undefined) return;
      if (typeof listener !== "function" && typeof listener !== "object") throw new TypeError("the listener must be a function or an object");
      const { capture = false, once = false, passive = false, signal } = read(options);
      if (signal !== undefined && !(signal instanceof AbortSignal)) throw new TypeError("the signal must be an AbortSignal");
      if (signal?.aborted) return;
      const list = this.#listeners.get(String(type)) ?? [];
      if (list.some((entry) => entry.listener === listener && entry.capture === Boolean(capture))) return;
      const remove = () => this.removeEventListener(type, listener, { capture });
      const entry = { listener, capture: Boolean(capture), once: Boolean(once), passive: Boolean(passive), remove, isRemoved: false };
      this.#listeners.set(String(type), [...list, entry]);
      signal?.addEventListener("abort", remove, { once: true });
    }
    removeEventListener(type, listener, options = undefined) {
      need(arguments.length, 2, "the type and the listener");
      const capture = Boolean(read(options).capture);
      const isMeant = (entry) => entry.listener === listener && entry.capture === capture;
      const list = this.#listeners.get(String(type)) ?? [];
      for (const entry of list) if (isMeant(entry)) entry.isRemoved = true;
      this.#listeners.set(String(type), list.filter((entry) => !isMeant(entry)));
    }
    dispatchEvent(event) {
      need(arguments.length, 1, "the event");
      if (!(event instanceof Event)) throw new TypeError("the event must be an Event");
      const list = this.#listeners.get(event.type) ?? [];
      return run(event, this, [...list.filter(({ capture }) => capture), ...list.filter(({ capture }) => !capture)]);
    }
  }
  define("EventTarget", EventTarget);

  const LARGEST_DELAY = 2 ** 32 - 1;
  const KEY = Symbol("construct");
  let abort;
  class AbortSignal extends EventTarget {
    #aborted = false;
    #reason;
    #onabort = null;
    #isListening = false;
    // The signals that abort with this one.
    #dependents = [];
    constructor(key) {
      if (key !== KEY) throw new TypeError("Illegal constructor");
      super();
    }
    static {
      abort = (signal, reason = failure("This operation was aborted", "AbortError")) => {
        if (signal.#aborted) return;
        const all = new Set([signal]);
        for (const one of all) for (const other of one.#dependents) if (!other.#aborted) all.add(other);
        for (const one of all) [one.#aborted, one.#reason] = [true, reason];
        for (const one of all) one.dispatchEvent(new Event("abort"));
      };
    }
    get aborted() {
      return this.#aborted;
    }
    get reason() {
      return this.#reason;
    }
    get onabort() {
      return this.#onabort;
    }
    // Called at the place among the listeners at which it was set first.
    set onabort(listener) {
      this.#onabort = typeof listener === "function" ? listener : null;
      if (this.#isListening) return;
      this.#isListening = true;
      this.addEventListener("abort", (event) => this.#onabort?.call(this, event));
    }
    throwIfAborted() {
      if (this.#aborted) throw this.#reason;
    }
    static abort(reason = undefined) {
      const signal = new AbortSignal(KEY);
      abort(signal, reason);
      return signal;
    }
    static timeout(delay) {
      if (typeof delay !== "number") throw new TypeError("the delay must be a number");
      if (!(delay >= 0 && delay <= LARGEST_DELAY)) throw new RangeError(`the delay must be from 0 to ${LARGEST_DELAY}`);
      const signal = new AbortSignal(KEY);
      setTimeout(() => abort(signal, failure("The operation was aborted due to timeout", "TimeoutError")), delay);
      return signal;
    }
    static any(signals) {
      const sources = [...signals];
      if (!sources.every((source) => source instanceof AbortSignal)) throw new TypeError("the signals must be AbortSignals");
      const signal = new AbortSignal(KEY);
      const first = sources.find((source) => source.aborted);
      if (first !== undefined) abort(signal, first.reason);
      else for (const source of sources) source.#dependents.push(signal);
      return signal;
    }
  }
  define("AbortSignal", AbortSignal);
  define("AbortController", class AbortController {
    #signal = new AbortSignal(KEY);
    get signal() {
      return this.#signal;
    }
    abort(reason = undefined) {
      abort(this.#signal, reason);
    }
  });
}
