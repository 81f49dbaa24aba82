//! The code blocks of Smithers' pages about `<Sandbox>`, from `tests/cases/smithers`: each is executed
//! unchanged. What a block does not define, such as `ctx` or the child workflow, is added around
//! it; only remote services are replaced by doubles. The names in its types are tested in
//! `smithers_types.rs`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::call::Outcome;
use crate::harness::{World, skip};
use crate::sandbox::{call, events, finished_run, inspect, is_clean, types};

/// A block of the pages.
macro_rules! block {
    ($name:literal) => {
        include_str!(concat!("../cases/smithers/", $name))
    };
}
pub(crate) use block;

/// The import at the start of the page, which most fragments of 000 omit.
const IMPORT: &str = block!("000-import.tsx");
const OUTPUTS: &str = "const outputs = { result: {}, analysis: {} };";

/// A workflow file around a block: its statements stay at the top level of the file, and its
/// workflow or sandbox is rendered.
pub(crate) fn wrap_block(before: &str, block: &str) -> String {
    let at = if block.starts_with('<') { 0 } else { block.find("\n<").unwrap() + 1 };
    let (stated, shown) = block.split_at(at);
    let rendered = match shown.starts_with("<Workflow") {
        true => "shown",
        false => "<Workflow name=\"around\">{shown}</Workflow>",
    };
    format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import {{ createSmithers }} from \"smithers-orchestrator\";\n\
         {before}\n{stated}\n\
         const {{ Workflow, smithers }} = createSmithers(outputs);\n\
         export default smithers((ctx) => {{\n  const shown =\n{shown};\n  return {rendered};\n}});\n"
    )
}

/// Writes a module with a child workflow, which outputs its input; returns the import statement.
pub(crate) fn child(world: &World, module: &str, name: &str) -> String {
    let source = format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import {{ createSmithers }} from \"smithers-orchestrator\";\n\
         const own = createSmithers({{ result: {{}} }});\n\
         export const {name} = own.smithers((ctx) => (\n  <own.Workflow name=\"child\">\n    \
           <own.Task id=\"only\" output={{own.outputs.result}}>{{{{ given: ctx.input, run: ctx.runId }}}}</own.Task>\n  \
         </own.Workflow>\n));\n"
    );
    world.write(&format!("{module}.tsx"), source);
    format!("import {{ {name} }} from \"./{module}\";\n")
}

/// Runs a file with this text, with additional arguments.
pub(crate) fn up(world: &World, run: &str, source: &str, more: &[&str]) -> Outcome {
    let file = world.write(&format!("{run}.tsx"), source);
    let words = ["up", file.to_str().unwrap(), "--run-id", run];
    call(world, &[&words[..], more].concat())
}

fn error(world: &World, run: &str) -> Value {
    inspect(world, run)["run"]["error"].clone()
}

/// Whether the project has zod, which `cargo xtask ci` installs for the tests.
fn has_zod(world: &World, test: &str) -> bool {
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages/npm/node_modules");
    let module = packages.join("zod/package.json");
    let is_there = module.exists();
    if !is_there || world.on_host(Path::new("/bin/cat"), &[module.as_os_str()]).finish().code() != 0
    {
        let reason = match is_there {
            true => "zod is installed where this user cannot read it",
            false => "zod is not installed: cargo xtask ci installs it",
        };
        let name = format!("smithers_pages::{test}, as uid {}", world.identity.uid());
        skip(&name, reason);
        return false;
    }
    symlink(packages, world.project.join("node_modules")).unwrap();
    true
}

/// For the only sandbox of a run, nothing was created or executed.
fn nothing_was_executed(world: &World, run: &str) {
    assert!(types(&events(world, run)).is_empty(), "{:?}", events(world, run));
    assert!(!world.has(&format!(".smithers/sandboxes/{run}")), "{run}");
    is_clean(world);
}

/// The examples with runtimes that are not available yet, and their modules.
fn runtimes_that_are_not_there_are_refused_by_name(world: &World) {
    let import = child(world, "mine", "myWorkflow");
    let source = wrap_block(&format!("{IMPORT}{import}{OUTPUTS}"), block!("000-command.tsx"));
    refused(world, "command", &source, &[], "SANDBOX_EXECUTION_FAILED", "`docker`");
    if !has_zod(world, "runtimes_that_are_not_there_are_refused_by_name") {
        return;
    }
    child(world, "workflows/generate-code", "generateCodeWorkflow");
    child(world, "workflows/test-runner", "testRunnerWorkflow");
    child(world, "workflows/refactor", "refactorWorkflow");
    let basic = wrap_block("", block!("000-basic-docker.tsx"));
    let input = ["--input", "{\"prompt\": \"hello\"}"];
    refused(world, "basic", &basic, &input, "SANDBOX_EXECUTION_FAILED", "`docker`");
    let review = wrap_block("", block!("000-diff-review.tsx"));
    let input = ["--input", "{\"filepath\": \"a.txt\", \"autoApprove\": true}"];
    refused(world, "review", &review, &input, "SANDBOX_EXECUTION_FAILED", "`docker`");

    let codeplane = wrap_block("", block!("000-codeplane.tsx"));
    let invalid = "INVALID_INPUT";
    refused(world, "no-url", &codeplane, &[], invalid, "CODEPLANE_API_URL, CODEPLANE_API_KEY");
    // The variables are those of the server: those of a run reach its sandboxes.
    let key = ["--env", "CODEPLANE_API_KEY=key"];
    refused(world, "key-of-run", &codeplane, &key, invalid, "CODEPLANE_API_KEY");
}

fn refused(world: &World, run: &str, source: &str, more: &[&str], code: &str, expected_text: &str) {
    up(world, run, source, more).ends_with(1);
    let error = error(world, run);
    assert_eq!(error["code"], code, "{run}: {error}");
    assert!(error["message"].as_str().unwrap().contains(expected_text), "{run}: {error}");
    nothing_was_executed(world, run);
}

/// With the runtime of this host instead, the example does what the page describes.
fn changes_are_accepted_when_the_parent_says_so(world: &World) {
    if !has_zod(world, "changes_are_accepted_when_the_parent_says_so") {
        return;
    }
    world.write(
        "workflows/refactor.tsx",
        "/** @jsxImportSource smithers-orchestrator */\n\
         import { createSmithers } from \"smithers-orchestrator\";\n\
         const child = createSmithers({ result: {} });\n\
         const command = `echo done > refactored.txt; echo '{\"summary\": \"done\", \"patchCount\": 1}'`;\n\
         export const refactorWorkflow = child.smithers(() => (<child.Workflow name=\"refactor\">\n\
           <child.Task id=\"only\" output={child.outputs.result} agent={{ command }}>Refactor</child.Task>\n\
         </child.Workflow>));\n",
    );
    let source = wrap_block("", block!("000-diff-review.tsx"))
        .replace("runtime=\"docker\"\n    image=\"node:20-alpine\"", "runtime=\"bubblewrap\"");
    let input = |approve: bool| json!({ "filepath": "a.txt", "autoApprove": approve }).to_string();
    up(world, "asks", &source, &["--input", &input(false)]).ends_with(3);
    assert!(!world.has("refactored.txt"));
    let outcome = up(world, "approves", &source, &["--input", &input(true)]);
    outcome.succeeds();
    assert_eq!(outcome.json(), json!({ "summary": "done", "patchCount": 1 }));
    assert_eq!(world.read("refactored.txt"), "done\n");
    is_clean(world);
}

fn a_child_is_executed_inside_with_its_input(world: &World) {
    let import = child(world, "analyze", "analyzeWorkflow");
    let source = wrap_block(&format!("{IMPORT}{import}{OUTPUTS}"), block!("000-input.tsx"));
    let outcome = up(world, "r", &source, &["--input", "{\"repo\": \"here\", \"sha\": \"abc\"}"]);
    outcome.succeeds();
    let output = outcome.json();
    let given = json!({ "repo": "here", "ref": "abc", "checks": ["lint", "types", "tests"] });
    assert_eq!(output["given"], given);
    let recorded = events(world, "r");
    let expected =
        ["SandboxCreated", "SandboxShipped", "SandboxBundleReceived", "SandboxCompleted"];
    assert_eq!(types(&recorded), expected);
    assert_eq!(recorded[0]["runtime"], "bubblewrap", "{recorded:?}");
    // The host has no run for it: the run is inside the sandbox, and its id was reported.
    let runs = call(world, &["runs", "--json"]).json()["runs"].clone();
    assert_eq!(runs.as_array().unwrap().len(), 1, "{runs}");
    assert!(json!(recorded).to_string().contains(output["run"].as_str().unwrap()), "{recorded:?}");
    is_clean(world);
}

/// The command line of 000, with the program name that it has there.
fn one_sandbox_too_many_fails_at_once(world: &World) {
    symlink("stockade", world.path("bin/smithers")).unwrap();
    let providers = "const later = () => new Promise((done) => setTimeout(done, 2_000));\n\
         const provider = { id: \"slow\", async run() { await later(); return { status: \"finished\", output: {} }; } };";
    let source = format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import {{ createSmithers, Parallel }} from \"smithers-orchestrator\";\n{IMPORT}\n{providers}\n\
         const {{ Workflow, smithers, outputs }} = createSmithers({{ output: {{}} }});\n\
         export default smithers(() => (<Workflow name=\"w\"><Parallel>{{[1, 2, 3, 4, 5, 6].map((n) => (\n\
           <Sandbox id={{`box-${{n}}`}} provider={{provider}} retries={{0}} continueOnFail output={{outputs.output}} />\n\
         ))}}</Parallel></Workflow>));\n"
    );
    world.write("workflow.tsx", source);
    let path = format!("{}:/usr/bin:/bin", world.path("bin").display());
    let shell = world.on_host(Path::new("/bin/bash"), &["-c", block!("000-limit.sh")]);
    shell.env("PATH", path).finish().succeeds();
    let tasks = inspect(world, "latest")["tasks"].clone();
    let failed: Vec<&Value> =
        tasks.as_array().unwrap().iter().filter(|task| task["status"] == "failed").collect();
    assert_eq!(failed.len(), 1, "{tasks}");
    assert_eq!(failed[0]["error"]["code"], "SANDBOX_EXECUTION_FAILED");
    assert!(failed[0]["error"]["message"].as_str().unwrap().contains("limit reached: 5"));
}

/// The manifest of 000, written by a command inside, in the layout of 000.
fn the_manifest_in_its_layout_is_a_result(world: &World) {
    let manifest = block!("000-manifest.json");
    let write = format!("cat > /result/README.md <<'END'\n{manifest}END\n");
    let patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-alpha\n+beta\n";
    let rest = format!(
        "mkdir -p /result/patches /result/artifacts /result/logs\n\
         cat > /result/patches/change.patch <<'END'\n{patch}END\n\
         echo built > /result/artifacts/built.txt; echo '{{}}' > /result/logs/stream.ndjson\n"
    );
    let source = |command: &str| {
        let sandbox = format!(
            "<Sandbox id=\"box\" retries={{0}} command={{{}}} output={{outputs.result}} />",
            json!(command)
        );
        wrap_block(&format!("{IMPORT}{OUTPUTS}"), &sandbox)
    };
    up(world, "alone", &source(&write), &[]).ends_with(1);
    let refused = error(world, "alone");
    assert_eq!(refused["code"], "INVALID_INPUT", "{refused}");
    up(world, "whole", &source(&format!("{write}{rest}")), &[]).ends_with(3);

    let result = world.project.join(".smithers/sandboxes/whole/box/result");
    let shown = layout(block!("000-layout.txt"));
    assert_eq!(shown, ["README.md", "patches/", "artifacts/", "logs/", "logs/stream.ndjson"]);
    for path in &shown {
        assert_eq!(result.join(path).is_dir(), path.ends_with('/'), "{path}");
        assert!(result.join(path).exists(), "{path}");
    }
    let top = fs::read_dir(&result).unwrap().count();
    assert_eq!(
        top,
        shown.iter().filter(|path| path.trim_end_matches('/').find('/').is_none()).count()
    );
    assert_eq!(fs::read_to_string(result.join("README.md")).unwrap(), manifest);

    let recorded = events(world, "whole");
    let response =
        ["SandboxCreated", "SandboxShipped", "SandboxBundleReceived", "SandboxDiffReviewRequested"];
    assert_eq!(types(&recorded), response);
    assert!(json!(recorded).to_string().contains("run_abc123"), "{recorded:?}");
    call(world, &["approve", "whole", "box"]).succeeds();
    let run = finished_run(world, "whole");
    assert_eq!(run["run"]["output"], json!({ "summary": "Done" }), "{run}");
    assert_eq!(world.read("a.txt"), "beta\n");
    is_clean(world);
}

/// The paths of a layout that is drawn with indentation.
fn layout(drawn: &str) -> Vec<String> {
    let mut directory = String::new();
    let mut paths = Vec::new();
    for line in drawn.lines().skip(1) {
        let name = line.split_whitespace().next().unwrap();
        let is_below = line.starts_with("    ");
        paths.push(if is_below { format!("{directory}{name}") } else { name.to_owned() });
        if !is_below {
            name.clone_into(&mut directory);
        }
    }
    paths
}

/// The complete file of 001, with its child workflow inside a sandbox and at a provider.
fn complete_files_give_what_the_pages_say(world: &World) {
    if !has_zod(world, "complete_files_give_what_the_pages_say") {
        return;
    }
    let input = ["--input", "{\"prompt\": \"hi\"}"];
    let outcome = up(world, "complete", block!("001-complete.tsx"), &input);
    outcome.succeeds();
    assert_eq!(outcome.json(), json!({ "summary": "Processed: hi" }));

    let module = format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import {{ createSmithers }} from \"smithers-orchestrator\";\nimport {{ z }} from \"zod\";\n\
         const coder = {{ generate: ({{ prompt }}) => ({{ summary: prompt.split(\"\\n\")[0] }}) }};\n{}",
        block!("001-child.tsx")
    );
    world.write("generate-code.tsx", module);
    let imports = "import { generateCodeWorkflow } from \"./generate-code\";\n\
                   const outputs = { result: {} };";
    let inside = "<Sandbox id=\"generate\" workflow={generateCodeWorkflow} \
                  input={{ prompt: ctx.input.prompt }} output={outputs.result} />\n";
    let outcome = up(world, "inside", &wrap_block(&format!("{IMPORT}{imports}"), inside), &input);
    outcome.succeeds();
    assert_eq!(outcome.json(), json!({ "summary": "Generate code for: hi" }));

    let remote = "const createRemoteVm = async ({ input }) => ({ id: \"vm-1\", workspaceId: \"ws-1\",\n\
         readJson: async (path) => ({ path, input }), diffBundle: async () => undefined });";
    let basic = wrap_block(&format!("{IMPORT}{imports}\n{remote}"), block!("001-basic.tsx"));
    let outcome = up(world, "basic", &basic, &input);
    outcome.succeeds();
    let expected =
        json!({ "path": "/workspace/smithers-result.json", "input": { "prompt": "hi" } });
    assert_eq!(outcome.json(), expected);
    let recorded = json!(events(world, "basic")).to_string();
    assert!(recorded.contains("vm-1"), "{recorded}");
}

fn providers_are_told_how_the_network_is_reached(world: &World) {
    let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let import = child(world, "review", "reviewWorkflow");
    let before = format!(
        "{IMPORT}{import}{OUTPUTS}\n\
         const remoteVmProvider = {{ id: \"remote-vm\", run(request) {{\n\
           return {{ status: \"finished\", output: {{ egress: request.egress, raw: request.config.egress }} }};\n\
         }} }};"
    );
    let source = wrap_block(&before, block!("001-egress.tsx"));
    let variable = format!("IRON_PROXY_CA_PEM={pem}");
    let outcome = up(world, "r", &source, &["--input", "{\"ticketId\": 7}", "--env", &variable]);
    outcome.succeeds();
    let output = outcome.json();
    let proxy = "http://127.0.0.1:8080";
    for (path, expected) in [
        ("/egress/env/ANTHROPIC_API_KEY", json!("sk-proxy-anthropic")),
        ("/egress/httpsProxy", json!(proxy)),
        ("/egress/httpProxy", json!(proxy)),
        ("/egress/noProxy", json!("127.0.0.1,localhost")),
        ("/egress/caCertPem", json!(pem)),
        ("/egress/secretBindings/sk-proxy-anthropic", json!("anthropic")),
        ("/raw/noProxy", json!(["127.0.0.1", "localhost"])),
        ("/raw/caCertPem", json!(pem)),
    ] {
        assert_eq!(output.pointer(path), Some(&expected), "{path}: {output}");
    }
    let request = ".smithers/sandboxes/r/review/request-bundle";
    assert_eq!(world.read(&format!("{request}/.smithers/egress/ca.crt")), pem);
    let stored = json!(events(world, "r")).to_string();
    for secret in ["sk-proxy-anthropic", "AAAA", "\\\"anthropic\\\""] {
        assert!(!stored.contains(secret), "{secret}: {stored}");
    }
}

/// A file whose provider ends with one of the results of 001.
fn with_provider(result: &str) -> String {
    let before = format!(
        "{IMPORT}{OUTPUTS}\nconst provider = {{ id: \"vm\", async run(request) {{\n\
         const vmId = \"vm-7\";\n{result}\n}} }};"
    );
    let sandbox = "<Sandbox id=\"box\" provider={provider} retries={0} output={outputs.result} />";
    wrap_block(&before, sandbox)
}

fn a_structured_result_with_a_diff_is_reviewed(world: &World) {
    world.write("src/app.ts", "export const app = 1;\n");
    // Its diff is an ellipsis: that it cannot be applied is reported before a decision is
    // requested.
    let block = block!("001-structured.ts");
    up(world, "ellipsis", &with_provider(block), &[]).ends_with(1);
    let refused = error(world, "ellipsis");
    assert_eq!(refused["code"], "INVALID_INPUT", "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("src/app.ts"), "{refused}");
    // The same block with a diff instead, otherwise unchanged.
    let diff = "\\n--- a/src/app.ts\\n+++ b/src/app.ts\\n@@ -1 +1 @@\\n\
                -export const app = 1;\\n+export const app = 2;\\n";
    let source = with_provider(&block.replace("\\n...", diff));
    up(world, "diff", &source, &[]).ends_with(3);
    assert_eq!(world.read("src/app.ts"), "export const app = 1;\n");
    call(world, &["approve", "diff", "box"]).succeeds();
    let run = finished_run(world, "diff");
    assert_eq!(run["run"]["output"], json!({ "summary": "done" }), "{run}");
    assert_eq!(world.read("src/app.ts"), "export const app = 2;\n");
    assert!(json!(events(world, "diff")).to_string().contains("vm-7"));
}

/// The only directory of that name, which one test at a time can use.
struct ResultBundle(PathBuf);

impl ResultBundle {
    fn new() -> Option<Self> {
        let path = PathBuf::from("/tmp/smithers-result-bundle");
        let tries = 1_200;
        for _ in 0..tries {
            match fs::create_dir(&path) {
                Ok(()) => return Some(Self(path)),
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(50)),
            }
        }
        None
    }
}

impl Drop for ResultBundle {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn a_bundle_that_a_provider_wrote_is_taken_from_its_path(world: &World) {
    let Some(bundle) = ResultBundle::new() else {
        let reason = "somebody has /tmp/smithers-result-bundle";
        skip("smithers_pages::a_bundle_that_a_provider_wrote_is_taken_from_its_path", reason);
        return;
    };
    world.chown(&bundle.0);
    let manifest = json!({ "status": "finished", "outputs": { "written": true } });
    world.plant(&bundle.0.join("README.md"), &manifest.to_string());
    world.plant(&bundle.0.join("artifacts/large.bin"), "x");
    let source = with_provider(block!("001-bundle-path.ts"));
    let outcome = up(world, "r", &source, &[]);
    outcome.succeeds();
    assert_eq!(outcome.json(), json!({ "written": true }));
    assert!(json!(events(world, "r")).to_string().contains("vm-7"));
    assert_eq!(world.read(".smithers/sandboxes/r/box/collected/artifacts/large.bin"), "x");
    // A symbolic link in its place is not followed.
    fs::rename(&bundle.0, world.path("moved")).unwrap();
    symlink(world.path("moved"), &bundle.0).unwrap();
    up(world, "link", &source, &[]).ends_with(1);
    assert_eq!(error(world, "link")["code"], "TOOL_PATH_ESCAPE");
    fs::remove_file(&bundle.0).unwrap();
}

fn a_registered_provider_is_meant_by_its_id(world: &World) {
    let import = child(world, "inner", "child");
    let before = format!(
        "{IMPORT}{import}{OUTPUTS}\n\
         const provider = {{ id: \"reusable\", run: (request) => ({{ status: \"finished\", \
         output: {{ id: request.sandboxId, type: typeof unregister }} }}) }};"
    );
    let source = wrap_block(&before, block!("001-register.tsx"));
    let outcome = up(world, "r", &source, &[]);
    outcome.succeeds();
    assert_eq!(outcome.json(), json!({ "id": "generate", "type": "function" }));
}

as_root_and_as_user![
    runtimes_that_are_not_there_are_refused_by_name,
    changes_are_accepted_when_the_parent_says_so,
    a_child_is_executed_inside_with_its_input,
    one_sandbox_too_many_fails_at_once,
    the_manifest_in_its_layout_is_a_result,
    complete_files_give_what_the_pages_say,
    providers_are_told_how_the_network_is_reached,
    a_structured_result_with_a_diff_is_reviewed,
    a_bundle_that_a_provider_wrote_is_taken_from_its_path,
    a_registered_provider_is_meant_by_its_id,
];
