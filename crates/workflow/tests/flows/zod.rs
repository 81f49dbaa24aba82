//! Files that import zod from `node_modules`, which `cargo xtask ci` installs.

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};
use stockade_api::{ListRuns, Workflows as _};

use crate::agents::{self, FakeSandboxes};
use crate::world::World;

/// A world whose project has zod; `None` if zod is not installed, which is printed as the reason for
/// the skip.
pub(crate) async fn world(test: &str) -> Option<World> {
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages/npm/node_modules");
    if !packages.join("zod/package.json").exists() {
        let reason = "zod is not installed: cargo xtask ci installs it";
        stockade_test_support::skip(&format!("flows::{test}"), reason);
        return None;
    }
    let world = agents::world(&FakeSandboxes::new(|_, _| (0, String::new()))).await;
    symlink(packages, world.path().join("node_modules")).unwrap();
    Some(world)
}

#[tokio::test]
async fn schemas_of_zod_check_and_complete_what_tasks_give() {
    let Some(world) = world("zod::schemas_of_zod_check_and_complete_what_tasks_give").await else {
        return;
    };
    let source = "import { createSmithers } from \"smithers-orchestrator\";\n\
        import { z } from \"zod\";\n\
        const { Workflow, Task, smithers, outputs } = createSmithers({\n\
          input: z.object({ name: z.string().min(2), times: z.number().default(2) }),\n\
          output: z.object({ text: z.string(), tags: z.array(z.string()).default([\"new\"]) }),\n\
        });\n\
        export default smithers((ctx) => (<Workflow name=\"w\">\n\
          <Task id=\"t\" output={outputs.output}>{() => ({ text: ctx.input.name.repeat(ctx.input.times) as any })}</Task>\n\
        </Workflow>));\n";
    let run = world.run(source, json!({ "name": "ab" })).await;
    assert_eq!(run.output, Some(json!({ "text": "abab", "tags": ["new"] })), "{run:?}");
    let file = world.write("flow.tsx", source);
    let refused = world.up(&file, json!({ "name": "a" })).await.unwrap_err();
    assert!(refused.message.contains("the input does not match"), "{refused:?}");
    assert!(refused.cause.unwrap().starts_with("/name: "));
    let wrong = source.replace("text: ctx.input.name", "text: 7, more: ctx.input.name");
    let run = world.run(&wrong, json!({ "name": "ab" })).await;
    let error = run.error.unwrap();
    assert_eq!(error["code"], "INVALID_OUTPUT", "{error}");
    assert!(error["message"].as_str().unwrap().contains("/text: "), "{error}");
}

/// Smithers, "Complete one-file provider and child workflow", byte for byte.
pub(crate) const COMPLETE: &str = include_str!("../../../../tests/cases/smithers/001-complete.tsx");

#[tokio::test]
async fn the_seeds_complete_file_runs_as_it_stands() {
    let Some(world) = world("zod::the_seeds_complete_file_runs_as_it_stands").await else { return };
    let run = world.run(COMPLETE, json!({ "prompt": "hi" })).await;
    assert_eq!(run.output, Some(json!({ "summary": "Processed: hi" })), "{run:?}");
    let told: Vec<String> = world
        .events(&run)
        .await
        .iter()
        .filter(|event| event["nodeId"] == "remote-summary")
        .map(|event| {
            let words = [&event["data"]["stage"], &event["data"]["phase"], &event["type"]];
            words.into_iter().find_map(Value::as_str).unwrap_or_default().to_owned()
        })
        .collect();
    let expected = [
        "NodeStarted",
        "initializing",
        "SandboxCreated",
        "created",
        "SandboxShipped",
        "shipped",
        "executing",
        "starting-child",
        "bundle-collected",
        "SandboxBundleReceived",
        "SandboxCompleted",
        "completed",
        "NodeFinished",
    ];
    assert_eq!(told, expected);
    let runs = world.workflows.runs(&world.caller, ListRuns { limit: 9 }).await.unwrap();
    let child = runs.iter().find(|child| child.parent_id.as_ref() == Some(&run.id)).unwrap();
    assert_eq!(child.id, format!("{}:child:remote-summary:0", run.id));
    assert_eq!(child.output, run.output);
    // Its child workflow is an ordinary workflow, and does not need `{ output }`.
    let child =
        COMPLETE.replace("export default parent.smithers", "export const other = parent.smithers");
    let run =
        world.run(&(child + "\nexport default childWorkflow;"), json!({ "prompt": "hi" })).await;
    assert_eq!(run.output, Some(json!({ "summary": "Processed: hi" })), "{run:?}");
}
