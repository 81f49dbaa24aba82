//! Forms of published workflow files that are not elements: names of modules and packages, options of
//! agents, and components with their attributes.

use serde_json::{Value, json};
use stockade_api::{Run, RunStatus, SendSignal, TaskStatus, Workflows as _};

use crate::world::World;

/// A workflow file with this head and body. `told` is an agent that answers with its prompt.
fn flow(head: &str, body: &str) -> String {
    format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import * as all from \"smithers-orchestrator\";\n\
         const {{ Workflow, Task, Sequence, Signal, smithers, outputs }} = \
            all.createSmithers({{ a: {{}}, b: {{}}, output: {{}} }});\n\
         const told = {{ generate: async ({{ prompt }}) => ({{ output: {{ prompt }} }}) }};\n\
         const broken = {{ generate: async () => {{ throw new Error(\"no\"); }} }};\n\
         {head}\n\
         export default smithers((ctx) => (<Workflow name=\"w\">{body}</Workflow>));\n"
    )
}

async fn run(head: &str, body: &str) -> (World, Run) {
    let world = World::new().await;
    let run = world.run(&flow(head, body), json!({ "who": "you" })).await;
    (world, run)
}

async fn output(head: &str, body: &str) -> Value {
    let (_world, run) = run(head, body).await;
    assert_eq!(run.status, RunStatus::Finished, "{:?}", run.error);
    run.output.unwrap_or_default()
}

/// The outputs of all tasks of a run that has finished, by their ids.
async fn rows(head: &str, body: &str) -> Value {
    let (world, run) = run(head, body).await;
    assert_eq!(run.status, RunStatus::Finished, "{:?}", run.error);
    let tasks = world.tasks(&run).await.into_iter();
    tasks
        .map(|task| (task.id, task.output.unwrap_or_default()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

async fn fails(head: &str, body: &str) -> String {
    let world = World::new().await;
    let file = world.write("flow.tsx", &flow(head, body));
    let Err(problem) = world.up(&file, json!({})).await else { return "no error".to_owned() };
    format!("{}\n{}", problem.message, problem.cause.unwrap_or_default())
}

#[tokio::test]
async fn a_pack_imports_by_the_names_of_its_settings() {
    let world = World::new().await;
    world.write("package.json", "{}");
    world.write(
        ".smithers/tsconfig.json",
        "{ \"compilerOptions\": { \"paths\": { \"~/*\": [\"./*\"] } } } // ours\n",
    );
    world.write(
        ".smithers/components/Greet.tsx",
        "import Hello from \"~/prompts/hello.mdx\";\nexport const Greet = Hello;\n",
    );
    world.write(".smithers/prompts/hello.mdx", "Greet {props.who}.\n");
    let head = "import { Greet } from \"~/components/Greet\";\n\
                import { Task as Same } from \"@smithers-orchestrator/components\";\n\
                if (Same !== Task) throw new Error(\"another module\");";
    let body = "<Task id=\"t\" output=\"output\" agent={told}><Greet who=\"you\" /></Task>";
    let file = world.write(".smithers/workflows/flow.tsx", &flow(head, body));
    let started = world.up(&file, json!({})).await.unwrap();
    let run = world.ended(&started.id).await;
    let prompt = run.output.unwrap()["prompt"].as_str().unwrap().to_owned();
    assert!(prompt.starts_with("Greet you."), "{prompt}");
}

/// The name of a table is the table, with its schema.
#[tokio::test]
async fn the_schema_of_a_table_counts_for_its_name() {
    let world = World::new().await;
    let source = |work: &str| {
        format!(
            "import {{ createSmithers }} from \"smithers-orchestrator\";\n\
             const {{ Workflow, Task, smithers }} = createSmithers({{ output: {{ type: \"object\", required: [\"n\"] }} }});\n\
             export default smithers(() => <Workflow name=\"w\"><Task id=\"t\" output=\"output\" retries={{0}} {work}</Task></Workflow>);\n"
        )
    };
    let asked = "agent={({ prompt }) => ({ n: prompt })}>hi";
    let run = world.run(&source(asked), json!({})).await;
    let prompt = run.output.unwrap()["n"].as_str().unwrap().to_owned();
    assert!(prompt.contains("JSON Schema") && prompt.contains("\"required\":[\"n\"]"), "{prompt}");
    let run = world.run(&source(">{() => ({ m: 1 })}"), json!({})).await;
    assert_eq!(run.error.unwrap()["code"], "INVALID_OUTPUT");
}

#[tokio::test]
async fn the_function_of_a_signal_gets_its_value() {
    let body = "<Sequence><Signal id=\"go\" schema={outputs.a}>\
          {(data) => <Task id=\"then\" output=\"b\">{{ n: data.n + 1 }}</Task>}</Signal>\
        <Task id=\"end\" output=\"output\">{() => ctx.output(\"b\", { nodeId: \"then\" })}</Task></Sequence>";
    let (world, run) = run("", body).await;
    assert_eq!(world.settled(&run.id).await.status, RunStatus::Waiting);
    let (id, name) = (run.id.clone(), "go".to_owned());
    let signal = SendSignal { id, name, correlation: None, payload: json!({ "n": 1 }) };
    world.workflows.signal(&world.caller, signal).await.unwrap();
    assert_eq!(world.ended(&run.id).await.output, Some(json!({ "n": 2 })));
}

#[tokio::test]
async fn the_tasks_of_a_panel_have_its_attributes() {
    let body = "<all.Panel id=\"p\" panelists={[told, { agent: [told], label: \"same\" }, { agent: broken, label: \"same\" }]} \
          moderator={told} panelistOutput={outputs.a} moderatorOutput={outputs.output} \
          panelistTaskProps={{ continueOnFail: true, retries: 0, timeoutMs: undefined }}>Look</all.Panel>";
    let (world, run) = run("", body).await;
    assert_eq!(run.status, RunStatus::Finished, "{:?}", run.error);
    let ids: Vec<String> = world.tasks(&run).await.into_iter().map(|task| task.id).collect();
    assert_eq!(ids.iter().filter(|id| id.starts_with("p-same")).count(), 2, "{ids:?}");
    let prompt = run.output.unwrap()["prompt"].to_string();
    assert!(prompt.contains("panelist-0:") && prompt.contains("same-2:\\nnothing yet"), "{prompt}");
    let body = body.replace("retries: 0", "retrys: 0");
    assert!(
        fails("", &body)
            .await
            .contains("<Task> has no attribute `retrys` — did you mean `retries`?")
    );
}

#[tokio::test]
async fn a_sidecar_is_only_compared() {
    let head = "const seen = [];\n\
        const note = all.createScorer({ id: \"note\", score: (given) => { seen.push(given); return 1; } });\n\
        const never = { scorer: note, sampling: { type: \"none\" } };\n\
        const judge = { generate: async () => 'I say {\"score\": 7, \"reason\": \"good\"}' };";
    let body = "<Sequence><all.Sidecar id=\"s\" agent={told} sidecar={broken} output={outputs.a} groundTruth=\"yes\" context={[1]} \
          scorers={{ note, never, wrong: {} }} prompt=\"Do it\" />\
        <Task id=\"end\" output=\"output\">{async () => ({ count: seen.length, ...seen[0], \
           judged: await all.relevancyScorer(judge).score({ input: 1, output: 2 }), \
           slow: await all.latencyScorer({ targetMs: 100, maxMs: 300 }).score({ latencyMs: 200 }) })}</Task></Sequence>";
    let found = output(head, body).await;
    assert_eq!(found["count"], 1, "the sidecar failed, and one scorer is never sampled: {found}");
    assert_eq!((&found["groundTruth"], &found["context"]), (&json!("yes"), &json!([1])));
    assert_eq!(found["judged"], json!({ "score": 1, "reason": "good" }));
    assert_eq!(found["slow"]["score"], 0.5);
    assert!(
        found["latencyMs"].is_number() && found["input"].as_str().unwrap().starts_with("Do it"),
        "{found}"
    );
    let message = fails("all.llmJudge({ id: \"j\", judge: new all.ClaudeCodeAgent() });", "").await;
    assert!(message.contains("the judge of the scorer \"j\" must be a function"), "{message}");
    let message = fails("", "<Task id=\"t\" output=\"a\" groundTruth={1}>{{}}</Task>").await;
    assert!(message.contains("`groundTruth` is for `scorers`"), "{message}");
}

#[tokio::test]
async fn an_agent_changes_files_by_a_strategy() {
    let body = "<all.Aspects tracking={{ tokens: true }}>\
        <all.SuperSmithers id=\"s\" strategy={<p>Be brief.</p>} agent={told} targetFiles={[\"a.ts\"]} reportOutput={outputs.output} />\
        <all.SuperSmithers id=\"dry\" strategy=\"Look\" agent={told} dryRun reportOutput={outputs.b} /></all.Aspects>";
    let found = rows("", body).await;
    assert_eq!(found.as_object().unwrap().len(), 6, "{found}");
    let prompt = |id: &str| found[id]["prompt"].as_str().unwrap().to_owned();
    assert!(prompt("s-read").contains("Be brief.") && prompt("s-read").contains("files: a.ts"));
    assert!(prompt("s-propose").starts_with("Make the changes"));
    assert!(prompt("dry-propose").contains("Do not change any file"));
    assert!(prompt("s-report").contains("changes:"));
}

/// Three tasks whose agents use 60 tokens each, in a scope.
fn spending(scope: &str) -> String {
    let task = |id: &str| {
        format!("<Task id=\"{id}\" output=\"a\" agent={{spends}} retries={{0}}>go</Task>")
    };
    format!(
        "<all.Aspects {scope}><Sequence>{}{}{}</Sequence></all.Aspects>\
         <Task id=\"end\" output=\"output\">{{{{ ended: true }}}}</Task>",
        task("one"),
        task("two"),
        task("three"),
    )
}

#[tokio::test]
async fn the_budgets_of_a_scope_hold() {
    let head = "const spends = { generate: async () => ({ output: {}, usage: { inputTokens: 40, outputTokens: 20 } }) };\n\
        const memory = { recall: { topK: 3 }, remember: { key: \"k\" } };\n\
        const silent = { generate: async () => ({ output: {} }) };";
    let over = "ASPECT_BUDGET_EXCEEDED";
    for (scope, failed, ended, warnings) in [
        ("tokenBudget={{ max: 100 }}", Some("three"), 2, 0),
        ("tokenBudget={{ max: 100, onExceeded: \"warn\" }}", None, 4, 1),
        ("tokenBudget={{ max: 100, onExceeded: \"skip-remaining\" }}", None, 3, 1),
        ("tokenBudget={{ max: 1000, perTask: 59 }}", Some("one"), 0, 0),
        ("tokenBudget={{ max: 1000, perTask: 59, onExceeded: \"warn\" }}", None, 4, 3),
        ("tokenBudget={{ max: 180 }} latencySlo={{ maxMs: 600_000 }}", None, 4, 0),
        ("latencySlo={{ maxMs: 0 }}", Some("one"), 0, 0),
        ("latencySlo={{ maxMs: 0, onExceeded: \"warn\" }}", None, 4, 3),
    ] {
        let (world, run) = run(head, &spending(scope)).await;
        let error = run.error.clone().unwrap_or_default();
        assert_eq!(error["task"].as_str(), failed, "{scope}: {error}");
        assert!(failed.is_none() || error["code"] == over, "{scope}: {error}");
        let tasks = world.tasks(&run).await;
        let done = tasks.iter().filter(|task| task.status == TaskStatus::Finished);
        assert_eq!(done.count(), ended, "{scope}: {tasks:?}");
        let events = world.events(&run).await;
        let warned = events.iter().filter(|event| event["level"] == "warn").count();
        assert_eq!(warned, warnings, "{scope}: {events:?}");
    }
    // An inner scope replaces a budget of the outer one, and what an agent does not say is told.
    let body = "<all.Aspects tokenBudget={{ max: 0 }}><all.Aspects tokenBudget={{ max: 1 }}>\
        <Task id=\"t\" output=\"output\" agent={silent} memory={memory}>go</Task></all.Aspects></all.Aspects>";
    let (world, run) = run(head, body).await;
    assert_eq!(run.status, RunStatus::Finished, "{:?}", run.error);
    let events = world.events(&run).await;
    let told = |event: &Value| event["message"].to_string().contains("did not say how many tokens");
    assert!(events.iter().any(told), "{events:?}");
    let told =
        |event: &Value| event["message"].to_string().contains("does nothing, as in Smithers");
    assert!(events.iter().any(told), "{events:?}");
    let body = "<all.Aspects tokenBudget={{ max: 1 }}><Task id=\"t\" output=\"output\" agent={{ command: \"true\" }}>go</Task></all.Aspects>";
    let message = fails("", body).await;
    assert!(message.contains("does not say how many tokens it uses"), "{message}");
}

#[tokio::test]
async fn a_worktree_starts_from_the_branch_that_is_checked_out() {
    let body = |base: &str| {
        format!(
            "<all.Worktree path=\"w\" branch=\"next\" baseBranch=\"{base}\">\
             <Task id=\"t\" output=\"output\" agent={{told}}>go</Task></all.Worktree>"
        )
    };
    let world = World::new().await;
    std::fs::create_dir(world.path().join(".git")).unwrap();
    world.write(".git/HEAD", "ref: refs/heads/main\n");
    let run = world.run(&flow("", &body("main")), json!({})).await;
    assert_eq!(run.status, RunStatus::Finished, "{:?}", run.error);
    let file = world.write("flow.tsx", &flow("", &body("other")));
    let message = world.up(&file, json!({})).await.unwrap_err().message;
    assert!(message.contains("flow.tsx:") && message.contains("check out \"other\""), "{message}");
}

#[tokio::test]
async fn options_of_agents_are_arguments_of_their_commands() {
    let head = "const codex = new all.CodexAgent({ model: \"m\", sandbox: \"workspace-write\", nativeStructuredOutput: true, color: \"never\", apiKey: \"key\", env: { A: \"1\" } });\n\
        const cursor = new all.CursorAgent({ mode: \"plan\", resume: false, approveMcps: true });\n\
        const pool = new all.PoolAgent({ agentName: \"a\", inheritEnv: false, cwd: process.cwd() });\n\
        const reader = new all.CodexAgent({ sandbox: \"read-only\", fullAuto: false, maxOutputBytes: 4000000 });\n\
        new all.VibeAgent({ inheritEnv: true });";
    let body = "<Task id=\"t\" output=\"output\">{() => ({ codex: { ...codex }, cursor: { ...cursor }, pool: { ...pool }, reader: { ...reader }, id: pool.id })}</Task>";
    let expected = json!({
        "codex": { "adapter": "codex", "model": "m", "args": ["--color", "never"], "env": { "OPENAI_API_KEY": "key", "A": "1" } },
        "cursor": { "adapter": "cursor", "args": ["--mode", "plan", "--approve-mcps"] },
        "pool": { "adapter": "pool", "args": ["-a", "a"] },
        "reader": { "adapter": "codex-read-only", "maxOutputBytes": 4_000_000 },
        "id": "PoolAgent",
    });
    assert_eq!(output(head, body).await, expected);
    for (agent, why) in [
        (
            "CodexAgent({ sandbox: \"none\" })",
            "`sandbox` must be one of read-only, workspace-write",
        ),
        ("KimiAgent({ maxOutputBytes: -1 })", "`agent.maxOutputBytes` must be a whole number"),
        (
            "ClaudeCodeAgent({ resume: \"abc\" })",
            "`resume` is not supported: each attempt starts a session of its own",
        ),
        (
            "KimiAgent({ configDir: \"/home/me/.kimi\" })",
            "`configDir` is not supported: a sandbox has no files of your home",
        ),
        ("VibeAgent({ inheritEnv: true })", "`inheritEnv` can only be false"),
        ("PiAgent({ apiKey: \"k\" })", "has no `apiKey`"),
        ("OpenClawAgent({ workspace: \"/elsewhere\" })", "`workspace` can only be process.cwd()"),
    ] {
        let body = format!("<Task id=\"t\" output=\"output\" agent={{new all.{agent}}}>hi</Task>");
        let message = fails("", &body).await;
        assert!(message.contains(why) && message.contains("flow.tsx:"), "{agent}: {message}");
    }
}

#[tokio::test]
async fn a_file_has_the_parts_of_node_that_need_no_host() {
    let head = "import path, { join } from \"node:path\";\nimport { posix } from \"path\";";
    let body = "<Task id=\"t\" output=\"output\">{() => ({ here: process.cwd(), os: process.platform, words: process.argv.length, \
          found: [path.resolve(\"a\", \"../b\"), join(\"x\", \"..\", \"..\", \"y.tar.gz\"), path.relative(\"/a/b\", \"/a/c/d\"), path.basename(\"/a/b.md\", \".md\"), \
            path.extname(\".env\"), path.dirname(\"/a/b/\"), posix.normalize(\"/a/./b/../c/\"), path.parse(\"/a/b.ts\").name, path.format({ dir: \"/a\", base: \"b\" })] })}</Task>";
    let expected = json!({ "here": "/workspace", "os": "linux", "words": 0, "found":
        ["/workspace/b", "../y.tar.gz", "../c/d", "b", "", "/a", "/a/c/", "b", "/a/b"] });
    assert_eq!(output(head, body).await, expected);
}

#[tokio::test]
async fn what_needs_node_is_refused_by_name() {
    for (head, why) in [
        (
            "import { Gateway } from \"smithers-orchestrator\"; Gateway;",
            "`Gateway` is not a part of Stockade: it needs an engine on Node.js, which is planned",
        ),
        (
            "import { delegationSchemas } from \"smithers-orchestrator\"; delegationSchemas;",
            "`delegationSchemas` is not a part",
        ),
        (
            "import { Tusk } from \"smithers-orchestrator\"; Tusk;",
            "exports no `Tusk` — did you mean `Task`?",
        ),
        (
            "import ui from \"@smithers-orchestrator/gateway-ui\"; ui;",
            "\"gateway-ui\" needs an engine on Node.js, which is planned",
        ),
        (
            "const name = \"./a.js\"; await import(name);",
            "An engine on Node.js, which is planned, is needed for names that are computed",
        ),
        (
            "import { readFileSync } from \"node:fs\"; readFileSync;",
            "An engine on Node.js is planned",
        ),
    ] {
        let message = fails(head, "").await;
        assert!(message.contains(why) && message.contains("flow.tsx:"), "{head}: {message}");
    }
    let message = fails("", "<Task id=\"t\" output=\"a\" agent={undefined}><b>hi</b></Task>").await;
    assert!(
        message.contains("`agent` must be a function") && message.lines().count() == 2,
        "{message}"
    );
    for (body, why) in [
        ("<all.Aspects tokenBudget={{ most: 1 }} />", "`tokenBudget` of <Aspects> has no `most`"),
        ("<all.Aspects tokenBudget={{ max: -1 }} />", "must be a whole number from 0, not -1"),
        (
            "<all.Aspects latencySlo={{ maxMs: 1, onExceeded: \"skip-remaining\" }} />",
            "`latencySlo.onExceeded` of <Aspects> must be one of fail, warn",
        ),
        (
            "<all.Aspects latencySlo={{ maxMs: 1, perTask: 1 }} />",
            "`latencySlo.perTask` of <Aspects> is not supported: use `timeoutMs`",
        ),
        ("<all.Parallel subtreeConcurrency={0} />", "`subtreeConcurrency`"),
        (
            "<all.WaitForEvent id=\"e\" event=\"go\" output=\"a\" tagged />",
            "`tagged` is not supported",
        ),
        ("<Task id=\"t\" output=\"a\" agent={told} hijack>hi</Task>", "`hijack` is not supported"),
        (
            "<Task id=\"t\" output=\"a\" agent={told} memory={{ bank: \"b\" }}>hi</Task>",
            "`memory` is not supported",
        ),
        ("<all.Aspects tokenBuget={{ max: 1 }} />", "did you mean `tokenBudget`"),
        ("<all.Trellis />", "<Trellis> is not supported: an engine on Node.js, which is planned"),
    ] {
        let message = fails("", body).await;
        assert!(message.contains(why) && message.contains("flow.tsx:"), "{body}: {message}");
    }
    let head = "const known = [all.isSmithersError(new all.SmithersError(\"A\", \"m\")), all.errorToJson(new all.SmithersErrorInstance(\"A\", \"m\", { x: 1 }))];";
    let body = "<Task id=\"t\" output=\"output\">{() => ({ known })}</Task>";
    let expected = json!({ "known": [true, { "name": "SmithersError", "message": "m", "code": "A", "details": { "x": 1 } }] });
    assert_eq!(output(head, body).await, expected);
}

/// What a package lacks is reported where the project imports it.
#[tokio::test]
async fn an_error_in_a_package_is_that_of_its_import() {
    let world = World::new().await;
    world.write("package.json", "{}");
    world.write(
        "node_modules/outer/package.json",
        "{ \"main\": \"index.js\", \"type\": \"module\" }",
    );
    world.write("node_modules/outer/index.js", "export { a } from \"./next.js\";");
    world.write("node_modules/outer/next.js", "import \"inner\"; export const a = 1;");
    world.write("node_modules/inner/package.json", "{ \"main\": \"index.js\" }");
    world.write("node_modules/inner/index.js", "module.exports = {};");
    let file = world.write("flow.tsx", &flow("import { a } from \"outer\"; a;", ""));
    let problem = world.up(&file, json!({})).await.unwrap_err();
    let message = format!("{}\n{}", problem.message, problem.cause.unwrap_or_default());
    let expected =
        "flow.tsx:6:1 — cannot import the package \"outer\": node_modules/outer/next.js:1:1";
    assert!(message.contains(expected) && message.contains("which is planned"), "{message}");
}
