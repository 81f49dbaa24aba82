//! Programs that contain their modules: the child workflow of a `<Sandbox>` is sent to the sandbox as
//! such a program. It has two files: `bundle.tsx`, which states where the workflow is created, and
//! `bundle.json`, which holds all modules that it imports, as they were when the run of the `<Sandbox>`
//! started. The names of modules are never used as paths.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::Path;

use serde_json::Value;
use stockade_script::SourceFile;

use super::sources::Sources;

/// The file to run.
const ENTRY: &str = "bundle.tsx";
/// The name of the entry among the modules. No name of a user's module starts like this.
const ENTRY_NAME: &str = "stockade:bundle.tsx";
/// The file that holds the modules.
const MODULES: &str = "bundle.json";
/// The first line of the entry file, which marks a portable program.
const MARKER: &str = "// stockade: modules in bundle.json\n";
/// The module with the states of workflows that are rendered again.
const STATES: &str = "stockade:states.json";
/// The largest file that is read.
const MAX_BYTES: u64 = 128 << 20;

/// Where a program creates a workflow.
#[derive(Debug)]
pub(crate) enum WorkflowOrigin {
    /// The default export of the program's file.
    Entry,
    /// A workflow that a module created while it was evaluated.
    FromModule {
        /// The module.
        module: String,
        /// The index of the workflow among those that the module created.
        number: u32,
    },
    /// The workflow of an element in the rendering of another workflow.
    Rendered {
        /// The other workflow.
        by: Box<Self>,
        /// The element's id.
        node: String,
        /// The state of the other workflow: its input, and the rows of the tables that it depends on.
        state: Value,
    },
}

impl WorkflowOrigin {
    /// An expression that creates the workflow again; adds the modules and the states that the
    /// expression needs.
    fn expression(&self, modules: &mut BTreeSet<String>, states: &mut Vec<Value>) -> String {
        match self {
            Self::Entry => "entry.default".to_owned(),
            Self::FromModule { module, number } => {
                modules.insert(module.clone());
                format!("made({}, {number})", Value::from(module.as_str()))
            }
            Self::Rendered { by, node, state } => {
                let by = by.expression(modules, states);
                states.push(state.clone());
                let (node, number) = (Value::from(node.as_str()), states.len() - 1);
                format!("rendered({by}, {node}, states[{number}])")
            }
        }
    }

    fn starts_at_entry(&self) -> bool {
        match self {
            Self::Entry => true,
            Self::FromModule { .. } => false,
            Self::Rendered { by, .. } => by.starts_at_entry(),
        }
    }
}

/// A portable program that exports a workflow of another program, with the modules that it needs: a map
/// from names to files.
pub(crate) fn pack(sources: &Sources, origin: &WorkflowOrigin) -> BTreeMap<String, Vec<u8>> {
    let (mut modules, mut states) = (BTreeSet::new(), Vec::new());
    let workflow = origin.expression(&mut modules, &mut states);
    let mut text = format!("{MARKER}import {{ made, rendered }} from \"stockade/child\";\n");
    let mut links = Vec::new();
    let mut import = |line: String, specifier: &str, module: &str| {
        text.push_str(&line);
        links.push((ENTRY_NAME.to_owned(), specifier.to_owned(), module.to_owned()));
    };
    if origin.starts_at_entry() {
        import("import * as entry from \"./entry\";\n".to_owned(), "./entry", &sources.entry);
    }
    for (number, module) in modules.iter().enumerate() {
        let specifier = format!("./module-{number}");
        import(format!("import \"{specifier}\";\n"), &specifier, module);
    }
    let mut files = BTreeMap::new();
    if !states.is_empty() {
        import("import states from \"./states.json\";\n".to_owned(), "./states.json", STATES);
        files.insert(STATES.to_owned(), Value::Array(states).to_string());
    }
    text.push_str(&format!("export default {workflow};\n"));
    let mut waiting: Vec<&str> = links.iter().map(|(.., module)| module.as_str()).collect();
    let mut needed = BTreeSet::new();
    while let Some(name) = waiting.pop() {
        if needed.insert(name.to_owned()) {
            let imported = sources.links.iter().filter(|(importer, ..)| importer == name);
            waiting.extend(imported.map(|(.., module)| module.as_str()));
        }
    }
    let known = sources.files.iter().filter(|(name, _)| needed.contains(*name));
    files.extend(known.map(|(name, source)| (name.clone(), source.clone())));
    let known = sources.links.iter().filter(|(importer, ..)| needed.contains(importer));
    links.extend(known.cloned());
    let sources = Sources { entry: ENTRY_NAME.to_owned(), files, links };
    let modules = serde_json::to_vec(&sources).unwrap_or_default();
    BTreeMap::from([(ENTRY.to_owned(), text.into_bytes()), (MODULES.to_owned(), modules)])
}

/// The portable program in a file; `None` for any other file.
pub(super) fn read(file: &Path) -> Result<Option<(Sources, SourceFile)>, String> {
    let cannot = |error: std::io::Error| format!("cannot read {}: {error}", file.display());
    let is_named = file.file_name().is_some_and(|name| name == ENTRY);
    if !is_named {
        return Ok(None);
    }
    let source = read_file(file).map_err(cannot)?;
    if !source.starts_with(MARKER) {
        return Ok(None);
    }
    let modules = file.with_file_name(MODULES);
    let text = read_file(&modules)
        .map_err(|error| format!("cannot read {}: {error}", modules.display()))?;
    let mut sources: Sources = serde_json::from_str(&text)
        .map_err(|error| format!("{} contains no modules: {error}", modules.display()))?;
    let entry = SourceFile { path: ENTRY_NAME.to_owned(), source };
    sources.entry.clone_from(&entry.path);
    sources.files.insert(entry.path.clone(), entry.source.clone());
    Ok(Some((sources, entry)))
}

fn read_file(file: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(file)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}
