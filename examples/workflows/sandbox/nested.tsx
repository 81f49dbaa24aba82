/** @jsxImportSource smithers-orchestrator */
// Sandboxes in a sandbox: off unless both say `allowNested`. The host makes the inner ones, each on what
// the workspace of the outer holds when it is asked for, and none gets more than the outer has. Their
// changes are made in the outer workspace, where the next one sees them; what comes out of it in the
// end waits for one decision: `stockade approve RUN outer`.
import { createSmithers, Sandbox, Sequence } from "smithers-orchestrator";

const child = createSmithers({
  written: { type: "object", required: ["lines"] },
  result: { type: "object", required: ["words"] },
});

const drafts = child.smithers((ctx) => (
  <child.Workflow name="drafts">
    <Sequence>
      <Sandbox
        id="write"
        allowNested
        autoAcceptDiffs
        command={`echo "a first draft" > draft.md; echo '{"lines": 1}'`}
        output={child.outputs.written}
      />
      <Sandbox
        id="count"
        allowNested
        autoAcceptDiffs
        command={`echo "and more" >> draft.md; printf '{"words": %d}' "$(wc -w < draft.md)"`}
        output={child.outputs.result}
      />
    </Sequence>
  </child.Workflow>
));

const parent = createSmithers({ output: { type: "object", required: ["words"] } });

export default parent.smithers((ctx) => (
  <parent.Workflow name="nested">
    <Sandbox id="outer" allowNested workflow={drafts} output={parent.outputs.output} />
  </parent.Workflow>
));
