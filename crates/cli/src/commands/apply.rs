//! `stockade apply`: all of a bundle, or some of its paths, or nothing.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use serde_json::json;
use stockade_bundle::RelativePath;
use stockade_bundle::apply::{self, Applied, Error, Request, Selection, Skip};
use stockade_bundle::store::Bundle;
use stockade_core::{Code, Problem};

use crate::args::Apply;
use crate::problem::{of_apply, of_store, short};
use crate::review::{self, Review, output, words};

/// Applies. A bundle of which nothing is left to decide is removed.
pub(crate) fn run(arguments: &Apply) -> Result<u8, Problem> {
    let review = Review::open()?;
    let bundle = review.find(&arguments.id)?;
    bundle.hold().map_err(|e| of_store(&e))?;
    let selection = Selection {
        paths: review::paths(&bundle.manifest, &arguments.paths)?,
        include_ignored: arguments.include_ignored,
        allow_executed: arguments.allow_executed,
    };
    let project = Path::new(std::ffi::OsStr::from_bytes(&bundle.manifest.project));
    let request = Request {
        manifest: &bundle.manifest,
        blobs: &bundle.blobs().map_err(|e| of_store(&e))?,
        project,
        journals: &review.journals()?,
        selection: &selection,
    };
    let applied = apply::apply(&request)
        .map_err(|error| with_remedy(of_apply(&error, bundle.id()), &error, arguments, &bundle))?;
    let done: Vec<RelativePath> = applied.changed.iter().chain(&applied.already).cloned().collect();
    if !done.is_empty() {
        bundle.mark_applied(&done).map_err(|e| of_store(&e))?;
    }
    let id = bundle.id().to_owned();
    let is_done = review::pending(&bundle)?.is_empty();
    let problem = applied.changed.is_empty().then(|| nothing(&bundle, &applied, is_done));
    let letters = letters(&bundle, &applied);
    if is_done {
        bundle.remove().map_err(|e| of_store(&e))?;
    }
    if let Some(problem) = problem {
        return Err(problem);
    }
    if arguments.json {
        output::print_json(&as_json(&id, &applied, is_done))?;
    } else {
        output::print(&letters)?;
        tell(&id, &applied, is_done);
    }
    Ok(0)
}

fn letters(bundle: &Bundle, applied: &Applied) -> String {
    let mut text = String::new();
    for entry in &bundle.manifest.entries {
        if applied.changed.binary_search(&entry.path).is_ok() {
            text.push_str(&format!("{} {}\n", words::letter(entry), words::path(entry)));
        }
    }
    text
}

#[expect(clippy::print_stderr, reason = "what is not data goes to stderr")]
fn tell(id: &str, applied: &Applied, is_done: bool) {
    const SHOWN: usize = 50;
    let id = short(id);
    let count = applied.changed.len();
    let paths = if count == 1 { "path" } else { "paths" };
    eprintln!("stockade: {count} {paths} applied");
    for skip in applied.skipped.iter().take(SHOWN) {
        eprintln!("  left out: {} {}", skip.path, words::skip(&skip.reason));
    }
    if applied.skipped.len() > SHOWN {
        eprintln!("  left out: {} more", applied.skipped.len() - SHOWN);
    }
    if !is_done {
        eprintln!("  what is left: stockade diff {id}; to drop it: stockade reject {id}");
    }
}

fn as_json(id: &str, applied: &Applied, is_done: bool) -> serde_json::Value {
    let skipped: Vec<_> = applied
        .skipped
        .iter()
        .map(|skip| json!({ "path": skip.path, "reason": words::skip(&skip.reason) }))
        .collect();
    json!({
        "id": id,
        "applied": applied.changed,
        "already": applied.already,
        "skipped": skipped,
        "done": is_done,
    })
}

/// Nothing was changed: either the project has it all already, or nothing may be applied as
/// asked.
fn nothing(bundle: &Bundle, applied: &Applied, is_done: bool) -> Problem {
    let id = short(bundle.id());
    if applied.skipped.is_empty() {
        let problem = Problem::new(Code::BundleConflict, "the project has these changes already");
        return match is_done {
            true => problem.because("nothing of the bundle is left to decide: it was removed"),
            false => problem.remedied_by(format!("stockade diff {id}")),
        };
    }
    let reasons: Vec<_> = applied
        .skipped
        .iter()
        .take(20)
        .map(|skip| format!("{} {}", skip.path, words::skip(&skip.reason)))
        .collect();
    let remedy = match applied.skipped.iter().any(|skip| skip.reason == Skip::Ignored) {
        true => format!("stockade apply {id} --include-ignored"),
        false => format!("stockade diff {id}"),
    };
    Problem::new(Code::PathRefused, "nothing of this can be applied as asked")
        .because(reasons.join("; "))
        .remedied_by(remedy)
}

/// The remedy that needs to know what was asked for.
fn with_remedy(problem: Problem, error: &Error, arguments: &Apply, bundle: &Bundle) -> Problem {
    let id = short(bundle.id());
    match error {
        Error::Executed(_) => {
            let paths: String = arguments
                .paths
                .iter()
                .map(|p| format!(" {}", words::shell(p.as_bytes())))
                .collect();
            let ignored = if arguments.include_ignored { " --include-ignored" } else { "" };
            problem.remedied_by(format!("stockade apply {id} --allow-executed{ignored}{paths}"))
        }
        Error::NotWritable(paths) => {
            let mut directories: Vec<String> = paths
                .iter()
                .map(|path| {
                    let mut directory = bundle.manifest.project.clone();
                    if let Some(parent) = path.parent() {
                        directory.push(b'/');
                        directory.extend_from_slice(parent.as_bytes());
                    }
                    words::shell(&directory)
                })
                .collect();
            directories.sort();
            directories.dedup();
            problem.remedied_by(format!("chmod u+wx {}", directories.join(" ")))
        }
        Error::Busy => problem.remedied_by(format!("stockade apply {id}")),
        _ => problem,
    }
}
