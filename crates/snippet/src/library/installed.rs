//! A library set from a `node_modules` directory: the packages in it that snippets may import, with
//! all their own imports. Unavailable packages are omitted, with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use stockade_script::{
    LibraryModule, LibraryPackage, LibrarySet, SourceFile, survey, uses_free_name,
};

use super::built_in::add_core;
use super::error::Error;
use super::resolve::{File, Resolver, split};
use super::tree::Tree;
use super::{CORE, SYSTEMS, systems};
use crate::imports::Imports;

/// The stack on which files are parsed: the output of bundlers is deeply nested.
const STACK_BYTES: usize = 256 << 20;

/// The prefix of a file that reads `process.env.NODE_ENV`, which bundlers define for browsers: a
/// `process` of its own, with an empty environment.
const NODE_ENV_SHIM: &str = "const process = { env: {} }; ";

/// The prefix of library file names; no file of a payload can have such a name.
const PREFIX: &str = "library:";

/// Which modules of the packages are read.
#[derive(Debug, Clone, Copy)]
pub enum Selection<'w> {
    /// All that they export by name.
    All,
    /// The targets of these imports, if they are allowed.
    Imports(&'w BTreeSet<String>),
}

/// Reads the allowed packages of a directory. If the directory has no `@directive-run/core`, the
/// small built-in one is used.
///
/// # Errors
/// If the directory cannot be read, has none of the packages, or lacks one that was requested by
/// name; if there is more data than the limit.
pub fn load_installed(
    directory: &Path,
    imports: &Imports,
    selection: Selection<'_>,
) -> Result<LibrarySet, Error> {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    std::thread::scope(|scope| {
        let reading = thread.spawn_scoped(scope, || read(directory, imports, selection));
        match reading.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(read)) => read,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(error) => Err(Error::Open(directory.to_owned(), error)),
        }
    })
}

fn read(
    directory: &Path,
    imports: &Imports,
    selection: Selection<'_>,
) -> Result<LibrarySet, Error> {
    let tree = Tree::open(directory)?;
    let mut loader = Loader { resolver: Resolver::new(tree), nodes: BTreeMap::new() };
    let mut set = LibrarySet { name: "installed".to_owned(), ..LibrarySet::default() };
    let mut entries = BTreeMap::new();
    let mut is_empty = true;
    for (allowed, is_required) in imports.packages() {
        let (name, named) = split(&allowed).ok_or_else(|| Error::NotInstalled(allowed.clone()))?;
        let found = match loader.resolver.package("", name) {
            Err(error) if error.affects_all() || is_required => return Err(error),
            Ok(None) if is_required => return Err(Error::NotInstalled(name.to_owned())),
            found => {
                found.and_then(|found| found.ok_or_else(|| Error::NotInstalled(name.to_owned())))
            }
        };
        is_empty &= found.is_err();
        let subpaths = match (selection, &found) {
            (Selection::Imports(selection), _) => selection
                .iter()
                .filter_map(|import| package_subpath(import, name, &allowed))
                .collect(),
            (Selection::All, Ok(found)) if named == "." => found.manifest.subpaths(),
            (Selection::All, _) => vec![named],
        };
        for subpath in &subpaths {
            let specifier = format!("{name}{}", subpath.trim_start_matches('.'));
            let file = match &found {
                Ok(found) => {
                    loader.resolver.exported(found, name, subpath).map_err(|e| error_chain(&e))
                }
                Err(error) => Err(error_chain(error)),
            };
            match file {
                Ok(file) => drop(entries.insert(specifier, file)),
                Err(why) => drop(set.absent.insert(specifier, why)),
            }
        }
        if let Ok(found) = found
            && !subpaths.is_empty()
            && !set.packages.iter().any(|package| package.name == name)
        {
            let version = found.manifest.version.clone().unwrap_or_else(|| "unknown".to_owned());
            set.packages.push(LibraryPackage { name: name.to_owned(), version: Some(version) });
        }
    }
    if is_empty {
        return Err(Error::Empty(directory.to_owned()));
    }
    loader.emit(entries, &mut set)?;
    if loader.resolver.package("", CORE).is_ok_and(|found| found.is_none()) {
        set.absent.remove(CORE);
        add_core(&mut set);
    }
    set.modules.push(systems());
    Ok(set)
}

/// The subpath of a package that an import refers to, if `allowed` includes it.
fn package_subpath(import: &str, name: &str, allowed: &str) -> Option<String> {
    let below = import.strip_prefix(allowed)?;
    let (found, subpath) = split(import)?;
    let is_allowed = below.is_empty() || below.starts_with('/');
    (is_allowed && found == name).then_some(subpath)
}

struct Loader {
    resolver: Resolver,
    /// Every file that was read, by its path, or why it is unavailable.
    nodes: BTreeMap<String, Result<Node, String>>,
}

/// A file with its imports.
struct Node {
    source: String,
    has_default: bool,
    /// The text of each static import with its target file, or why there is none.
    imports: Vec<(String, Result<String, String>)>,
    /// The same for dynamic imports that have a target.
    lazy: Vec<(String, String)>,
}

impl Loader {
    /// Loads the dependencies of the entries, and adds to the set the entries whose dependencies
    /// are complete.
    fn emit(&mut self, entries: BTreeMap<String, File>, set: &mut LibrarySet) -> Result<(), Error> {
        let mut needed = BTreeSet::new();
        for (specifier, file) in entries {
            // Many packages export a manifest or a style sheet, which programs do not import.
            if !is_code(&file.path) || file.path.ends_with(".json") {
                continue;
            }
            self.load(file.clone())?;
            match self.closure(&file.path) {
                Ok(files) => {
                    needed.extend(files);
                    set.modules.push(self.entry_module(&specifier, &file.path));
                }
                Err(why) => drop(set.absent.insert(specifier, why)),
            }
        }
        self.add_lazy(&mut needed);
        set.modules.extend(needed.iter().filter_map(|path| self.module(path, &needed)));
        Ok(())
    }

    /// Reads a file and all its dependencies.
    fn load(&mut self, file: File) -> Result<(), Error> {
        let mut pending = vec![file];
        while let Some(file) = pending.pop() {
            if self.nodes.contains_key(&file.path) {
                continue;
            }
            let node = match self.node(&file, &mut pending) {
                Err(error) if error.affects_all() => return Err(error),
                node => node.map_err(|error| error_chain(&error)),
            };
            self.nodes.insert(file.path, node);
        }
        Ok(())
    }

    fn node(&mut self, file: &File, pending: &mut Vec<File>) -> Result<Node, Error> {
        let path = &file.path;
        if !is_code(path) {
            return Err(Error::Kind(path.clone()));
        }
        if path.ends_with(".cjs") {
            return Err(Error::CommonJs(path.clone()));
        }
        let source = self.resolver.read(path)?.text;
        if path.ends_with(".json") {
            let why = |error: serde_json::Error| Error::Manifest {
                path: path.clone(),
                why: error.to_string(),
            };
            let value: serde_json::Value = serde_json::from_str(&source).map_err(why)?;
            let source = format!("export default {value};");
            return Ok(Node { source, has_default: true, imports: Vec::new(), lazy: Vec::new() });
        }
        let file_source = SourceFile { path: path.clone(), source };
        let survey = survey(&file_source).map_err(Error::Syntax);
        let is_module = file.is_module
            || path.ends_with(".mjs")
            || survey.as_ref().is_ok_and(|survey| survey.is_module)
            || self.resolver.is_module(path)?;
        if !is_module {
            return Err(Error::CommonJs(path.clone()));
        }
        let survey = survey?;
        let mut imports = Vec::new();
        for specifier in survey.imports {
            let target = match self.resolver.resolve(path, &specifier) {
                Err(error) if error.affects_all() => return Err(error),
                target => target.map_err(|error| error_chain(&error)),
            };
            if let Ok(file) = &target {
                pending.push(file.clone());
            }
            imports.push((specifier, target.map(|file| file.path)));
        }
        let mut lazy = Vec::new();
        for specifier in survey.lazy {
            match self.resolver.resolve(path, &specifier) {
                Err(error) if error.affects_all() => return Err(error),
                Err(_) => {}
                Ok(file) => {
                    lazy.push((specifier, file.path.clone()));
                    pending.push(file);
                }
            }
        }
        let has_default = survey.has_default;
        let before = if reads_node_env(&file_source) { NODE_ENV_SHIM } else { "" };
        Ok(Node { source: format!("{before}{}", file_source.source), has_default, imports, lazy })
    }

    /// All static dependencies of a file, or why some are unavailable.
    fn closure(&self, path: &str) -> Result<BTreeSet<String>, String> {
        let mut found = BTreeSet::new();
        let mut pending = vec![path];
        while let Some(path) = pending.pop() {
            if !found.insert(path.to_owned()) {
                continue;
            }
            let node = match self.nodes.get(path) {
                Some(Ok(node)) => node,
                Some(Err(why)) => return Err(why.clone()),
                None => return Err(error_chain(&Error::NoFile(path.to_owned()))),
            };
            for (_, target) in &node.imports {
                pending.push(target.as_ref().map_err(Clone::clone)?);
            }
        }
        Ok(found)
    }

    /// Adds the dynamic imports that are available.
    fn add_lazy(&self, needed: &mut BTreeSet<String>) {
        let mut pending: Vec<String> = needed.iter().cloned().collect();
        while let Some(path) = pending.pop() {
            let Some(Ok(node)) = self.nodes.get(&path) else { continue };
            for (_, target) in &node.lazy {
                for file in self.closure(target).into_iter().flatten() {
                    if needed.insert(file.clone()) {
                        pending.push(file);
                    }
                }
            }
        }
    }

    /// The module through which snippets import a file.
    fn entry_module(&self, specifier: &str, path: &str) -> LibraryModule {
        let has_default = matches!(self.nodes.get(path), Some(Ok(node)) if node.has_default);
        let default = if has_default { "export { default } from \"it\";\n" } else { "" };
        let mut imports = BTreeMap::from([("it".to_owned(), module_name(path))]);
        let source = if specifier == CORE {
            imports.insert(SYSTEMS.to_owned(), SYSTEMS.to_owned());
            include_str!("watched.js").to_owned()
        } else {
            format!("export * from \"it\";\n{default}")
        };
        LibraryModule { specifier: specifier.to_owned(), source, imports, exported: true }
    }

    /// A file as a module of the set.
    fn module(&self, path: &str, needed: &BTreeSet<String>) -> Option<LibraryModule> {
        let Some(Ok(node)) = self.nodes.get(path) else { return None };
        let found = |(text, target): &'_ (String, Result<String, String>)| {
            Some((text.clone(), target.clone().ok()?))
        };
        let imports = node.imports.iter().filter_map(found).chain(node.lazy.iter().cloned());
        let imports = imports.filter(|(_, target)| needed.contains(target));
        Some(LibraryModule {
            specifier: module_name(path),
            source: node.source.clone(),
            imports: imports.map(|(text, target)| (text, module_name(&target))).collect(),
            exported: false,
        })
    }
}

/// Whether a file uses `process.env.NODE_ENV` and nothing else of the `process` of Node.js.
fn reads_node_env(file: &SourceFile) -> bool {
    let source = &file.source;
    let is_env = |(at, _): (usize, &str)| source[at..].starts_with("process.env");
    source.contains("process.env.NODE_ENV")
        && source.match_indices("process.").all(is_env)
        && uses_free_name(file, "process")
}

/// The module name of a file.
fn module_name(path: &str) -> String {
    format!("{PREFIX}{path}")
}

fn is_code(path: &str) -> bool {
    [".js", ".mjs", ".cjs", ".json"].iter().any(|ending| path.ends_with(ending))
}

/// An error with its causes.
fn error_chain(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
