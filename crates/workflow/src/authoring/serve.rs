//! The process of a realm: loads the program that the host sends, then serves any number of concurrent
//! calls. Runs in a jail; everything that it knows was sent to it.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use serde_json::value::RawValue;
use stockade_script::persistent_realm::Serve;
use stockade_script::realm::{Call, Failure, Limits, Program, Realm, RunEnd};
use stockade_script::realm_host::Console;
use stockade_script::syntax::{Scoping, tree};
use stockade_script::worker::Confinement;
use stockade_script::{
    Fault, Finding, Import, Inspector, LazyImport, Module, SourceFile, compile_elements, survey,
};

use super::documents;
use super::json_text::without_comments;
use super::library;
use super::modules::PACKAGES;
use super::wire::{FromRealm, Rejection, ToRealm};
use crate::graph::nearest;

/// How much of the stack the JavaScript engine may use.
const ENGINE_STACK_BYTES: usize = 8 << 20;
const HEAP_BYTES: usize = 512 << 20;
/// How much a run may write to its console in total.
const OUTPUT_BYTES: usize = 64 << 20;
/// The source text of all modules together.
const CODE_BYTES: usize = 64 << 20;
/// The time limit for running a program. The host has a shorter limit, and ends the process.
const RUN_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// The error for an `import()` whose file is not known before the program runs.
const NOT_LITERAL: &str = "import() needs a literal name, as in import(\"./file.js\"), because a run stores all files that it may need. An engine on Node.js, which is planned, is needed for names that are computed";

/// Where the agents of a workflow find the project; a realm has no files itself.
const WORKSPACE: &str = "/workspace";

/// Serves a realm.
pub(super) struct RealmServer;

impl Serve for RealmServer {
    /// Serves until the host closes the stream.
    fn serve(raised: Confinement) -> u8 {
        let Confinement { namespaces, landlock } = raised;
        send(&FromRealm::Raised { namespaces, landlock });
        // Everything that is the same for every program is done before the program is known.
        let realm = new_realm();
        let mut lines = Lines::default();
        let Some(ToRealm::Load { entry, environment }) = lines.next() else { return 0 };
        let loaded = realm.and_then(|realm| {
            load(&mut lines, entry, &environment).and_then(|program| run(&realm, program))?;
            Ok(realm)
        });
        match loaded {
            Ok(realm) => {
                send(&FromRealm::Loaded(Ok(())));
                serve_calls(&mut lines, &realm);
            }
            Err(refused) => send(&FromRealm::Loaded(Err(refused))),
        }
        0
    }
}

/// The messages of the host, line by line.
#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    ended: bool,
}

impl Lines {
    /// Waits for the next message; `None` when the stream has ended or the message is invalid.
    fn next(&mut self) -> Option<ToRealm> {
        loop {
            if let Some(line) = self.ready() {
                return line;
            }
            if self.ended {
                return None;
            }
            self.fill();
        }
    }

    /// The next message, if it was read already.
    fn ready(&mut self) -> Option<Option<ToRealm>> {
        let end = self.bytes.iter().position(|byte| *byte == b'\n')?;
        let rest = self.bytes.split_off(end + 1);
        let line = std::mem::replace(&mut self.bytes, rest);
        Some(serde_json::from_slice(&line).ok())
    }

    fn fill(&mut self) {
        let mut piece = [0; 64 << 10];
        match io::stdin().lock().read(&mut piece) {
            Ok(0) | Err(_) => self.ended = true,
            Ok(length) => self.bytes.extend_from_slice(&piece[..length]),
        }
    }

    /// Waits for more input, at most for this time.
    fn wait(&mut self, longest: Option<Duration>) {
        let stdin = rustix::stdio::stdin();
        let mut waiting = [PollFd::new(&stdin, PollFlags::IN)];
        let longest = longest.and_then(|longest| Timespec::try_from(longest).ok());
        if poll(&mut waiting, longest.as_ref()).is_ok_and(|ready| ready > 0) {
            self.fill();
        }
    }
}

/// Sends a message. Errors are ignored: only the host could be informed.
fn send(message: &FromRealm) {
    let Ok(mut line) = serde_json::to_vec(message) else { return };
    line.push(b'\n');
    let mut output = io::stdout().lock();
    let _ = output.write_all(&line).and_then(|()| output.flush());
}

/// Accepts any code of the user.
struct AcceptAll;

impl Inspector for AcceptAll {
    fn inspect_source(&mut self, _: &tree::ast::Program<'_>, _: &mut Vec<Finding>) {}
    fn inspect_transformed(
        &mut self,
        _: &tree::ast::Program<'_>,
        _: &Scoping,
        _: &mut Vec<Finding>,
    ) {
    }
}

/// Reads the entry and all modules that it imports.
fn load(
    lines: &mut Lines,
    entry: SourceFile,
    environment: &BTreeMap<String, String>,
) -> Result<Program, Rejection> {
    let mut program = Program::default();
    let (start, imports) = library::start();
    for import in imports {
        link(&mut program, &start, import, import);
    }
    link(&mut program, &start, library::ENTRY, &entry.path);
    program.modules.insert(start.path.clone(), start);
    let mut zods = Vec::new();
    let mut waiting: Vec<(SourceFile, Option<Origin>)> = vec![(entry, None)];
    while let Some((file, origin)) = waiting.pop() {
        if program.modules.contains_key(&file.path) {
            continue;
        }
        let at_origin = |fault: Fault| match &origin {
            Some(origin) => origin.fault(&fault),
            None => fault,
        };
        let module = compile_file(&file)
            .map_err(|faults| Rejection::Faults(faults.into_iter().map(at_origin).collect()))?;
        for import in &module.imports {
            let specifier = import.specifier.as_str();
            match resolve(lines, &module, specifier)? {
                Resolution::BuiltIn(ours) => link(&mut program, &module, specifier, ours),
                Resolution::File(file) => {
                    if specifier == "zod" || specifier.starts_with("zod/") {
                        zods.push(file.path.clone());
                    }
                    link(&mut program, &module, specifier, &file.path);
                    let place = (module.path.as_str(), import.line, import.column);
                    let origin = Origin::of(&file, &origin, place, specifier);
                    waiting.push((file, origin));
                }
                Resolution::Missing(message) => {
                    let path = module.path.clone();
                    let (line, column) = (import.line, import.column);
                    let fault = Fault { path, line, column, message };
                    return Err(Rejection::Missing(at_origin(fault)));
                }
            }
        }
        for import in &module.lazy {
            let Some(specifier) = import.specifier.as_deref() else { continue };
            match resolve(lines, &module, specifier)? {
                Resolution::BuiltIn(ours) => link(&mut program, &module, specifier, ours),
                Resolution::File(file) => {
                    link(&mut program, &module, specifier, &file.path);
                    let place = (module.path.as_str(), import.line, import.column);
                    let origin = Origin::of(&file, &origin, place, specifier);
                    waiting.push((file, origin));
                }
                // The import may never be evaluated.
                Resolution::Missing(why) => {
                    let place = format!("{}:{}:{}", module.path, import.line, import.column);
                    let import = (module.path.clone(), specifier.to_owned());
                    program.missing.insert(import, format!("{place} — {why}"));
                }
            }
        }
        program.modules.insert(module.path.clone(), module);
    }
    add_generated(&mut program, environment, zods);
    Ok(program)
}

/// The import of a package in a file of the project: an error in the package is that of this import.
#[derive(Clone)]
struct Origin {
    path: String,
    line: u32,
    column: u32,
    specifier: String,
}

impl Origin {
    /// That of a file, which a module of this origin imports at this place; `None` for a file of the project.
    fn of(
        file: &SourceFile,
        origin: &Option<Self>,
        (path, line, column): (&str, u32, u32),
        specifier: &str,
    ) -> Option<Self> {
        let own = || Self { path: path.to_owned(), line, column, specifier: specifier.to_owned() };
        file.path.starts_with(PACKAGES).then(|| origin.clone().unwrap_or_else(own))
    }

    /// An error in the package, at the import of the project.
    fn fault(&self, fault: &Fault) -> Fault {
        let Fault { path, line, column, message } = fault;
        Fault {
            path: self.path.clone(),
            line: self.line,
            column: self.column,
            message: format!(
                "cannot import the package \"{}\": {path}:{line}:{column} — {message}",
                self.specifier
            ),
        }
    }
}

fn link(program: &mut Program, module: &Module, specifier: &str, target: &str) {
    program.links.insert((module.path.clone(), specifier.to_owned()), target.to_owned());
}

/// The resolution of an import.
enum Resolution {
    /// A module of the library.
    BuiltIn(&'static str),
    /// A file.
    File(SourceFile),
    /// No file, for this reason.
    Missing(String),
}

fn resolve(lines: &mut Lines, module: &Module, specifier: &str) -> Result<Resolution, Rejection> {
    if let Some(ours) = library::built_in(specifier) {
        return Ok(Resolution::BuiltIn(ours));
    }
    if let Some(why) = library::missing_part(specifier) {
        return Ok(Resolution::Missing(why));
    }
    let (importer, specifier) = (module.path.clone(), specifier.to_owned());
    send(&FromRealm::Import { importer, specifier });
    match lines.next() {
        Some(ToRealm::Imported(Ok(file))) => Ok(Resolution::File(file)),
        Some(ToRealm::Imported(Err(why))) => Ok(Resolution::Missing(why)),
        _ => Err(Rejection::Stuck("the host does not answer".to_owned())),
    }
}

fn compile_file(file: &SourceFile) -> Result<Module, Vec<Fault>> {
    if [".txt", ".sql"].iter().any(|ending| file.path.ends_with(ending)) {
        let code = format!("export default {};", Value::from(file.source.as_str()));
        return Ok(Module::plain(&file.path, code));
    }
    if documents::is_document(&file.path) {
        let made = documents::module(file)?;
        let named = |fault: Fault| Fault { path: file.path.clone(), ..fault };
        let compiled = compile_elements(&made, library::NAMES[1], &mut AcceptAll);
        let mut module =
            compiled.map_err(|faults| faults.into_iter().map(named).collect::<Vec<_>>())?;
        // The positions of its elements are those of the document.
        module.code = module.code.replace(&made.path, &file.path);
        module.path.clone_from(&file.path);
        return Ok(module);
    }
    if file.path.ends_with(".json") || file.path.ends_with(".jsonc") {
        return match serde_json::from_str::<Value>(&without_comments(&file.source)) {
            Ok(value) => Ok(Module::plain(&file.path, format!("export default {value};"))),
            Err(error) => {
                let (line, column) = (error.line(), error.column());
                let count = |number| u32::try_from(number).unwrap_or(u32::MAX);
                let (path, message) = (file.path.clone(), error.to_string());
                Err(vec![Fault { path, line: count(line), column: count(column), message }])
            }
        };
    }
    if file.path.starts_with(PACKAGES) {
        // Packages are JavaScript already, so they run unchanged.
        let mut module = Module::plain(&file.path, file.source.clone());
        let import = |specifier| Import { specifier, names: Vec::new(), line: 1, column: 1 };
        let survey = survey(file).map_err(|fault| vec![fault])?;
        module.imports = survey.imports.into_iter().map(import).collect();
        let lazy = |specifier| LazyImport { specifier: Some(specifier), line: 1, column: 1 };
        module.lazy = survey.lazy.into_iter().map(lazy).collect();
        return Ok(module);
    }
    let module = compile_elements(file, library::NAMES[1], &mut AcceptAll)?;
    // All modules of a run are stored with it, so they must be known before it starts.
    let made = module.lazy.iter().filter(|import| import.specifier.is_none());
    let fault = |&LazyImport { line, column, .. }: &LazyImport| Fault {
        path: file.path.clone(),
        line,
        column,
        message: NOT_LITERAL.to_owned(),
    };
    let faults: Vec<Fault> = made.map(fault).collect();
    if faults.is_empty() { Ok(module) } else { Err(faults) }
}

/// Finds an import of a name that a file of the project, or the library, does not export.
fn missing_export(program: &Program) -> Option<Fault> {
    let ours = |module: &&Module| !module.path.starts_with(PACKAGES);
    let mut exports: BTreeMap<&str, Option<Vec<String>>> = BTreeMap::new();
    for module in program.modules.values().filter(ours) {
        for import in module.imports.iter().filter(|import| !import.names.is_empty()) {
            let link = (module.path.clone(), import.specifier.clone());
            let Some(target) =
                program.links.get(&link).filter(|meant| !meant.starts_with(PACKAGES))
            else {
                continue;
            };
            let code = || {
                let module = program.modules.get(target).map(|module| module.code.as_str());
                module.or_else(|| library::code(target))
            };
            let known = exports.entry(target).or_insert_with(|| export_names(target, code()?));
            let Some(known) = known else { continue };
            if let Some(name) = import.names.iter().find(|name| !known.contains(name)) {
                let specifier = &import.specifier;
                let of_upstream = library::code(target).and_then(|_| library::missing_export(name));
                let hint = match nearest(name, known.iter().map(String::as_str)) {
                    Some(near) => format!(" — did you mean `{near}`?"),
                    None if known.is_empty() => " — it exports nothing".to_owned(),
                    None => String::new(),
                };
                return Some(Fault {
                    path: module.path.clone(),
                    line: import.line,
                    column: import.column,
                    message: of_upstream
                        .unwrap_or_else(|| format!("\"{specifier}\" exports no `{name}`{hint}")),
                });
            }
        }
    }
    None
}

/// The names that a module exports; `None` if the module alone does not determine them.
fn export_names(path: &str, code: &str) -> Option<Vec<String>> {
    let file = SourceFile { path: path.to_owned(), source: code.to_owned() };
    let survey = survey(&file).ok()?;
    (!survey.reexports_all).then_some(survey.exports)
}

/// Adds the modules whose text depends on the program.
fn add_generated(
    program: &mut Program,
    environment: &BTreeMap<String, String>,
    mut zods: Vec<String>,
) {
    let text = serde_json::to_string(environment).unwrap_or_default();
    let code = format!(
        "globalThis.process = Object.freeze({{ env: Object.freeze({text}), argv: Object.freeze([]), platform: \"linux\", \
           cwd: () => \"{WORKSPACE}\" }});"
    );
    let made = Module::plain(library::ENVIRONMENT, code);
    program.modules.insert(made.path.clone(), made);
    zods.sort();
    zods.dedup();
    let mut code = String::new();
    for (number, path) in zods.iter().enumerate() {
        code.push_str(&format!("export * as zod{number} from \"zod{number}\";\n"));
        let link = (library::ZODS.to_owned(), format!("zod{number}"));
        program.links.insert(link, path.clone());
    }
    let made = Module::plain(library::ZODS, code);
    program.modules.insert(made.path.clone(), made);
}

/// Creates a realm with the library.
fn new_realm() -> Result<Realm, Rejection> {
    let limits = Limits {
        heap_bytes: HEAP_BYTES,
        stack_bytes: ENGINE_STACK_BYTES,
        code_bytes: CODE_BYTES,
        output_bytes: OUTPUT_BYTES,
    };
    let realm = Realm::new(&library::set(), &limits)
        .map_err(|error| Rejection::Stuck(error.to_string()))?;
    let offered = realm.set_global_function(library::SEND_FUNCTION, |text| {
        // Only the library can call this function. Messages that are not JSON are dropped.
        if let Ok(said) = serde_json::from_str(&text) {
            send(&FromRealm::Said(said));
        }
    });
    offered.map_err(|failure| Rejection::Stuck(failure.to_string()))?;
    Ok(realm)
}

fn run(realm: &Realm, program: Program) -> Result<(), Rejection> {
    let console = Console(|level: &str, text: &str| {
        send(&FromRealm::Line { level: level.to_owned(), text: text.to_owned() });
    });
    if let Some(fault) = missing_export(&program) {
        return Err(Rejection::Faults(vec![fault]));
    }
    match realm.run(program, library::START, RUN_TIMEOUT, Box::new(console)).end {
        RunEnd::Settled => Ok(()),
        RunEnd::Threw(failure) => Err(Rejection::Threw(failure)),
        RunEnd::TimedOut | RunEnd::NeverSettles => {
            Err(Rejection::Stuck("it awaits a promise that nothing can resolve".to_owned()))
        }
        RunEnd::TooMuchCode(too_large) => Err(Rejection::Stuck(too_large.to_string())),
    }
}

/// Serves calls as they arrive, until the stream ends.
fn serve_calls(lines: &mut Lines, realm: &Realm) {
    let mut calls: Vec<(u64, Call)> = Vec::new();
    loop {
        while let Some(line) = lines.ready() {
            match line {
                Some(ToRealm::Call { id, function, argument }) => {
                    let argument = argument.to_string();
                    calls.push((id, realm.start(library::START, &function, &argument)));
                }
                _ => return,
            }
        }
        let (wait, thrown) = realm.proceed();
        let lost = thrown.into_iter().chain(realm.take_unhandled());
        calls.retain(|(id, call)| {
            let Some(outcome) = realm.settled(call) else { return true };
            let outcome = outcome.and_then(|text| {
                let unread = |error: serde_json::Error| Failure {
                    message: error.to_string(),
                    ..Failure::default()
                };
                RawValue::from_string(text).map_err(unread)
            });
            send(&FromRealm::Done { id: *id, outcome });
            false
        });
        for failure in lost {
            let text = format!("unhandled rejection: {failure}");
            send(&FromRealm::Line { level: "error".to_owned(), text });
        }
        if lines.ended {
            return;
        }
        lines.wait(wait);
    }
}
