// The functions with which the program of a `<Sandbox>` finds its workflow: a workflow of
// the program that contains the `<Sandbox>`, which is created again at the same position.
import { Run } from "stockade:context";
import { placedAt } from "stockade:places";
import { renderingOf, workflowOf } from "stockade:render";
import { given } from "stockade:schemas";
import { SmithersError } from "stockade:smithers";

// A workflow that a module created while it was evaluated.
export const made = (module, number) => {
  const found = placedAt(module, number);
  if (found !== undefined) return found;
  throw new SmithersError("INVALID_INPUT", `${module} did not create this workflow again: it creates different workflows each time it is loaded`);
};

// A workflow that was created while another one was rendered, which is rendered again with its former state.
export const rendered = (workflow, node, { runId, input, rows, iterations, tables }) => {
  const run = new Run(runId, workflow, given(workflow, input), tables);
  run.take({ rows, iterations });
  renderingOf(run).rendering.keep(run);
  const found = workflowOf(run, node);
  if (found !== undefined) return found;
  throw new SmithersError("INVALID_INPUT", `"${node}" was not rendered again: the workflow renders different elements each time`);
};
