// A circuit breaker: after several failures calls are refused for a while, and then a few are tried.
import { only } from "./refusal.js";

const DEFAULTS = { failureThreshold: 5, recoveryTimeMs: 30_000, halfOpenMaxRequests: 3, failureWindowMs: 60_000 };
const OPTIONS = [...Object.keys(DEFAULTS), "name", "isFailure", "onStateChange", "metricPrefix"];
const [CLOSED, OPEN, HALF_OPEN] = ["CLOSED", "OPEN", "HALF_OPEN"];

export class CircuitBreakerOpenError extends Error {
  code = "CIRCUIT_OPEN";

  constructor(name, retryAfterMs, state = OPEN, detail = `Request rejected: try again in ${Math.ceil(retryAfterMs / 1000)}s`) {
    super(`[Directive CircuitBreaker] Circuit "${name}" is ${state}. ${detail}`);
    this.name = "CircuitBreakerOpenError";
    this.retryAfterMs = retryAfterMs;
    this.state = state;
  }
}

export const createCircuitBreaker = (config = {}) => {
  only("createCircuitBreaker()", config, OPTIONS);
  const limits = { ...DEFAULTS, ...config };
  const { failureThreshold, recoveryTimeMs, halfOpenMaxRequests, failureWindowMs, name = "default", isFailure = () => true, onStateChange } = limits;
  for (const [option, least] of [["failureThreshold", 1], ["recoveryTimeMs", 0], ["halfOpenMaxRequests", 1], ["failureWindowMs", 0]]) {
    const value = limits[option];
    if (!Number.isFinite(value) || value < least || value === 0) throw new Error(`[Directive CircuitBreaker] ${option} must be ${least === 0 ? "> 0" : ">= 1"}, got ${value}`);
  }
  const fresh = () => ({
    totalRequests: 0, totalFailures: 0, totalSuccesses: 0, totalRejected: 0, lastFailureTime: null, lastSuccessTime: null,
  });
  let state = CLOSED;
  let stats = fresh();
  let failures = [];
  let trials = { started: 0, succeeded: 0 };
  let changedAt = Date.now();
  let openedAt = 0;

  const change = (next) => {
    if (next === state) return;
    const before = state;
    state = next;
    changedAt = Date.now();
    if (next === OPEN) openedAt = changedAt;
    if (next === HALF_OPEN) trials = { started: 0, succeeded: 0 };
    onStateChange?.(before, next);
  };
  const isRested = () => Date.now() - openedAt >= recoveryTimeMs;
  const recent = () => {
    failures = failures.filter((time) => time > Date.now() - failureWindowMs);
    return failures.length;
  };
  const succeed = () => {
    stats.totalSuccesses += 1;
    stats.lastSuccessTime = Date.now();
    if (state !== HALF_OPEN) return;
    trials.succeeded += 1;
    if (trials.succeeded < halfOpenMaxRequests) return;
    change(CLOSED);
    failures = [];
  };
  const fail = (error) => {
    if (!isFailure(error)) return succeed();
    stats.totalFailures += 1;
    stats.lastFailureTime = Date.now();
    failures = [...failures, Date.now()].slice(-failureThreshold * 2);
    if (state === HALF_OPEN || (state === CLOSED && recent() >= failureThreshold)) change(OPEN);
  };
  const reject = (...reason) => {
    stats.totalRejected += 1;
    throw new CircuitBreakerOpenError(name, ...reason);
  };

  const breaker = {
    execute: async (action) => {
      stats.totalRequests += 1;
      if (state === OPEN && !isRested()) reject(recoveryTimeMs - (Date.now() - openedAt));
      if (state === OPEN) change(HALF_OPEN);
      if (state === HALF_OPEN) {
        if (trials.started >= halfOpenMaxRequests) reject(recoveryTimeMs, HALF_OPEN, `${halfOpenMaxRequests} requests are tried already`);
        trials.started += 1;
      }
      try {
        const result = await action();
        succeed();
        return result;
      } catch (error) {
        fail(error instanceof Error ? error : new Error(String(error)));
        throw error;
      }
    },
    getState: () => {
      if (state === OPEN && isRested()) change(HALF_OPEN);
      return state;
    },
    getStats: () => ({ state: breaker.getState(), ...stats, recentFailures: recent(), lastStateChange: changedAt }),
    forceState: change,
    reset: () => {
      const before = state;
      [state, stats, failures, trials] = [CLOSED, fresh(), [], { started: 0, succeeded: 0 }];
      [changedAt, openedAt] = [Date.now(), 0];
      if (before !== CLOSED) onStateChange?.(before, CLOSED);
    },
    isAllowed: () => state === CLOSED || (state === OPEN ? isRested() : trials.started < halfOpenMaxRequests),
  };
  return breaker;
};
