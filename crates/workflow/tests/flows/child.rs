//! The child workflow of a `<Sandbox>` as a separate program: it behaves the same without the other
//! files of the project.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stockade_api::RunStatus;
use stockade_core::{Code, Problem};
use stockade_workflow::authoring::Processes;
use stockade_workflow::engine::child_program;

use crate::world::{World, program};
use crate::zod;

type Files = BTreeMap<String, Vec<u8>>;

async fn write_program(
    world: &World,
    file: &str,
    input: &Value,
    id: &str,
) -> Result<Files, Problem> {
    let file = world.path().join(file);
    let environment = BTreeMap::from([("GREETING".to_owned(), "hello".to_owned())]);
    child_program(Processes::new(vec![program().into()]), &file, input, &environment, id).await
}

/// The output of the child in a world that contains its program and nothing else.
async fn run_child(files: &Files, input: Value) -> Value {
    assert!(files.keys().all(|name| ["bundle.tsx", "bundle.json"].contains(&name.as_str())));
    let elsewhere = World::new().await;
    for (name, content) in files {
        elsewhere.write(name, std::str::from_utf8(content).unwrap());
    }
    let run = elsewhere.up(&elsewhere.path().join("bundle.tsx"), input).await.unwrap();
    let run = elsewhere.settled(&run.id).await;
    assert_eq!(run.status, RunStatus::Finished, "{run:?}");
    run.output.unwrap()
}

/// The modules that a program contains.
fn modules(files: &Files) -> Vec<String> {
    let sources: Value = serde_json::from_slice(&files["bundle.json"]).unwrap();
    sources["files"].as_object().unwrap().keys().cloned().collect()
}

const LIBRARY: &str = "import { createSmithers } from \"smithers-orchestrator\";\n\
    import { shout } from \"./shout.js\";\n\
    export const make = (mark: string) => {\n\
      const { Workflow, Task, smithers, outputs } = createSmithers({ input: { type: \"object\", required: [\"name\"] }, result: {} });\n\
      return smithers((ctx) => (<Workflow name=\"child\">\n\
        <Task id=\"t\" output={outputs.result}>{() => ({ said: shout(ctx.input.name + mark), greeting: process.env.GREETING })}</Task>\n\
      </Workflow>));\n\
    };\n\
    export const first = make(\"?\");\n\
    export const child = make(\"!\");\n";

#[tokio::test]
async fn one_that_a_module_exports_needs_that_module_alone() {
    let world = World::new().await;
    world.write("shout.ts", "export const shout = (text: string) => text.toUpperCase();\n");
    world.write("secret.ts", "export const secret = \"not for the sandbox\";\n");
    world.write("(lib)/child.tsx", &LIBRARY.replace("./shout", "../shout"));
    let source = "import { createSmithers, Sandbox } from \"stockade\";\n\
        import { child } from \"./(lib)/child.tsx\";\n\
        import { secret } from \"./secret\";\n\
        const { Workflow, smithers } = createSmithers({ output: {} });\n\
        export default smithers((ctx) => <Workflow name={secret}><Sandbox id=\"s\" workflow={child} output=\"output\" /></Workflow>);\n";
    world.write("flow.tsx", source);
    let files = write_program(&world, "flow.tsx", &json!({}), "s").await.unwrap();
    assert_eq!(modules(&files), ["(lib)/child.tsx", "shout.ts"]);
    let wanted = json!({ "said": "BO!", "greeting": "hello" });
    assert_eq!(run_child(&files, json!({ "name": "bo" })).await, wanted);
    let missing = write_program(&world, "flow.tsx", &json!({}), "other").await.unwrap_err();
    assert_eq!(missing.code, Code::InvalidInput, "{missing:?}");
    assert!(missing.cause.unwrap().contains("the element \"other\" has no workflow"));
}

#[tokio::test]
async fn one_that_a_module_keeps_for_itself_is_found_by_its_number() {
    let world = World::new().await;
    world.write("shout.ts", "export const shout = (text: string) => text.toUpperCase();\n");
    world.write("library.tsx", LIBRARY);
    let source = "import { createSmithers } from \"stockade\";\n\
        import { make } from \"./library\";\n\
        const { Workflow, Sandbox, smithers } = createSmithers({ output: {} });\n\
        const one = make(\" one\");\n\
        const two = make(\" two\");\n\
        export default smithers((ctx) => <Workflow name=\"w\">\n\
          <Sandbox id=\"a\" workflow={one} output=\"output\" /><Sandbox id=\"b\" workflow={two} output=\"output\" />\n\
        </Workflow>);\n";
    world.write("flow.tsx", source);
    for (id, said) in [("a", "X ONE"), ("b", "X TWO")] {
        let files = write_program(&world, "flow.tsx", &json!({}), id).await.unwrap();
        assert_eq!(modules(&files), ["flow.tsx", "library.tsx", "shout.ts"]);
        assert_eq!(run_child(&files, json!({ "name": "x" })).await["said"], said);
    }
}

#[tokio::test]
async fn one_that_was_rendered_is_rendered_again_with_what_it_was_made_of() {
    let world = World::new().await;
    let source = "import { createSmithers } from \"stockade\";\n\
        const { Workflow, Task, Sandbox, smithers, outputs } = createSmithers({\n\
          input: { type: \"object\", required: [\"who\"] }, a: {}, output: {},\n\
        });\n\
        const Inner = ({ who }) => <Task id=\"t\" output={outputs.output}>{() => ({ who, said: \"hi\" })}</Task>;\n\
        export default smithers((ctx) => <Workflow name=\"w\">\n\
          <Sandbox id=\"s\" output=\"output\"><Inner who={ctx.input.who + (ctx.outputMaybe(outputs.a)?.n ?? \"\")} /></Sandbox>\n\
          <Sandbox id=\"f\" output=\"output\">{(inner) => <Task id=\"t\" output={outputs.output}>{() => ({ ...inner.input, who: ctx.input.who, id: inner.runId === ctx.runId })}</Task>}</Sandbox>\n\
          <Sandbox id=\"x\" output=\"output\"><Task id=\"t\" output={outputs.output}>{() => { try { return ctx.outputMaybe(\"other\"); } catch (error) { return error.message; } }}</Task></Sandbox>\n\
        </Workflow>);\n";
    world.write("flow.tsx", source);
    let input = json!({ "who": "bo" });
    let files = write_program(&world, "flow.tsx", &input, "s").await.unwrap();
    assert_eq!(run_child(&files, json!({})).await, json!({ "who": "bo", "said": "hi" }));
    let files = write_program(&world, "flow.tsx", &input, "f").await.unwrap();
    let wanted = json!({ "who": "bo", "n": 1, "id": false });
    assert_eq!(run_child(&files, json!({ "n": 1 })).await, wanted);
    // Rows that the rendering did not read are missing, and the error states that.
    let files = write_program(&world, "flow.tsx", &input, "x").await.unwrap();
    let told = run_child(&files, json!({})).await;
    assert!(told.as_str().unwrap().contains("\"other\" are not available in this sandbox"));
}

#[tokio::test]
async fn the_seeds_complete_file_has_one_with_schemas_of_zod() {
    let test = "child::the_seeds_complete_file_has_one_with_schemas_of_zod";
    let Some(world) = zod::world(test).await else { return };
    world.write("flow.tsx", zod::COMPLETE);
    let input = json!({ "prompt": "hi" });
    let files = write_program(&world, "flow.tsx", &input, "remote-summary").await.unwrap();
    let wanted = json!({ "summary": "Processed: hi" });
    assert_eq!(run_child(&files, json!({ "prompt": "hi" })).await, wanted);
    let rendered = "import { createSmithers } from \"stockade\";\nimport { z } from \"zod\";\n\
        const { Workflow, Task, Sandbox, smithers, outputs } = createSmithers({\n\
          input: z.object({ who: z.string().default(\"me\") }), output: z.object({ text: z.string().default(\"!\") }),\n\
        });\n\
        export default smithers((ctx) => <Workflow name=\"w\"><Sandbox id=\"s\" output={outputs.output}>\n\
          <Task id=\"t\" output={outputs.output}>{() => ({ text: ctx.input.who })}</Task>\n\
        </Sandbox></Workflow>);\n";
    world.write("flow.tsx", rendered);
    let files = write_program(&world, "flow.tsx", &json!({}), "s").await.unwrap();
    assert_eq!(run_child(&files, json!({})).await, json!({ "text": "me" }));
}

#[tokio::test]
async fn a_program_is_what_it_was_when_it_was_made() {
    let world = World::new().await;
    world.write("shout.ts", "export const shout = (text: string) => text.toUpperCase();\n");
    let source = LIBRARY.to_owned()
        + "const { Workflow, Sandbox, smithers } = createSmithers({ output: {} });\n\
           export default smithers((ctx) => <Workflow name=\"w\"><Sandbox id=\"s\" workflow={child} output=\"output\" /></Workflow>);\n";
    world.write("flow.tsx", &source);
    let mut files = write_program(&world, "flow.tsx", &json!({}), "s").await.unwrap();
    // Files beside it have names that its imports would resolve to if they were looked up on disk.
    files.insert("shout.ts".to_owned(), b"export const shout = () => \"changed\";\n".to_vec());
    let elsewhere = World::new().await;
    for (name, content) in &files {
        elsewhere.write(name, std::str::from_utf8(content).unwrap());
    }
    let file = elsewhere.path().join("bundle.tsx");
    let run = elsewhere.up(&file, json!({ "name": "x" })).await.unwrap();
    assert_eq!(elsewhere.settled(&run.id).await.output.unwrap()["said"], "X!");
    // A program whose modules are missing or invalid is rejected, and no other files are read.
    elsewhere.write("bundle.json", "{}");
    let refused = elsewhere.up(&file, json!({ "name": "x" })).await.unwrap_err();
    assert!(refused.cause.unwrap().contains("bundle.json contains no modules"));
    std::fs::remove_file(elsewhere.path().join("bundle.json")).unwrap();
    let refused = elsewhere.up(&file, json!({ "name": "x" })).await.unwrap_err();
    assert!(refused.cause.unwrap().contains("cannot read"));
}
