//! The way of a snippet: its request is taken, its files are checked and linked, it runs, and what
//! it holds in the end is read. Everything here happens in the calling process, the engine too: what
//! is not trusted is run by a worker, which calls this.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use stockade_script::realm::{Ended, Failure, Limits, Program, Realm, Sink};
use stockade_script::{Fault, LibrarySet, Module, resolve};

use crate::imports::Imports;
use crate::library::SYSTEMS;
use crate::payload::{ENTRY, Input, Payload};
use crate::stack::sanitize_stack;
use crate::transcript::{ErrorCode, Phase, Transcript};
use crate::validator::check;

/// Time to read what systems hold, after the snippet's own time.
const GRACE: Duration = Duration::from_millis(250);

/// The most that facts and derivations may be, as JSON.
const MAX_SNAPSHOT_BYTES: usize = 1 << 20;

/// Takes each line of the console as it is written.
pub type Lines = Box<dyn FnMut(&str)>;

/// Runs a snippet in this process and this thread, to its end.
pub fn execute(input: Input, imports: &Imports, library: &LibrarySet, lines: Lines) -> Transcript {
    let payload = match Payload::new(input) {
        Ok(payload) => payload,
        Err(error) => {
            let errors = vec![error.to_string()];
            return Transcript::refused(Phase::Input, ErrorCode::InputInvalid, errors);
        }
    };
    let modules = match check(payload.files(), imports) {
        Ok(modules) => modules,
        Err(faults) => {
            let errors = faults.iter().map(Fault::to_string).collect();
            return Transcript::refused(Phase::Validate, ErrorCode::ValidationFailed, errors);
        }
    };
    let program = match link(modules, library) {
        Ok(program) => program,
        Err(errors) => {
            let (count, s) = (errors.len(), if errors.len() == 1 { "" } else { "s" });
            let errors = errors.join("\n");
            let error = format!("bundle failed: Build failed with {count} error{s}:\n{errors}");
            return Transcript::refused(Phase::Bundle, ErrorCode::BundleFailed, vec![error]);
        }
    };
    run(program, payload.timeout(), library, lines)
}

/// Finds what each import means, and everything of the library.
fn link(modules: Vec<Module>, library: &LibrarySet) -> Result<Program, Vec<String>> {
    let mut program = Program::of(library);
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
                let names = library.exported().collect::<Vec<_>>().join(", ");
                Err(format!(
                    "cannot resolve \"{specifier}\" from \"{}\" — the library set has only {names}",
                    module.path
                ))
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

fn run(program: Program, timeout: Duration, library: &LibrarySet, mut lines: Lines) -> Transcript {
    let uses_library = program.links.iter().any(|((importer, _), name)| {
        let is_ours = library.modules.iter().any(|module| module.specifier == *importer);
        library.exports(name) && !is_ours
    });
    let logs = Rc::new(RefCell::new(Vec::new()));
    let kept = Rc::clone(&logs);
    let sink: Sink = Box::new(move |level, text| {
        let line = format!("[{level}] {text}");
        lines(&line);
        kept.borrow_mut().push(line);
    });
    let started = Instant::now();
    let limits = Limits { timeout, ..Limits::default() };
    let realm = match Realm::new(program, &limits, sink) {
        Ok(realm) => realm,
        Err(error) => {
            let errors = vec![error.to_string()];
            return Transcript::refused(Phase::Run, ErrorCode::WorkerError, errors);
        }
    };
    let outcome = realm.run(ENTRY);
    let mut errors = Vec::new();
    let mut code = None;
    match outcome.ended {
        Ended::Settled => {}
        Ended::Threw(failure) => {
            code = Some(ErrorCode::RuntimeError);
            errors.push(rendered(&failure));
        }
        Ended::TimedOut => {
            code = Some(ErrorCode::Timeout);
            errors.push(format!("wall-clock budget of {}ms elapsed", timeout.as_millis()));
        }
        Ended::NeverSettles => {
            code = Some(ErrorCode::NeverSettles);
            errors.push(
                "the snippet never settles: it awaits something, and no job or timer is left that \
                 could bring it about"
                    .to_owned(),
            );
        }
    }
    for failure in &outcome.unhandled {
        code = code.or(Some(ErrorCode::RuntimeError));
        errors.push(format!("unhandled rejection: {}", rendered(failure)));
    }
    let held = snapshot(&realm, &mut errors);
    drop(realm);
    let mut warnings = Vec::new();
    if outcome.output_cut {
        warnings.push(format!("output after the first {} bytes is lost", limits.output_bytes));
    }
    warnings.extend(library.remark.clone().filter(|_| uses_library));
    Transcript {
        logs: logs.take(),
        facts: held.facts,
        derived: held.derived,
        error_code: code.or_else(|| (!errors.is_empty()).then_some(ErrorCode::RuntimeError)),
        errors,
        duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        timed_out: code == Some(ErrorCode::Timeout),
        phase: Phase::Run,
        warnings,
    }
}

/// What `library/systems.js` answers.
#[derive(Default, serde::Deserialize)]
struct Held {
    facts: Map<String, Value>,
    derived: Map<String, Value>,
    errors: Vec<String>,
}

/// Reads what the systems hold, also after a time-out: the realm is still there.
fn snapshot(realm: &Realm, errors: &mut Vec<String>) -> Held {
    let held = match realm.ask(SYSTEMS, "snapshot", GRACE) {
        Ok(text) if text.len() > MAX_SNAPSHOT_BYTES => {
            Err(format!("{} bytes (max {MAX_SNAPSHOT_BYTES})", text.len()))
        }
        Ok(text) => serde_json::from_str::<Held>(&text).map_err(|error| error.to_string()),
        Err(failure) => Err(failure.message),
    };
    match held {
        Ok(mut held) => {
            errors.append(&mut held.errors);
            held
        }
        Err(why) => {
            errors.push(format!("facts snapshot failed: {why}"));
            Held::default()
        }
    }
}

fn rendered(failure: &Failure) -> String {
    sanitize_stack(Some(&failure.to_string()))
}

#[cfg(test)]
mod tests;
