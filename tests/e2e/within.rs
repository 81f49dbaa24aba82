//! Inside a sandbox: a workflow is done there too, by the very binary, with what walls can still be
//! raised. It says so, and nothing but the kernel makes it believe that it is inside.

use serde_json::{Value, json};

use crate::call::Outcome;
use crate::harness::World;

/// `stockade ARGUMENTS` inside `stockade run`, with the binary of this build.
fn inside(world: &World, options: &[&str], arguments: &[&str]) -> Outcome {
    let programs = format!("{}:/opt/stockade/bin:ro", world.path("bin").display());
    let options = [&["--discard", "--mount", &programs], options].concat();
    world.run(&options, &[&["/opt/stockade/bin/stockade"], arguments].concat())
}

const FLOW: &str = "/** @jsxImportSource smithers-orchestrator */\n\
    import { createSmithers } from \"smithers-orchestrator\";\n\
    const { Workflow, Task, smithers, outputs } = createSmithers({ a: {}, output: {} });\n\
    export default smithers((ctx) => <Workflow name=\"inner\">\n\
      <Task id=\"one\" output={outputs.a}>{() => { console.log(\"hello\"); return { n: ctx.input.n }; }}</Task>\n\
      <Task id=\"two\" output=\"output\">{() => ({ n: ctx.output(outputs.a).n + 1 })}</Task>\n\
    </Workflow>);\n";

fn a_workflow_is_done_inside_a_sandbox(world: &World) {
    world.write("flow.tsx", FLOW);
    let words = ["up", "flow.tsx", "--in-process", "--input", "{\"n\": 41}"];
    let done = inside(world, &[], &words);
    done.succeeds();
    assert_eq!(serde_json::from_str::<Value>(&done.stdout).unwrap(), json!({ "n": 42 }), "{done}");
    assert!(done.stderr.contains("inside another confinement"), "{done}");
    assert!(done.stderr.contains("[log] hello"), "{done}");
    // Outside, the same says nothing of the kind, whatever the environment is.
    let outside = world.stockade(&words).env("STOCKADE_SANDBOX_ID", "x").finish();
    outside.succeeds();
    assert!(!outside.stderr.contains("confinement"), "{outside}");
}

fn nothing_of_it_is_a_change_of_the_project(world: &World) {
    world.write("flow.tsx", FLOW);
    let programs = format!("{}:/opt/stockade/bin:ro", world.path("bin").display());
    let command =
        ["/opt/stockade/bin/stockade", "up", "flow.tsx", "--in-process", "--input", "{\"n\": 1}"];
    let before = world.bundles().len();
    world.run(&["--review", "--mount", &programs], &command).succeeds();
    assert_eq!(world.bundles().len(), before, "a bundle was made");
}

fn there_are_no_sandboxes_inside(world: &World) {
    let refused = inside(world, &[], &["create", "--in-process"]);
    refused.ends_with(125);
    assert!(refused.stderr.contains("no sandboxes inside a confinement"), "{refused}");
}

as_root_and_as_user![
    a_workflow_is_done_inside_a_sandbox,
    nothing_of_it_is_a_change_of_the_project,
    there_are_no_sandboxes_inside,
];
