// Elements of upstream that are not here, or change nothing here.
import { invalid, make } from "stockade:composites";
import { Fragment } from "stockade:elements";
import { checkKeys } from "stockade:keys";

// Elements of upstream that need a part of it that is not here. A file that uses one is refused.
const missing = (name, why) =>
  Object.assign(
    () => {
      throw invalid(`<${name}> is not supported: ${why}`);
    },
    { displayName: name },
  );

export const Memory = missing("Memory", "there is no memory that outlives a run; use outputs, or files of the project");
export const Monitor = missing("Monitor", "`stockade up`, `stockade inspect` and `stockade metrics` show a run");
export const Trellis = missing("Trellis", "an engine on Node.js, which is planned, is needed; <Supervisor> has a plan with tasks for several agents");
export const DelegationChain = missing("DelegationChain", "an engine on Node.js, which is planned, is needed; <Supervisor> has a plan, a review and a summary");
export const IsolatedClone = missing("IsolatedClone", "use <Sandbox>, whose changes wait for a decision");

// Interfaces for people change nothing of a run, so a file that has one runs, and a message names it.
const noted = new Set();
const undisplayed = (name) => () => {
  if (!noted.has(name)) console.warn(`<${name}> is not displayed: \`stockade up\` and \`stockade inspect\` show the run`);
  noted.add(name);
  return null;
};
export const UI = undisplayed("UI");
export const TUI = undisplayed("TUI");

// What is measured of a scope is measured of every task, so a scope without a limit is its content.
export const Aspects = (props) => {
  checkKeys("<Aspects>", props, ["key", "tokenBudget", "latencySlo", "tracking", "children"]);
  if (props.tokenBudget !== undefined) throw invalid("`tokenBudget` of <Aspects> is not supported: the number of tokens that an agent uses is not known; use timeoutMs and retries");
  if (props.latencySlo !== undefined) throw invalid("`latencySlo` of <Aspects> is not supported: use timeoutMs of its tasks");
  return make(Fragment, { children: props.children });
};
