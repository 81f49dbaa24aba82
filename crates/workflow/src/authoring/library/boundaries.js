// Components that say what is done after a failure in them, and in any case.
import { Boundary, Element, Fragment, Sequence } from "stockade:elements";
import { entry, invalid, list, make, sequence } from "stockade:composites";
import { runOfContext } from "stockade:context";
import { checkKeys } from "stockade:keys";
import { here } from "stockade:position";
import { SmithersError, useCtx } from "stockade:smithers";

const failure = ({ code, message, frames }) => new SmithersError(code, message, { frames });

const named = (id, kind) => id ?? here.name(kind);

export const TryCatchFinally = (props) => {
  checkKeys("<TryCatchFinally>", props, ["id", "key", "try", "catch", "catchErrors", "finally", "skipIf"]);
  if (props.skipIf === true) return null;
  if (props.try === undefined) throw invalid("<TryCatchFinally> needs `try`, an element");
  const id = named(props.id, "try");
  const error = runOfContext(useCtx()).failureIn(`${id}:try`);
  const { catch: handler, catchErrors } = props;
  const isMeant = catchErrors === undefined || (error !== undefined && catchErrors.includes(error.code));
  const caught = handler !== undefined && isMeant;
  const reaction = typeof handler === "function" ? (error === undefined ? null : handler(failure(error))) : handler;
  const children = [sequence(`${id}:try`, props.try), sequence(`${id}:catch`, caught ? reaction : null), sequence(`${id}:finally`, props.finally)];
  return make(Boundary, { caught, children });
};

export const SagaStep = () => {
  throw invalid("<Saga.Step> can only be directly in a <Saga>");
};

const stepsOf = (children) =>
  list(children).flatMap((child) => {
    if (child === null || typeof child === "boolean") return [];
    if (child instanceof Element && child.type === Fragment) return stepsOf(child.props.children);
    if (!(child instanceof Element) || child.type !== SagaStep) throw invalid("<Saga> contains <Saga.Step> elements, or has `steps`");
    return [{ ...child.props, action: child.props.children }];
  });

export const Saga = (props) => {
  checkKeys("<Saga>", props, ["id", "key", "steps", "onFailure", "skipIf", "children"]);
  if (props.skipIf === true) return null;
  const { onFailure = "compensate" } = props;
  if (!["compensate", "compensate-and-fail", "fail"].includes(onFailure)) throw invalid("<Saga> `onFailure` must be compensate, compensate-and-fail or fail");
  const id = named(props.id, "saga");
  const steps = props.steps ?? stepsOf(props.children);
  for (const step of steps) entry("a step of <Saga>", step, ["id", "key", "action", "compensation", "label", "children"]);
  const run = runOfContext(useCtx());
  const group = (step) => `${id}:${step.id}`;
  const isUndone = run.failureIn(`${id}:try`) !== undefined && onFailure !== "fail";
  const done = isUndone ? steps.filter((step) => run.isComplete(group(step))) : [];
  const compensations = done.reverse().map((step) => make(Fragment, { children: step.compensation }, step.id));
  const actions = steps.map((step) => make(Sequence, { id: group(step), label: step.label, children: step.action }, step.id));
  const children = [sequence(`${id}:try`, actions), sequence(`${id}:catch`, compensations), sequence(`${id}:finally`, null)];
  return make(Boundary, { caught: onFailure !== "fail", rethrows: onFailure === "compensate-and-fail", children });
};
Saga.Step = SagaStep;
