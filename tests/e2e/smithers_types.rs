//! The types on Smithers' pages about `<Sandbox>`: each of their props is accepted, each member of
//! a request exists, editors know all of them, and the blocks are those of the pages.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{World, skip};
use crate::sandbox::inspect;
use crate::smithers_pages::{block, child, up, wrap_block};

const PROPS: &str = block!("001-props.ts");
const PROVIDER: &str = block!("001-provider.ts");
const DECLARATIONS: &str = include_str!("../../crates/cli/src/first/stockade.d.ts");

/// The members of the type that starts with this line, and whether each is optional.
fn members(text: &str, head: &str) -> BTreeMap<String, bool> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut lines = text.lines().skip_while(|line| line.trim() != head);
    let around = indent(lines.next().unwrap_or_else(|| panic!("there is no {head}")));
    let inner = lines.take_while(|line| line.trim().is_empty() || indent(line) > around);
    let member = |line: &str| {
        let line = line.trim_start();
        let end = line.find(|letter: char| !letter.is_ascii_alphanumeric())?;
        let is_optional = match line.get(end..end + 1)? {
            "?" => true,
            ":" | "(" => false,
            _ => return None,
        };
        Some((line[..end].to_owned(), is_optional))
    };
    inner.filter(|line| indent(line) == around + 2).filter_map(member).collect()
}

#[test]
fn editors_know_what_the_pages_name() {
    let mut sandbox = members(DECLARATIONS, "interface Common {");
    sandbox.extend(members(DECLARATIONS, "export interface SandboxProps extends Common {"));
    let declared = |head: &str| members(DECLARATIONS, head);
    for (page, head, declared) in [
        (PROPS, "type SandboxProps = {", sandbox.clone()),
        (PROPS, "egress?: {", declared("export interface SandboxEgressConfig {")),
        (PROPS, "egress?: {", declared("egress?: {")),
        (PROPS, "workspace?: {", declared("export interface SandboxWorkspaceSpec {")),
        (
            PROVIDER,
            "type SandboxProviderRequest = {",
            declared("export interface SandboxProviderRequest {"),
        ),
        (PROVIDER, "type SandboxProvider = {", declared("export interface SandboxProvider {")),
    ] {
        let named = members(page, head);
        assert!(named.len() > 2, "{head} {named:?}");
        for (name, is_optional) in &named {
            assert_eq!(declared.get(name), Some(is_optional), "{name} of {head}");
        }
    }
    // Names that can be imported according to 001.
    for name in [
        "SandboxProvider",
        "SandboxProviderRequest",
        "SandboxProviderResult",
        "SandboxDiffBundleLike",
        "SandboxEgressConfig",
        "ExecuteSandboxOptions",
        "SandboxWorkflow",
        "SandboxChildWorkflowDefinition",
        "ExecuteSandboxChildWorkflow",
    ] {
        let is_there = ["export interface", "export type"]
            .iter()
            .any(|word| DECLARATIONS.contains(&format!("{word} {name} ")));
        assert!(is_there, "{name}");
    }
    assert!(DECLARATIONS.contains("export function registerSandboxProvider("));
}

/// Each prop of 001 with an attribute that uses it.
const WRITTEN: &[(&str, &str)] = &[
    ("id", ""),
    ("output", ""),
    ("workflow", "workflow={inner}"),
    ("input", "input={{ a: 1 }}"),
    ("provider", ""),
    ("runtime", "runtime=\"bubblewrap\""),
    ("allowNetwork", "allowNetwork={true}"),
    ("reviewDiffs", "reviewDiffs={false}"),
    ("autoAcceptDiffs", "autoAcceptDiffs"),
    ("allowNested", "allowNested={false}"),
    ("image", "image=\"node:20-alpine\""),
    ("env", "env={{ A: \"b\" }}"),
    (
        "egress",
        "egress={{ env: { A: \"b\" }, httpProxy: \"http://127.0.0.1:1\", httpsProxy: \
         \"http://127.0.0.1:1\", noProxy: \"a,b\", caCertPath: \"/ca.crt\", secretBindings: { a: \"b\" } }}",
    ),
    ("ports", "ports={[{ host: 3000, container: 3000 }]}"),
    ("volumes", "volumes={[{ host: \"/usr\", container: \"/data\", readonly: true }]}"),
    ("memoryLimit", "memoryLimit=\"512m\""),
    ("cpuLimit", "cpuLimit=\"0.5\""),
    ("command", "command=\"node dist/runner.js\""),
    (
        "workspace",
        "workspace={{ name: \"n\", snapshotId: \"s\", idleTimeoutSecs: 300, persistence: \"sticky\" }}",
    ),
    ("skipIf", "skipIf={false}"),
    ("timeoutMs", "timeoutMs={60_000}"),
    ("heartbeatTimeoutMs", "heartbeatTimeoutMs={60_000}"),
    ("heartbeatTimeout", "heartbeatTimeout={60_000}"),
    ("retries", "retries={1}"),
    ("retryPolicy", "retryPolicy={{ backoff: \"fixed\", initialDelayMs: 1 }}"),
    ("continueOnFail", "continueOnFail"),
    ("cache", "cache={{ version: 1 }}"),
    ("dependsOn", "dependsOn={[\"p-id\"]}"),
    ("needs", "needs={{ before: \"p-id\" }}"),
    ("label", "label=\"Label\""),
    ("meta", "meta={{ a: 1 }}"),
    ("key", "key=\"k\""),
    ("children", ""),
];

fn every_prop_of_the_page_is_accepted(world: &World) {
    let named = members(PROPS, "type SandboxProps = {");
    let written: BTreeMap<&str, &str> = WRITTEN.iter().copied().collect();
    assert_eq!(written.keys().collect::<Vec<_>>(), named.keys().collect::<Vec<_>>());
    let import = child(world, "inner", "inner");
    let sandboxes: String = WRITTEN
        .iter()
        .map(|(name, attributes)| {
            let content = if *name == "children" { "<Task id=\"t\" output={outputs.result}>{{ n: 1 }}</Task>" } else { "" };
            format!("<Bound id=\"p-{name}\" output={{outputs.result}} provider={{provider}} {attributes}>{content}</Bound>\n")
        })
        .collect();
    // The block itself is where files have imports and types.
    let before = format!(
        "{PROPS}{import}const outputs = {{ result: {{}} }};\n\
         const provider = {{ id: \"p\", run: (request) => ({{ status: \"finished\", output: {{ config: request.config }} }}) }};\n\
         const {{ Task, Sandbox: Bound }} = createSmithers(outputs);\n"
    );
    let source = wrap_block(&before, &format!("<>\n{sandboxes}</>"));
    up(world, "r", &source, &[]).succeeds();
    let tasks = inspect(world, "r")["tasks"].clone();
    let finished = tasks.as_array().unwrap().iter().filter(|task| task["status"] == "finished");
    let mut finished: Vec<&str> =
        finished.map(|task| task["id"].as_str().unwrap().strip_prefix("p-").unwrap()).collect();
    finished.sort_unstable();
    assert_eq!(finished, named.keys().collect::<Vec<_>>(), "{tasks}");
}

fn every_member_of_a_request_is_there(world: &World) {
    let import = child(world, "inner", "inner");
    let before = format!(
        "import {{ Sandbox }} from \"smithers-orchestrator\";\n{PROVIDER}{import}\
         const outputs = {{ result: {{}} }};\n\
         const types = (request) => Object.fromEntries(Object.entries(request).map(([name, value]) => [name, typeof value]));\n\
         const provider: SandboxProvider = {{ id: \"p\",\n\
           async run(request) {{ return {{ status: \"finished\", output: {{ ...types(request), exact: request.input, aborted: request.signal.aborted }} }}; }},\n\
           cleanup(request) {{ console.log(`cleaned ${{Object.keys(types(request)).length}}`); }} }};"
    );
    let sandbox = "<Sandbox id=\"box\" provider={provider} workflow={inner} input={[1, \"two\", null]} \
                   egress={{ env: { A: \"b\" } }} allowNetwork={false} output={outputs.result} />\n";
    let outcome = up(world, "r", &wrap_block(&before, sandbox), &[]);
    outcome.succeeds();
    let output = outcome.json();
    let named = members(PROVIDER, "type SandboxProviderRequest = {");
    for name in named.keys() {
        let expected = match name.as_str() {
            "executeChildWorkflow" | "heartbeat" => "function",
            "allowNetwork" => "boolean",
            "maxOutputBytes" | "toolTimeoutMs" => "number",
            "input" | "workflow" | "parentWorkflow" | "egress" | "config" | "signal" => "object",
            _ => "string",
        };
        assert_eq!(output[name], expected, "{name}: {output}");
    }
    assert_eq!((&output["exact"], &output["aborted"]), (&json!([1, "two", null]), &json!(false)));
}

as_root_and_as_user![every_prop_of_the_page_is_accepted, every_member_of_a_request_is_there];

/// The blocks of 000 in their order, each between fences.
const OF_000: [&str; 9] = [
    block!("000-import.tsx"),
    block!("000-basic-docker.tsx"),
    block!("000-codeplane.tsx"),
    block!("000-diff-review.tsx"),
    block!("000-layout.txt"),
    block!("000-manifest.json"),
    block!("000-limit.sh"),
    block!("000-command.tsx"),
    block!("000-input.tsx"),
];
/// The blocks of 001 in their order, each of whole lines.
const OF_001: [&str; 9] = [
    PROPS,
    block!("001-egress.tsx"),
    block!("001-basic.tsx"),
    block!("001-child.tsx"),
    block!("001-complete.tsx"),
    PROVIDER,
    block!("001-register.tsx"),
    block!("001-bundle-path.ts"),
    block!("001-structured.ts"),
];

#[test]
fn the_blocks_are_those_of_the_pages() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/seeds");
    let page = |start: &str| {
        let named = |path: &Path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start))
        };
        let files = fs::read_dir(&pages).ok()?;
        let found = files.filter_map(|file| Some(file.ok()?.path())).find(|path| named(path))?;
        fs::read_to_string(found).ok()
    };
    let (Some(first), Some(second)) = (page("000_"), page("001_")) else {
        skip(
            "smithers_types::the_blocks_are_those_of_the_pages",
            "the pages are not beside this clone",
        );
        return;
    };
    let mut fenced = Vec::new();
    let mut block: Option<String> = None;
    for line in first.split_inclusive('\n') {
        match &mut block {
            None if line.starts_with("```") => block = Some(String::new()),
            Some(_) if line.starts_with("```") => fenced.extend(block.take()),
            Some(text) => text.push_str(line),
            None => {}
        }
    }
    assert_eq!(fenced, OF_000);
    let mut rest = second.as_str();
    for block in OF_001 {
        let at = rest.find(&format!("\n{block}")).unwrap_or_else(|| panic!("not there: {block}"));
        rest = &rest[at + 1 + block.len()..];
    }
    let _: Value = serde_json::from_str(block!("000-manifest.json")).unwrap();
}
