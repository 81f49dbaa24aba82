// The budgets of <Aspects>: limits of the tokens and of the time of a run, for the tasks in a scope.
import { checkKeys } from "stockade:keys";
import { SmithersError } from "stockade:smithers";

const invalid = (message) => new SmithersError("INVALID_INPUT", message);

const number = (what, value, isRequired) => {
  if (value === undefined && !isRequired) return undefined;
  if (!Number.isSafeInteger(value) || value < 0) throw invalid(`\`${what}\` of <Aspects> must be a whole number from 0, not ${JSON.stringify(value) ?? "undefined"}`);
  return value;
};

const exceeded = (name, { onExceeded = "fail" }, choices) => {
  if (!choices.includes(onExceeded)) throw invalid(`\`${name}.onExceeded\` of <Aspects> must be one of ${choices.join(", ")}, not ${JSON.stringify(onExceeded)}`);
  return onExceeded;
};

const object = (name, value, keys) => {
  if (typeof value !== "object" || value === null) throw invalid(`\`${name}\` of <Aspects> must be an object`);
  checkKeys(`\`${name}\` of <Aspects>`, value, keys);
};

const tokens = (given) => {
  object("tokenBudget", given, ["max", "perTask", "onExceeded"]);
  const onExceeded = exceeded("tokenBudget", given, ["fail", "warn", "skip-remaining"]);
  const perTask = number("tokenBudget.perTask", given.perTask, false);
  if (perTask !== undefined && onExceeded === "skip-remaining") throw invalid("`tokenBudget.perTask` of <Aspects> needs `onExceeded` to be \"fail\" or \"warn\": a task that has ended cannot be skipped");
  return { max: number("tokenBudget.max", given.max, true), perTask, onExceeded };
};

const time = (given) => {
  object("latencySlo", given, ["maxMs", "perTask", "onExceeded"]);
  if (given.perTask !== undefined) throw invalid("`latencySlo.perTask` of <Aspects> is not supported: use `timeoutMs` of the tasks");
  return { max: number("latencySlo.maxMs", given.maxMs, true), onExceeded: exceeded("latencySlo", given, ["fail", "warn"]) };
};

// The budgets in a scope: each that it names replaces that of the scope around it. What is measured is
// measured of every task, so `tracking` changes nothing.
export const budgets = (outer, props) => {
  checkKeys("<Aspects>", props, ["key", "tokenBudget", "latencySlo", "tracking", "children"]);
  const { tokenBudget, latencySlo, tracking } = props;
  if (tracking !== undefined) object("tracking", tracking, ["tokens", "latency"]);
  const own = { ...outer };
  if (tokenBudget !== undefined) own.tokens = tokens(tokenBudget);
  if (latencySlo !== undefined) own.time = time(latencySlo);
  return Object.keys(own).length === 0 ? undefined : own;
};
