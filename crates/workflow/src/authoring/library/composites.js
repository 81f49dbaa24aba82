// What components that consist of other elements have in common.
import { Element, Parallel, Sequence, Task } from "stockade:elements";
import { runOfContext } from "stockade:context";
import { checkKeys } from "stockade:keys";
import { here } from "stockade:position";
import { text } from "stockade:prompts";
import { SmithersError, useCtx } from "stockade:smithers";

export const invalid = (message) => new SmithersError("INVALID_INPUT", message);

export const make = (type, props, key) => new Element(type, props, undefined, key);
export const list = (value) => (value === undefined || value === null ? [] : [value].flat());
export const lastOf = (target, id) => runOfContext(useCtx()).lastOf(target, id);
export const shown = (value) => JSON.stringify(value, null, 2) ?? "nothing yet";

// An object of a list or a map in an attribute; it has no keys but these.
export const entry = (what, value, keys) => {
  if (typeof value !== "object" || value === null) throw invalid(`${what} must be an object, not ${JSON.stringify(value) ?? "undefined"}`);
  checkKeys(what, value, keys);
  return value;
};

// A component that refuses attributes that it does not have, and is nothing if it is skipped.
export const composite = (name, attributes, required, render) => {
  const component = (props) => {
    checkKeys(`<${name}>`, props, ["skipIf", "id", "key", ...attributes]);
    if (props.skipIf === true) return null;
    const missing = required.find((attribute) => props[attribute] === undefined);
    if (missing !== undefined) throw invalid(`<${name}> needs \`${missing}\``);
    return render(props, props.id ?? here.name(name.replace(/^./, (first) => first.toLowerCase())));
  };
  return Object.assign(component, { displayName: name });
};

export const sequence = (id, children) => make(Sequence, { id, children });
export const parallel = (children, maxConcurrency) => make(Parallel, maxConcurrency === undefined ? { children } : { children, maxConcurrency });

// A task whose prompt has the outputs of other tasks after its own text.
export const agentTask = (props, prompt, needs) => {
  const names = Object.keys(needs);
  if (names.length === 0) return make(Task, { ...props, children: prompt });
  const children = (found) => [text(prompt), ...names.map((name) => `${name}:\n${shown(found?.[name])}`)].join("\n\n");
  return make(Task, { ...props, needs, children });
};

// The work of something that is an agent or a function.
export const worked = (props, worker, prompt, value) => {
  if (typeof worker === "function") return make(Task, { ...props, children: () => worker(value?.()) });
  return agentTask({ ...props, agent: worker }, prompt, {});
};
