//! The workflows that run while processes are killed at every write.

/// The kind of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Runs that need only their realm.
    Plain,
    /// Runs with an agent that is a command, and with a `<Sandbox>`.
    Sandbox,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Plain, Self::Sandbox];

    /// The argument for it.
    pub(crate) const fn argument(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Sandbox => "held",
        }
    }

    /// The workflow that is finished, and the one that is cancelled.
    pub(crate) const fn flows(self) -> (&'static str, &'static str) {
        match self {
            Self::Plain => (PLAIN, PLAIN_WAITS),
            Self::Sandbox => (SANDBOX, SANDBOX_WAITS),
        }
    }
}

/// The workflow that is finished: tasks of each kind, which wait, are constant, compute, are
/// cached, and run in child runs.
const PLAIN: &str = r#"
import { createSmithers } from "stockade";
const { Workflow, Task, Parallel, Loop, Timer, Approval, WaitForEvent, Subflow, smithers, outputs } =
  createSmithers({ part: {}, other: {}, output: {} });
const child = smithers((ctx) => (
  <Workflow name="below">
    <Task id="below-1" output="part">{() => ({ n: 1 })}</Task>
    <Approval id="below-ok" output="other" />
    <Task id="below-2" output="output">{() => ({ n: ctx.outputs("part").length })}</Task>
  </Workflow>
));
export default smithers((ctx) => (
  <Workflow name="every">
    <Task id="known" output={outputs.part}>{{ n: 0 }}</Task>
    <Task id="made" output={outputs.part}>{() => ({ n: 1 })}</Task>
    <Task id="kept" output={outputs.part} cache={{ by: 1 }}>{() => ({ n: 2 })}</Task>
    <Parallel>
      {[3, 4, 5].map((n) => (
        <Task id={`par-${n}`} output={outputs.part}>{() => ({ n })}</Task>
      ))}
    </Parallel>
    <Approval id="ok" output={outputs.other} />
    <Loop id="again" until={ctx.iterationCount(outputs.other, "round") >= 2} maxIterations={9}>
      <Task id="round" output={outputs.other}>{() => ({ n: ctx.iteration })}</Task>
    </Loop>
    <WaitForEvent id="word" event="word" output={outputs.other} />
    <Timer id="rest" duration="5ms" />
    <Subflow id="sub" workflow={child} input={{}} output={outputs.other} />
    <Task id="end" output={outputs.output}>
      {() => ({ parts: ctx.outputs(outputs.part).length, others: ctx.outputs(outputs.other).length })}
    </Task>
  </Workflow>
));
"#;

/// The workflow that is cancelled.
const PLAIN_WAITS: &str = r#"
import { createSmithers } from "stockade";
const { Workflow, Approval, smithers } = createSmithers({ output: {} });
export default smithers(() => <Workflow name="waits"><Approval id="ok" output="output" /></Workflow>);
"#;

/// The workflow in sandboxes. The executions of the command of `edit` are counted outside; its
/// changes wait for a decision, the changes of the agent are left as a bundle.
const SANDBOX: &str = r#"
import { createSmithers, Sandbox } from "stockade";
const { Workflow, Task, smithers, outputs } = createSmithers({ part: {}, output: {} });
const edit = `echo x >> /count/edit; echo changed >> notes.md; echo '{"n": 2}'`;
export default smithers((ctx) => (
  <Workflow name="held">
    <Task id="asked" output={outputs.part} agent={{ command: "tee agent.txt" }}>{`{"n": 1}`}</Task>
    <Sandbox id="edit" output={outputs.part} command={edit}
      volumes={[{ host: ctx.input.count, container: "/count", readonly: false }]} />
    <Task id="end" output={outputs.output}>{() => ({ parts: ctx.outputs(outputs.part).length })}</Task>
  </Workflow>
));
"#;

/// The workflow that is cancelled while it runs in sandboxes.
const SANDBOX_WAITS: &str = r#"
import { createSmithers, Sandbox } from "stockade";
const { Workflow, Task, Parallel, smithers, outputs } = createSmithers({ output: {} });
export default smithers(() => (
  <Workflow name="waits"><Parallel>
    <Task id="asked" output={outputs.output} agent={{ command: "sleep 600" }}>Wait</Task>
    <Sandbox id="edit" output={outputs.output} command="echo no > never; sleep 600" />
  </Parallel></Workflow>
));
"#;
