//! Files that are not workflows, and the errors for them.

use serde_json::json;
use stockade_api::{ListRuns, Workflows as _};

use crate::world::World;

/// The error for a file that cannot be started; asserts that nothing was started.
async fn error_message(source: &str) -> String {
    let world = World::new().await;
    let file = world.write("flow.tsx", source);
    let problem = world.up(&file, json!({})).await.unwrap_err();
    assert!(world.workflows.runs(&world.caller, ListRuns { limit: 10 }).await.unwrap().is_empty());
    format!("{}\n{}", problem.message, problem.cause.unwrap_or_default())
}

const HEAD: &str = "import { createSmithers } from \"smithers-orchestrator\";\n\
    const { Workflow, Task, Parallel, smithers } = createSmithers({ r: {} });\n";

#[tokio::test]
async fn what_is_wrong_is_told_with_its_place() {
    let body = |body: &str| {
        format!(
            "{HEAD}export default smithers((ctx) => (<Workflow name=\"w\">\n{body}\n</Workflow>));\n"
        )
    };
    for (source, expected) in [
        (
            body("<Task id=\"a\" output=\"r\" timeot={1}>{{}}</Task>"),
            "flow.tsx:4:1 — <Task> has no attribute `timeot`",
        ),
        (
            body("<Task id=\"a\" output=\"r\">{{}}</Task><Task id=\"a\" output=\"r\">{{}}</Task>"),
            "two tasks have the id \"a\", the first at flow.tsx:4:1",
        ),
        (
            body(
                "<Task id=\"a\" output=\"r\" dependsOn={[\"b\"]}>{{}}</Task><Task id=\"b\" output=\"r\">{{}}</Task>",
            ),
            "tasks wait for each other",
        ),
        (body("<Tesk id=\"a\" />"), "Tesk"),
        (body("<task-thing />"), "there is no element <task-thing>"),
        (body("text"), "\"text\" is not allowed between elements"),
        (body("<Task id=\"a\">{{}}</Task>"), "flow.tsx:4:1 — <Task> needs `output`"),
        (
            body("{ctx.output(\"r\", { nodeId: \"x\" })}"),
            "there is no output of task \"x\" in \"r\" yet",
        ),
        (format!("{HEAD}export default 7;"), "its default export is not a workflow"),
        (HEAD.to_owned(), "it has no default export"),
        ("const x = ;".to_owned(), "flow.tsx:1:11"),
        ("import \"./gone\";".to_owned(), "flow.tsx:1:1 — cannot find \"./gone\""),
        ("import x from \"left-pad\"; x();".to_owned(), "cannot find the package \"left-pad\""),
        ("\n  null.x;".to_owned(), "flow.tsx:2:"),
        ("await new Promise(() => {});".to_owned(), "it awaits a promise"),
        (
            "\n  const f = (name) => import(`./${name}.ts`);".to_owned(),
            "flow.tsx:2:23 — import() needs a literal name",
        ),
        ("\nawait import('./gone');".to_owned(), "flow.tsx:2:7 — cannot find \"./gone\""),
    ] {
        let told = error_message(&source).await;
        assert!(told.contains(expected), "{source}\n--- told ---\n{told}");
    }
}

#[tokio::test]
async fn files_import_each_other() {
    let world = World::new().await;
    world.write("package.json", "{}");
    world.write("lib/parts.tsx", "import { Task } from \"stockade\";\nimport words from \"./words.json\";\n\
        export const Greet = ({ id }: { id: string }) => <Task id={id} output=\"r\">{{ said: words.hello as string }}</Task>;\n");
    world.write("lib/words.json", "{ \"hello\": \"Hello\" }");
    let file = world.write("flows/main.tsx", "import { createSmithers, Fragment } from \"stockade\";\nimport { Greet } from \"../lib/parts.js\";\n\
        const { Workflow, smithers } = createSmithers({});\n\
        export default smithers(() => <Workflow name=\"w\"><><Greet id=\"g\" /></></Workflow>);\n");
    let run = world.up(&file, json!({})).await.unwrap();
    let run = world.settled(&run.id).await;
    assert_eq!(run.output, Some(json!({ "said": "Hello" })), "{run:?}");
}

#[tokio::test]
async fn files_import_each_other_while_they_run() {
    let world = World::new().await;
    world.write("package.json", "{}");
    world.write("child.tsx", "import { createSmithers } from \"stockade\";\n\
        const { Workflow, Task, smithers } = createSmithers({});\n\
        export const child = smithers((ctx) => (<Workflow name=\"c\"><Task id=\"t\" output=\"r\">{{ said: ctx.input.said + \"!\" }}</Task></Workflow>));\n");
    world.write(
        "lib/words.ts",
        "export const hello: string = \"Hello\"; export * from \"./more.ts\";",
    );
    world.write("lib/more.ts", "export const name = \"you\";");
    world.write(
        "node_modules/greet/package.json",
        "{ \"name\": \"greet\", \"exports\": \"./a.js\" }",
    );
    world.write("node_modules/greet/a.js", "export const all = async (a, b) => (await import('./b.js')).join(a, b); export const never = () => import('node:fs');");
    world.write("node_modules/greet/b.js", "export const join = (a, b) => `${a}, ${b}`;");
    let file = world.write("flow.tsx", "import { createSmithers, Subflow } from \"stockade\";\n\
        const { child } = await import(\"./child.tsx\");\n\
        const { Workflow, Task, smithers } = createSmithers({});\n\
        export default smithers((ctx) => (<Workflow name=\"w\">\n\
          <Task id=\"t\" output=\"part\">{async () => {\n\
            const { hello, name } = await import(\"./lib/words.ts\");\n\
            const { all } = await import(\"greet\");\n\
            const gone = await import(\"./gone.ts\").catch((error) => error.message);\n\
            return { said: await all(hello, name), gone }; }}</Task>\n\
          {ctx.outputs(\"part\").map((part) => <Subflow id=\"s\" workflow={child} input={{ said: part.said }} output=\"output\" />)}\n\
        </Workflow>));\n");
    let run = world.up(&file, json!({})).await.unwrap();
    // The run continues with the files that existed when it started.
    std::fs::remove_file(world.path().join("lib/words.ts")).unwrap();
    let world = world.restarted().await;
    let run = world.ended(&run.id).await;
    assert_eq!(run.output, Some(json!({ "said": "Hello, you!" })), "{run:?}");
    let task = &world.tasks(&run).await[0];
    let gone = task.output.as_ref().unwrap()["gone"].as_str().unwrap();
    assert!(gone.starts_with("flow.tsx:8:20 — ") && gone.contains("\"./gone.ts\""), "{gone}");
}
