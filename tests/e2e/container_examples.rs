//! The examples of Smithers' page on `<Sandbox>` that need a container, as they stand there: for each runtime
//! that has images. Only the child workflow, which the page does not show, is the tests' own.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::harness::World;

/// The image of all examples. It needs a shell and the program `node` at the path that the last example
/// executes.
pub(crate) const IMAGE: &str = "node:20-alpine";

/// A child workflow with one task.
fn child(name: &str, result: &str) -> String {
    format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import {{ createSmithers, Task }} from \"smithers-orchestrator\";\n\
         const {{ Workflow, smithers, outputs }} = createSmithers({{ result: {{}} }});\n\
         export const {name} = smithers((ctx) => (\n  <Workflow name=\"child\">\n    \
           <Task id=\"write\" output={{outputs.result}}>{{{result}}}</Task>\n  \
         </Workflow>\n));\nexport default {name};\n"
    )
}

/// "Basic usage with Docker".
const GENERATE: &str = r#"<Workflow name="code-gen-sandbox">
  <Sandbox
    id="generate"
    workflow={generateCodeWorkflow}
    input={{ prompt: ctx.input.prompt, language: "typescript" }}
    output={outputs.result}
    runtime="docker"
    image="node:20-alpine"
    env={{ NODE_ENV: "production", LOG_LEVEL: "info" }}
    ports={[{ host: 3000, container: 3000 }]}
    memoryLimit="1g"
    cpuLimit="1"
    allowNetwork={false}
    reviewDiffs={true}
    autoAcceptDiffs={false}
    timeoutMs={300_000}
  />
</Workflow>"#;

/// "With diff review and conditional auto-accept".
const REFACTOR: &str = r#"<Workflow name="refactor-sandbox">
  <Sandbox
    id="refactor"
    workflow={refactorWorkflow}
    input={{ target: ctx.input.filepath, style: ctx.input.styleGuide }}
    output={outputs.refactor}
    runtime="docker"
    image="node:20-alpine"
    allowNetwork={false}
    reviewDiffs={true}
    autoAcceptDiffs={ctx.input.autoApprove === true}
    timeoutMs={180_000}
    retries={1}
    continueOnFail={false}
  />
</Workflow>"#;

/// "Custom command override".
const COMMAND: &str = r#"<Workflow name="custom">
  <Sandbox
  id="custom-run"
  workflow={myWorkflow}
  output={outputs.result}
  runtime="docker"
  image="node:20-alpine"
  command="node dist/runner.js"
/>
</Workflow>"#;

/// An example in the project: its file, the input of the run, and its output.
pub(crate) struct Example {
    pub(crate) name: &'static str,
    pub(crate) file: PathBuf,
    pub(crate) input: &'static str,
    pub(crate) output: Value,
}

/// Writes the examples for a runtime. Where another test may have the port of the first one, it is
/// replaced.
pub(crate) fn write(world: &World, runtime: &str, port: u16) -> Vec<Example> {
    let generated =
        "{ files: [\"a.ts\"], summary: ctx.input.language + \": \" + ctx.input.prompt }";
    world.write("workflows/generate-code.tsx", child("generateCodeWorkflow", generated));
    let refactored = "{ summary: ctx.input.target + \": \" + ctx.input.style, patchCount: 0 }";
    world.write("workflows/refactor.tsx", child("refactorWorkflow", refactored));
    world.write("dist/runner.js", "the program of the tests needs none\n");
    let example = |name: &'static str, example: &str, input, output| {
        let block = example
            .replace("runtime=\"docker\"", &format!("runtime=\"{runtime}\""))
            .replace("host: 3000", &format!("host: {port}"));
        let source = format!(
            "/** @jsxImportSource smithers-orchestrator */\n\
             import {{ createSmithers, Sandbox }} from \"smithers-orchestrator\";\n\
             import {{ generateCodeWorkflow }} from \"./workflows/generate-code\";\n\
             import {{ refactorWorkflow }} from \"./workflows/refactor\";\n\
             const {{ Workflow, smithers, outputs }} = createSmithers({{ result: {{}}, refactor: {{}} }});\n\
             export default smithers((ctx) => (\n{block}\n));\n"
        );
        let file = world.write(&format!("{name}.tsx"), source);
        Example { name, file, input, output }
    };
    vec![
        example(
            "generate",
            GENERATE,
            r#"{"prompt":"p"}"#,
            json!({ "files": ["a.ts"], "summary": "typescript: p" }),
        ),
        example(
            "refactor",
            REFACTOR,
            r#"{"filepath":"src/a.ts","styleGuide":"plain"}"#,
            json!({ "summary": "src/a.ts: plain", "patchCount": 0 }),
        ),
        example(
            "custom",
            COMMAND.replace("myWorkflow", "generateCodeWorkflow").as_str(),
            "{}",
            json!({ "ran": "dist/runner.js" }),
        ),
    ]
}

/// What is `node` in the image: it prints which file it was given.
pub(crate) const NODE: &str = "#!/bin/sh\necho \"{\\\"ran\\\": \\\"$1\\\"}\"\n";
