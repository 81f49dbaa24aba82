//! The built-in modules that a workflow file can import.

use std::collections::BTreeMap;

use stockade_script::{LibraryModule, LibrarySet, Module};

/// The specifiers that resolve to the built-in module; the last one is the later name of Smithers' package.
pub(super) const NAMES: [&str; 3] = ["smithers-orchestrator", "stockade", "smthrs"];
/// The scope of the packages that upstream's package consists of.
const SCOPE: &str = "@smithers-orchestrator";
/// The packages of that scope whose exports the built-in module has.
const PACKAGES: [&str; 8] =
    ["agents", "components", "driver", "engine", "errors", "graph", "sandbox", "scorers"];

/// The module whose functions the host calls.
pub(super) const START: &str = "stockade:start";
/// The specifier of the workflow file in that module.
pub(super) const ENTRY: &str = "stockade:entry";
/// The module that sets `process.env`.
pub(super) const ENVIRONMENT: &str = "stockade:environment";
/// The module that lists all imported copies of `zod`.
pub(super) const ZODS: &str = "stockade:zods";

/// The global function with which the library sends the messages of a call.
pub(super) const SEND_FUNCTION: &str = "stockade.say";

const HOST: &str = "stockade:host";
const KIT: &str = "stockade:kit";
const PATH: &str = "stockade:path";
const SANDBOX: &str = "stockade:sandbox";
const SMITHERS: &str = "stockade:smithers";

/// The module that the program of a `<Sandbox>` imports to find its workflow.
pub(super) const CHILD: &str = "stockade:child";

/// The modules of the library, by name, each before the modules that import it.
const MODULES: [(&str, &str); 27] = [
    (HOST, include_str!("library/host.js")),
    ("stockade:absent", include_str!("library/absent.js")),
    ("stockade:agents", include_str!("library/agents.js")),
    ("stockade:aspects", include_str!("library/aspects.js")),
    ("stockade:answers", include_str!("library/answers.js")),
    ("stockade:boundaries", include_str!("library/boundaries.js")),
    ("stockade:components", include_str!("library/components.js")),
    ("stockade:composites", include_str!("library/composites.js")),
    ("stockade:helpers", include_str!("library/helpers.js")),
    (PATH, include_str!("library/path.js")),
    ("stockade:models", include_str!("library/models.js")),
    ("stockade:position", include_str!("library/position.js")),
    ("stockade:programs", include_str!("library/programs.js")),
    ("stockade:prompts", include_str!("library/prompts.js")),
    ("stockade:schemas", include_str!("library/schemas.js")),
    ("stockade:scorers", include_str!("library/scorers.js")),
    ("stockade:values", include_str!("library/values.js")),
    ("stockade:elements", include_str!("library/elements.js")),
    ("stockade:places", include_str!("library/places.js")),
    (SMITHERS, include_str!("library/smithers.js")),
    ("stockade:keys", include_str!("library/keys.js")),
    ("stockade:differences", include_str!("library/differences.js")),
    ("stockade:context", include_str!("library/context.js")),
    (SANDBOX, include_str!("library/sandbox.js")),
    (KIT, include_str!("library/kit.js")),
    ("stockade:render", include_str!("library/render.js")),
    (CHILD, include_str!("library/child.js")),
];

/// The modules of the library that are the same for every program. They can import each other.
pub(super) fn set() -> LibrarySet {
    let names = || MODULES.iter().map(|(name, _)| (*name).to_owned());
    let imports: BTreeMap<String, String> = names().zip(names()).collect();
    let module = |(name, code): &(&str, &str)| LibraryModule {
        specifier: (*name).to_owned(),
        source: (*code).to_owned(),
        imports: imports.clone(),
        exported: false,
    };
    LibrarySet { modules: MODULES.iter().map(module).collect(), ..LibrarySet::default() }
}

/// The source text of a module of the library.
pub(super) fn code(name: &str) -> Option<&'static str> {
    MODULES.iter().find(|(known, _)| *known == name).map(|(_, code)| *code)
}

/// The module whose functions the host calls, which imports the program; also its other imports.
pub(super) fn start() -> (Module, impl Iterator<Item = &'static str>) {
    let made = [ENVIRONMENT, ZODS].into_iter();
    let imports = MODULES.iter().map(|(name, _)| *name).chain(made);
    (Module::plain(START, include_str!("library/start.js").to_owned()), imports)
}

/// The built-in module that a specifier resolves to.
pub(super) fn built_in(specifier: &str) -> Option<&'static str> {
    // The only module of Node.js that needs nothing of the host.
    if matches!(specifier, "node:path" | "node:path/posix" | "path") {
        return Some(PATH);
    }
    let (name, part) = specifier.split_once('/').unwrap_or((specifier, ""));
    if name == SCOPE {
        return PACKAGES.contains(&package_of(part)).then_some(SMITHERS);
    }
    let is_ours = NAMES.contains(&name);
    if is_ours && part == "child" {
        return Some(CHILD);
    }
    (is_ours && PARTS.contains(&part)).then_some(SMITHERS)
}

fn package_of(part: &str) -> &str {
    part.split_once('/').map_or(part, |(package, _)| package)
}

/// The parts of the built-in module that have names of their own; they all have the same exports.
const PARTS: [&str; 9] = [
    "",
    "create",
    "jsx-runtime",
    "jsx-dev-runtime",
    "sandbox",
    "tools",
    "scorers",
    "components",
    "mdx-plugin",
];

/// Why a part of the built-in module does not exist; `None` for another specifier.
pub(super) fn missing_part(specifier: &str) -> Option<String> {
    let (name, part) = specifier.split_once('/')?;
    let known: Vec<String> = if name == SCOPE {
        PACKAGES.iter().map(|package| format!("\"{SCOPE}/{package}\"")).collect()
    } else if NAMES.contains(&name) {
        let parts = PARTS.iter().skip(1).map(|part| format!("\"{name}/{part}\""));
        std::iter::once(format!("\"{name}\"")).chain(parts).collect()
    } else {
        return None;
    };
    Some(format!(
        "\"{specifier}\" is not a part of Stockade: \"{part}\" needs an engine on Node.js, which is planned; there are {}",
        known.join(", ")
    ))
}

/// Why the built-in module does not have an export of upstream's; `None` for another name.
pub(super) fn missing_export(name: &str) -> Option<String> {
    let names = include_str!("library/upstream-names.txt");
    names.lines().any(|known| known == name).then(|| {
        format!(
            "`{name}` is not a part of Stockade: it needs an engine on Node.js, which is planned"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exports of all published versions of Smithers, its subpaths and packages, that are here.
    const HERE: &str = "
        AmpAgent AnthropicAgent AntigravityAgent Approval ApprovalGate Aspects Branch CheckSuite
        ClassifyAndRoute ClaudeCodeAgent CodexAgent ContentPipeline ContinueAsNew CursorAgent Debate
        DecisionTable DelegationChain DriftDetector EscalationChain ForgeAgent Fragment
        GatherAndSynthesize GeminiAgent HermesAgent HermesCliAgent HumanTask Kanban KimiAgent Loop
        Memory MergeQueue Monitor OmpAgent OpenAIAgent OpenClawAgent OpenCodeAgent Optimizer Panel
        Parallel PiAgent Poller PoolAgent Ralph ReviewLoop Runbook SANDBOX_PROVIDER_REQUEST_ENV
        SANDBOX_PROVIDER_RESULT_ENV Saga SagaStep Sandbox ScanFixVerify Sequence Sidecar Signal
        SmithersError SmithersErrorInstance Subflow SuperSmithers Supervisor TUI Task Timer Trellis
        TryCatchFinally UI VibeAgent WaitForEvent Workflow Worktree approvalDecisionSchema
        approvalRankingSchema approvalSelectionSchema bash bashTool continueAsNew
        createCommandSandboxProvider createScorer createSmithers defineTool edit editFileTool
        errorToJson executeChildWorkflow faithfulnessScorer grep grepTool isSmithersError jsx jsxDEV
        jsxs latencyScorer llmJudge mdxPlugin parseSandboxProviderResult read readFileTool
        redactSandboxProviderValue registerSandboxProvider relevancyScorer runWorkflow
        schemaAdherenceScorer tools toxicityScorer uploadEgressCaToSession usePatched write
        writeFileTool writeSandboxProviderRequestFile
    ";

    #[test]
    fn a_name_of_upstream_is_here_or_is_refused_by_name() {
        let source = code(SMITHERS).unwrap().to_owned();
        let file = stockade_script::SourceFile { path: "smithers.js".to_owned(), source };
        let ours = stockade_script::survey(&file).unwrap().exports;
        for name in include_str!("library/upstream-names.txt").lines() {
            assert!(missing_export(name).unwrap().contains("Node.js"), "{name}");
            assert!(!ours.iter().any(|known| known == name), "{name} is here");
        }
        for name in HERE.split_whitespace() {
            assert!(ours.iter().any(|known| known == name), "{name} is neither here nor refused");
            assert_eq!(missing_export(name), None);
        }
    }

    #[test]
    fn the_packages_of_upstream_are_the_built_in_module() {
        assert_eq!(built_in("@smithers-orchestrator/components"), Some(SMITHERS));
        assert_eq!(built_in("@smithers-orchestrator/errors/SmithersError"), Some(SMITHERS));
        assert_eq!(built_in("smithers-orchestrator/create"), Some(SMITHERS));
        assert_eq!(built_in("smthrs/jsx-runtime"), Some(SMITHERS));
        assert_eq!(built_in("@smithers-orchestrator/gateway-react"), None);
        let why = missing_part("@smithers-orchestrator/gateway-react").unwrap();
        assert!(
            why.contains("planned") && why.contains("\"@smithers-orchestrator/agents\""),
            "{why}"
        );
        assert_eq!(missing_part("@other/agents"), None);
    }
}
