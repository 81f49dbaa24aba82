//! Functions that a rendering refers to stay the same in later renderings.

mod shapes;

use std::sync::Arc;

use serde_json::json;

use super::testing::open_user_code;
use super::*;
use crate::schedule::Key;
use crate::sync::lock;

const SHIFTING: &str = "import { createSmithers } from \"smithers-orchestrator\";\n\
    const { Workflow, Task, smithers, outputs } = createSmithers({ a: {} });\n\
    const told = (ctx, node) => ctx.outputMaybe(outputs.a, { nodeId: node }) !== undefined;\n\
    const task = (id) => <Task id={id} output={outputs.a}>{() => ({ from: id })}</Task>;\n\
    export default smithers((ctx) => (<Workflow name=\"w\">\n\
      {told(ctx, \"one\") ? task(\"before\") : null}\n\
      {told(ctx, \"two\") ? null : task(\"late\")}\n\
    </Workflow>));\n";

/// A function of one rendering stays the same in the next: that of a task that is about to start, and
/// that of a running one, when other tasks are added and removed around them.
#[tokio::test]
async fn a_function_is_the_same_after_another_rendering() {
    let (user_code, journal) = open_user_code(SHIFTING).await;
    let first = user_code.render("run").await.unwrap().graph;
    let late = Arc::new(first.tasks()[0].clone());
    let key = Key { node: "late".to_owned(), iteration: 0 };
    for (node, expected) in [("one", &["before", "late"][..]), ("two", &["before"])] {
        let row = json!({ "table": "a", "node": node, "iteration": 0, "value": {} });
        lock(&journal).rows.push(row);
        let next = user_code.render("run").await.unwrap().graph;
        let ids: Vec<_> = next.tasks().iter().map(|task| task.id.clone()).collect();
        assert_eq!(ids, expected);
        let call = TaskCall { run: "run", key: &key, task: &late, demand: "", models: None };
        let output = user_code.work(call, &late.work, &Arc::default()).await.unwrap();
        assert_eq!(output, json!({ "from": "late" }), "after {node}");
    }
}
