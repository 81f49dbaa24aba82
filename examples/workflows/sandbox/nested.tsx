/** @jsxImportSource smithers-orchestrator */
// Nested sandboxes: disabled unless both sandboxes have `allowNested`. The host creates each nested one
// on a copy of the current workspace of the outer one, and grants it no more than the outer one has.
// Its changes are applied to the outer workspace, where the next one sees them. All changes of the
// outer workspace wait for one decision: `stockade approve RUN outer`.
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
