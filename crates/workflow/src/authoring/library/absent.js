// Elements of upstream that are not here, or change nothing here.
import { invalid } from "stockade:composites";

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

// What was told of already.
const noted = new Set();

// The older form of `memory` of a task, which does nothing in Smithers either. Other forms have an effect there.
const INERT = ["namespace", "recall", "remember", "threadId"];
export const isInert = (memory) => {
  const keys = Object.keys(memory ?? {});
  const isOld = keys.length > 0 && keys.every((key) => INERT.includes(key)) && (memory.recall === undefined || typeof memory.recall === "object");
  if (isOld && !noted.has("memory")) console.warn("`memory` with `recall`, `remember`, `namespace` or `threadId` does nothing, as in Smithers");
  if (isOld) noted.add("memory");
  return isOld;
};

// Interfaces for people change nothing of a run, so a file that has one runs, and a message names it.
const undisplayed = (name) => () => {
  if (!noted.has(name)) console.warn(`<${name}> is not displayed: \`stockade up\` and \`stockade inspect\` show the run`);
  noted.add(name);
  return null;
};
export const UI = undisplayed("UI");
export const TUI = undisplayed("TUI");
