//! The steps of a snippet: its request is validated, its files are checked and linked, it runs, and
//! the final state of its systems is read. All of this happens in the calling process, including
//! the engine: for untrusted code, a worker calls it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use stockade_script::realm::{Failure, Limits, Program, Realm, RunEnd};
use stockade_script::realm_host::{Console, RealmHost};
use stockade_script::{Fault, Lenient, LibraryPackage, LibrarySet, Module, compile, resolve};

use crate::imports::Imports;
use crate::library::SYSTEMS;
use crate::payload::{ENTRY, Input, Payload};
use crate::stack::sanitize_stack;
use crate::transcript::{ErrorCode, Phase, Transcript, UsedLibrary};
use crate::validator::check;

/// The most names that an error lists if a package lacks the imported name.
const MAX_NAMES: usize = 20;

/// Time to read the state of systems, after the snippet's own time.
const GRACE: Duration = Duration::from_millis(250);

/// The largest size of facts and derivations, as JSON.
const MAX_SNAPSHOT_BYTES: usize = 1 << 20;

/// A snippet that was checked and linked.
pub(crate) struct PreparedRun {
    program: Program,
    timeout: Duration,
    libraries: Vec<UsedLibrary>,
}

/// Runs a snippet to its end in this process and thread, without network access.
pub fn execute(input: Input, imports: &Imports, library: &LibrarySet) -> Transcript {
    let prepared = match read(input, imports, library) {
        Ok(prepared) => prepared,
        Err(refused) => return *refused,
    };
    let realm = match Realm::new(library, &Limits::default()) {
        Ok(realm) => realm,
        Err(error) => return Transcript::failed(error.to_string()),
    };
    let logs = Rc::new(RefCell::new(Vec::new()));
    let lines = Rc::clone(&logs);
    let console =
        move |level: &str, text: &str| lines.borrow_mut().push(format!("[{level}] {text}"));
    let transcript = run(prepared, &realm, Box::new(Console(console)));
    drop(realm);
    Transcript { logs: logs.take(), ..transcript }
}

/// Checks and links the files of a snippet; if they are refused, returns the transcript of that.
pub(crate) fn read(
    input: Input,
    imports: &Imports,
    library: &LibrarySet,
) -> Result<PreparedRun, Box<Transcript>> {
    let refused = |phase, code, errors| Err(Box::new(Transcript::refused(phase, code, errors)));
    let payload = match Payload::new(input) {
        Ok(payload) => payload,
        Err(error) => {
            return refused(Phase::Input, ErrorCode::InputInvalid, vec![error.to_string()]);
        }
    };
    let modules = match check(payload.files(), imports) {
        Ok(modules) => modules,
        Err(faults) => {
            let errors: Vec<String> = faults.iter().map(Fault::to_string).collect();
            // As in the reference, a syntax error is one of the bundler.
            if payload.files().iter().any(|file| compile(file, &mut Lenient).is_err()) {
                return refused(
                    Phase::Bundle,
                    ErrorCode::BundleFailed,
                    vec![build_failed(&errors)],
                );
            }
            return refused(Phase::Validate, ErrorCode::ValidationFailed, errors);
        }
    };
    let libraries = used_libraries(&modules, library);
    match link(modules, library) {
        Ok(program) => Ok(PreparedRun { program, timeout: payload.timeout(), libraries }),
        Err(errors) => refused(Phase::Bundle, ErrorCode::BundleFailed, vec![build_failed(&errors)]),
    }
}

fn build_failed(errors: &[String]) -> String {
    let (count, s) = (errors.len(), if errors.len() == 1 { "" } else { "s" });
    format!("bundle failed: Build failed with {count} error{s}:\n{}", errors.join("\n"))
}

/// Whether a program throws or rejects with `null` itself, which is also what the engine throws when it has
/// no memory left.
fn throws_null(program: &Program) -> bool {
    let is_there = |code: &str| {
        let words: String = code.chars().filter(|character| !character.is_whitespace()).collect();
        ["thrownull", "reject(null)", "abort(null)"].iter().any(|word| words.contains(word))
    };
    program.modules.values().any(|module| is_there(&module.code))
}

/// Whether a file waits for anything. One that does not is over when it has been evaluated: if it never is, the
/// engine had no memory left for its end.
fn awaits(program: &Program) -> bool {
    program.modules.values().any(|module| module.code.contains("await"))
}

/// The packages that files import, each once, in the order of the set.
fn used_libraries(modules: &[Module], library: &LibrarySet) -> Vec<UsedLibrary> {
    let imports = || modules.iter().flat_map(|module| &module.imports);
    let is_used = |package: &&LibraryPackage| {
        imports().any(|import| library.package(&import.specifier) == Some(*package))
    };
    let told = |package: &LibraryPackage| UsedLibrary {
        name: package.name.clone(),
        version: package.version.clone(),
        built_in: package.version.is_none(),
    };
    library.packages.iter().filter(is_used).map(told).collect()
}

/// Resolves each import.
fn link(modules: Vec<Module>, library: &LibrarySet) -> Result<Program, Vec<String>> {
    let mut program = Program::default();
    let mut errors = Vec::new();
    let paths: Vec<String> = modules.iter().map(|module| module.path.clone()).collect();
    for module in modules {
        for import in &module.imports {
            let specifier = &import.specifier;
            let meant = if specifier.starts_with('.') {
                resolve(&module.path, specifier, |name| paths.iter().any(|path| path == name))
                    .map_err(|error| error.to_string())
            } else if library.exports(specifier) {
                Ok(specifier.clone())
            } else {
                let why = missing_package(library, specifier);
                Err(format!("cannot resolve \"{specifier}\" from \"{}\" — {why}", module.path))
            };
            match meant {
                Ok(name) => {
                    program.links.insert((module.path.clone(), specifier.clone()), name);
                }
                Err(error) => errors.push(error),
            }
        }
        program.modules.insert(module.path.clone(), module);
    }
    if errors.is_empty() { Ok(program) } else { Err(errors) }
}

/// Why a library set lacks an import.
fn missing_package(library: &LibrarySet, specifier: &str) -> String {
    if let Some(why) = library.absent.get(specifier) {
        return why.clone();
    }
    let names: Vec<&str> = match library.package(specifier) {
        Some(package) => {
            let is_of = |name: &&str| library.package(name) == Some(package);
            library.exported_specifiers().filter(is_of).take(MAX_NAMES).collect()
        }
        None => library.packages.iter().map(|package| package.name.as_str()).collect(),
    };
    format!("the library set has only {}", names.join(", "))
}

/// Runs a snippet in a realm with its library set. The outside receives the console lines: the
/// transcript contains none.
pub(crate) fn run(prepared: PreparedRun, realm: &Realm, host: Box<dyn RealmHost>) -> Transcript {
    let PreparedRun { program, timeout, libraries } = prepared;
    let started = Instant::now();
    let own_null = throws_null(&program);
    let is_waiting = awaits(&program);
    let is_exhausted =
        |failure: &Failure| failure.is_exhausted && (failure.name.is_some() || !own_null);
    let outcome = realm.run(program, ENTRY, timeout, host);
    let mut errors = Vec::new();
    let mut code = None;
    let thrown = match &outcome.end {
        RunEnd::Threw(failure) => Some(failure),
        _ => None,
    };
    let is_lost = matches!(outcome.end, RunEnd::NeverSettles) && !is_waiting;
    if is_lost || thrown.into_iter().chain(&outcome.unhandled).any(is_exhausted) {
        code = Some(ErrorCode::OutOfMemory);
        let limit = Limits::default().heap_bytes >> 20;
        errors.push(format!("out of memory: the snippet used more than {limit} MiB"));
    }
    match outcome.end {
        // What follows from the lack of memory is not reported.
        RunEnd::NeverSettles | RunEnd::Settled | RunEnd::TimedOut if code.is_some() => {}
        RunEnd::Threw(failure) if code.is_some() && is_exhausted(&failure) => {}
        RunEnd::Settled => {}
        RunEnd::Threw(failure) => {
            code = code.or(Some(ErrorCode::RuntimeError));
            errors.push(render_failure(&failure));
        }
        RunEnd::TimedOut => {
            code = Some(ErrorCode::Timeout);
            errors.push(format!("wall-clock budget of {}ms elapsed", timeout.as_millis()));
        }
        RunEnd::NeverSettles => {
            code = Some(ErrorCode::NeverSettles);
            errors.push(
                "the snippet never settles: it awaits a promise, and no job or timer is left that could resolve it"
                    .to_owned(),
            );
        }
        RunEnd::TooMuchCode(too_large) => {
            code = Some(ErrorCode::CodeTooLarge);
            errors.push(too_large.to_string());
        }
    }
    for failure in outcome.unhandled.iter().filter(|failure| !is_exhausted(failure)) {
        code = code.or(Some(ErrorCode::RuntimeError));
        errors.push(format!("unhandled rejection: {}", render_failure(failure)));
    }
    // Systems exist only if a package was imported. Its functions are those of before the snippet.
    let mut lost = Vec::new();
    let snapshot =
        if libraries.is_empty() { Snapshot::default() } else { snapshot(realm, &mut lost) };
    if code == Some(ErrorCode::OutOfMemory) && !lost.is_empty() {
        lost = vec!["the facts could not be read: there was not enough memory".to_owned()];
    }
    errors.append(&mut lost);
    let mut warnings = Vec::new();
    if outcome.output_truncated {
        let limit = Limits::default().output_bytes;
        warnings.push(format!("output after the first {limit} bytes was discarded"));
    }
    let built_in = libraries.iter().filter(|library| library.built_in);
    warnings.extend(built_in.map(|UsedLibrary { name, .. }| {
        format!("{name} is the small implementation built into Stockade, not the package")
    }));
    Transcript {
        logs: Vec::new(),
        facts: snapshot.facts,
        derived: snapshot.derived,
        error_code: code.or_else(|| (!errors.is_empty()).then_some(ErrorCode::RuntimeError)),
        errors,
        duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        timed_out: code == Some(ErrorCode::Timeout),
        phase: Phase::Run,
        warnings,
        libraries,
    }
}

/// The result of `library/systems.js`.
#[derive(Default, serde::Deserialize)]
struct Snapshot {
    facts: Map<String, Value>,
    derived: Map<String, Value>,
    errors: Vec<String>,
}

/// Reads the state of the systems, also after a timeout, when the realm still exists.
fn snapshot(realm: &Realm, errors: &mut Vec<String>) -> Snapshot {
    let snapshot = match realm.call_sync(SYSTEMS, "snapshot", GRACE) {
        Ok(text) if text.len() > MAX_SNAPSHOT_BYTES => {
            Err(format!("{} bytes (max {MAX_SNAPSHOT_BYTES})", text.len()))
        }
        Ok(text) => serde_json::from_str::<Snapshot>(&text)
            .map_err(|_| "the snippet has changed built-in functions".to_owned()),
        Err(failure) if failure.is_exhausted => Err("out of memory".to_owned()),
        Err(failure) => Err(failure.message),
    };
    match snapshot {
        Ok(mut snapshot) => {
            errors.append(&mut snapshot.errors);
            snapshot
        }
        Err(why) => {
            errors.push(format!("facts snapshot failed: {why}"));
            Snapshot::default()
        }
    }
}

fn render_failure(failure: &Failure) -> String {
    sanitize_stack(Some(&failure.to_string()))
}

#[cfg(test)]
mod tests;
