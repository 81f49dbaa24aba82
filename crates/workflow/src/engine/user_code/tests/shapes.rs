//! A rendering that is sent as an update is the same as one that is sent whole.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::super::testing::open_user_code;
use super::super::*;
use crate::authoring::Error;
use crate::graph::{Graph, Task, Work};
use crate::journal::{Journal, WorkflowRef};
use crate::schedule::Key;
use crate::sync::lock;

/// Renders the shape that it received last.
const SHAPES: &str = r#"
import { createSmithers, Approval, Branch, Loop, MergeQueue, Parallel, Sandbox, Sequence, Subflow, Timer } from "smithers-orchestrator";
const { Workflow, Task, smithers, outputs } = createSmithers({ shape: {}, a: {}, b: {} });
const GROUPS = { Loop, MergeQueue, Parallel, Sequence };
const child = smithers(() => (<Workflow name="child"><Task id="c" output={outputs.a}>{{}}</Task></Workflow>));
class Odd { own = 1; get more() { return 2; } }
const shared = { seen: 0, list: [] as number[] };
const ODD: any = {
  absent: undefined, none: null, nan: NaN, endless: Infinity, minus: -0, big: 12n, date: new Date(0),
  call: () => 1, holes: [, 1], odd: new Odd(), bare: Object.create(null), shared, text: "x", list: ["x", 1, null],
  deep: { a: { b: [{ c: undefined }] } }, json: { toJSON: () => "told" }, element: <Sequence />,
};
const Given = ({ shape }: any) => [[element(shape.inner)], null, false];
const element = (shape: any): any => {
  const { kind, inner = [], says, odd = {}, ...rest } = shape;
  if (kind === "throws") throw new Error(`thrown ${says}`);
  if (kind === "wrong") return { not: "an element" };
  const props: any = { ...rest };
  for (const [name, which] of Object.entries(odd)) props[name] = ODD[which as string];
  const held = inner.map(element);
  const Group = (GROUPS as any)[kind];
  if (Group !== undefined) return <Group {...props}>{held}</Group>;
  switch (kind) {
    case "branch": return <Branch {...props} then={<>{held}</>} else={<Task id={`else-${rest.id}`} output={outputs.a}>{{}}</Task>} />;
    case "given": return <Given shape={{ inner: { kind: "Sequence", inner } }} />;
    case "timer": return <Timer {...props} duration="1s" />;
    case "approval": return <Approval {...props} output={outputs.a} request={{ title: says }} />;
    case "subflow": return <Subflow {...props} output={outputs.b} workflow={child} input={{ says }} />;
    case "sandbox": return <Sandbox {...props} output={outputs.b} provider={{ id: says, run: async () => ({}) }} workflow={child} />;
    case "agent": return <Task {...props} output={outputs.b} agent={async ({ prompt }: any) => ({ says: prompt })}>{says}</Task>;
    case "command": return <Task {...props} output={outputs.b} agent={{ command: says }}>ask</Task>;
    case "static": return <Task {...props} output={outputs.a}>{says === "odd" ? ODD.shared : { says }}</Task>;
    case "deps": return <Task {...props} output={outputs.a} deps={{ [says]: outputs.b }}>{(deps: any) => ({ says })}</Task>;
    default: return <Task {...props} output={says === "other" ? outputs.b : outputs.a}>{() => ({ says })}</Task>;
  }
};
export default smithers((ctx: any) => {
  const { shape, name, seen } = ctx.outputs(outputs.shape).at(-1);
  shared.seen = seen;
  shared.list = Array.from({ length: seen }, (_, n) => n);
  return <Workflow name={name}>{shape.map(element)}</Workflow>;
});
"#;

/// Pseudo-random numbers, the same in each execution.
struct Random(u64);

const WORDS: [&str; 5] = ["x", "y", "other", "odd", "z"];
const ATTRIBUTES: [&str; 9] =
    ["label", "meta", "dependsOn", "needs", "cache", "retries", "timeoutMs", "skipIf", "unknown"];
const ODD: [&str; 17] = [
    "absent", "none", "nan", "endless", "minus", "big", "date", "call", "holes", "odd", "bare",
    "shared", "text", "list", "deep", "json", "element",
];

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn leaf(&mut self, id: usize) -> Value {
        let kinds = [
            "task", "task", "task", "static", "static", "timer", "approval", "subflow", "sandbox",
            "agent", "command", "deps",
        ];
        let mut shape = json!({
            "kind": self.of(&kinds), "id": format!("t{id}"), "says": self.of(&WORDS),
        });
        match self.below(12) {
            0 => shape["dependsOn"] = json!([format!("t{}", self.below(20))]),
            1 => shape["meta"] = json!({ "a": [1, { "b": self.below(2) }] }),
            2 => shape["skipIf"] = json!(self.below(2) == 0),
            3 => shape["label"] = json!(self.of(&WORDS)),
            4 => shape["cache"] = json!({ "by": self.below(2) }),
            5 => shape["odd"] = json!({ "meta": "shared" }),
            // Most of these are rejected.
            6 if self.below(5) == 0 => {
                shape["odd"] = json!({ self.of(&ATTRIBUTES): self.of(&ODD) });
            }
            _ => {}
        }
        shape
    }

    fn shapes(&mut self, depth: usize, next: &mut usize) -> Vec<Value> {
        let mut shapes = Vec::new();
        for _ in 0..self.below(4) {
            *next += 1 - usize::from(self.below(60) == 0);
            if depth > 2 || self.below(3) > 0 {
                shapes.push(self.leaf(*next));
                continue;
            }
            let kinds = ["Sequence", "Parallel", "MergeQueue", "Loop", "branch", "given"];
            let mut shape = json!({ "kind": self.of(&kinds), "id": format!("g{next}") });
            shape["inner"] = self.shapes(depth + 1, next).into();
            if shape["kind"] == "branch" {
                shape["if"] = json!(self.below(2) == 0);
            }
            if self.below(6) == 0 {
                shape["skipIf"] = json!(true);
            }
            shapes.push(shape);
        }
        shapes
    }

    /// Changes something in the shapes.
    fn change(&mut self, shapes: &mut Vec<Value>) {
        for shape in shapes.iter_mut() {
            if let Some(Value::Array(inner)) = shape.get_mut("inner") {
                self.change(inner);
            } else if self.below(5) == 0 {
                let id = shape["id"].as_str().unwrap()[1..].parse().unwrap();
                *shape = self.leaf(id);
            }
        }
        match self.below(20) {
            0 => shapes.reverse(),
            1 => drop(shapes.pop()),
            2 => shapes.push(json!({ "kind": "throws", "says": "x" })),
            3 => shapes.push(json!({ "kind": "wrong" })),
            _ => {}
        }
    }
}

fn graph_result(rendered: &Result<Rendering, Error>) -> Result<Graph, String> {
    rendered.as_ref().map(|view| Graph::clone(&view.graph)).map_err(ToString::to_string)
}

#[tokio::test]
async fn differences_make_what_a_whole_rendering_makes() {
    let (user_code, journal) = open_user_code(SHAPES).await;
    let mut random = Random(3);
    let (mut good, mut wrong, mut same) = (0, 0, 0);
    let mut shapes = Vec::new();
    let mut last: Option<Arc<Graph>> = None;
    for step in 0..400 {
        match random.below(12) {
            0 => shapes = random.shapes(0, &mut 0),
            1 => {}
            _ => random.change(&mut shapes),
        }
        // A failed rendering is not recorded, just as a run records none.
        let name = if random.below(40) == 0 { "other" } else { "w" };
        let value = json!({ "shape": shapes, "name": name, "seen": random.below(3) });
        let row = json!({ "table": "shape", "node": "s", "iteration": step, "value": value });
        lock(&journal).rows.push(row.clone());
        let rendered = user_code.render("run").await;
        // The realm knows nothing of this run.
        let anew = format!("run {step}");
        let other = Journal { rows: vec![row], ..Journal::new(&anew, json!({})) };
        user_code.open(&Arc::new(Mutex::new(other))).await.unwrap();
        let whole = user_code.render(&anew).await;
        assert_eq!(graph_result(&rendered), graph_result(&whole), "step {step}: {value}");
        let Ok(view) = rendered else {
            wrong += 1;
            shapes = random.shapes(0, &mut 0);
            continue;
        };
        good += 1;
        same += u32::from(last.as_ref().is_some_and(|last| Arc::ptr_eq(last, &view.graph)));
        for task in view.graph.tasks() {
            calls_the_same(&user_code, &anew, task).await;
        }
        last = Some(view.graph);
    }
    assert!(good > 100 && wrong > 50 && same > 3, "{good} good, {wrong} wrong, {same} the same");
}

/// The functions of a task are those of its last rendering.
async fn calls_the_same(user_code: &UserCode, anew: &str, task: &Task) {
    let key = Key { node: task.id.clone(), iteration: 0 };
    let task = Arc::new(task.clone());
    let heartbeats = Arc::default();
    let outputs_of = async |run| {
        let call = TaskCall { run, key: &key, task: &task, demand: "", models: None };
        user_code.work(call, &task.work, &heartbeats).await.map_err(|error| error.to_string())
    };
    if let Work::Compute { .. } | Work::Agent { .. } = &task.work {
        assert_eq!(outputs_of("run").await, outputs_of(anew).await);
    }
    if let Work::Subflow { workflow, .. } = &task.work {
        for run in ["run", anew] {
            let parent_run = Some((run.to_owned(), WorkflowRef::Rendered(*workflow)));
            let journal = Journal { parent: parent_run, ..Journal::new("child", json!({})) };
            user_code.open(&Arc::new(Mutex::new(journal))).await.unwrap();
        }
    }
    if let Work::Sandbox(_) = &task.work {
        let named = user_code.provider("run", &task.id, None).await.unwrap();
        assert_eq!(named.id, user_code.provider(anew, &task.id, None).await.unwrap().id);
    }
}
