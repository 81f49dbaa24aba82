//! `stockade bundles`: the bundles that wait for a decision, newest first, with
//! what killed runs left.

use serde_json::{Value, json};
use stockade_bundle::Entry;
use stockade_bundle::store::{Bundle, Listed, State};
use stockade_core::{Code, Problem};

use crate::args::Bundles;
use crate::problem::{caused, of_store, short};
use crate::review::{READING, Review, output, pending, words};
use crate::run;

/// Lists; bundles that cannot be read come last, with the reason.
pub(crate) fn run(arguments: &Bundles) -> Result<u8, Problem> {
    let review = Review::open()?;
    let kept = run::finish(&review.data, &run::bundle_limits(arguments.max_bundle))?;
    let listed = review.store.list(&READING).map_err(|e| of_store(&e))?;
    let mut waiting = Vec::new();
    for listed in listed {
        if !is_done(&listed) {
            waiting.push(listed);
        }
    }
    if arguments.json {
        let bundles: Vec<Value> = waiting.iter().map(as_json).collect();
        let views: Vec<Value> = kept
            .iter()
            .map(|kept| json!({ "id": kept.id, "path": kept.path, "error": kept.problem }))
            .collect();
        output::print_json(&json!({ "bundles": bundles, "views": views }))?;
    } else {
        tell(&waiting)?;
    }
    for kept in &kept {
        tell_kept(kept);
    }
    Ok(0)
}

/// A view that could not become a bundle, and what can be done about it.
#[expect(clippy::print_stderr, reason = "what is not data goes to stderr")]
fn tell_kept(kept: &run::Kept) {
    let problem = &kept.problem;
    let cause = problem.cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
    eprintln!("stockade: a killed run left its view: {}{cause}", problem.message);
    eprintln!("  it is in {}", kept.path.display());
    if problem.code == Code::BundleTooLarge {
        eprintln!("  to make a bundle of it: stockade bundles --max-bundle SIZE");
    }
    eprintln!("  to drop it: stockade reject {}", kept.id);
}

/// Whether nothing of it is left to decide.
fn is_done(listed: &Listed) -> bool {
    let Ok(bundle) = &listed.bundle else { return false };
    pending(bundle).is_ok_and(|left| left.is_empty())
        && bundle.state().is_ok_and(|state| !state.applied.is_empty())
}

fn as_json(listed: &Listed) -> Value {
    let read = listed.bundle.as_ref().map_err(of_store);
    let read = read.and_then(|bundle| Ok((bundle, bundle.state().map_err(|e| of_store(&e))?)));
    match read {
        Ok((bundle, state)) => described(bundle, &state),
        Err(problem) => json!({ "id": listed.id, "error": problem }),
    }
}

/// A bundle as one JSON object, without its entries.
pub(crate) fn described(bundle: &Bundle, state: &State) -> Value {
    let manifest = &bundle.manifest;
    let count =
        |wanted: fn(&Entry) -> bool| manifest.entries.iter().filter(|entry| wanted(entry)).count();
    json!({
        "id": bundle.id(),
        "project": String::from_utf8_lossy(&manifest.project),
        "createdAtMs": manifest.created_at_ms,
        "command": manifest.command,
        "exitCode": manifest.exit_code,
        "baseRef": manifest.base_ref,
        "state": state.status,
        "changes": {
            "total": manifest.entries.len(),
            "applied": state.applied.len(),
            "refused": count(|entry| entry.refused.is_some()),
            "ignored": count(|entry| entry.ignored),
            "executed": count(|entry| entry.executed_by.is_some()),
            "conflicting": count(|entry| entry.conflict),
        },
    })
}

#[expect(clippy::print_stderr, reason = "what is not data goes to stderr")]
fn tell(waiting: &[Listed]) -> Result<(), Problem> {
    if waiting.is_empty() {
        eprintln!("stockade: no bundle waits for a decision");
    }
    let mut text = String::new();
    for listed in waiting {
        let id = short(&listed.id);
        let line = match &listed.bundle {
            Ok(bundle) => {
                let state = bundle.state().map_err(|e| of_store(&e))?;
                let project = stockade_bundle::RelativePath::new(
                    bundle.manifest.project.get(1..).unwrap_or_default(),
                );
                format!(
                    "{id}  {:<14}  {:<28}  {}  {}",
                    words::age(bundle.manifest.created_at_ms),
                    counted(bundle, &state),
                    project.map(|path| format!("/{path}")).unwrap_or_default(),
                    command(&bundle.manifest.command),
                )
            }
            Err(error) => {
                let problem = caused(of_store(error).code, error);
                format!("{id}  cannot be read: {}", problem.message)
            }
        };
        text.push_str(&line);
        text.push('\n');
    }
    output::print(&text)
}

fn counted(bundle: &Bundle, state: &State) -> String {
    let total = bundle.manifest.entries.len();
    let paths = if total == 1 { "path" } else { "paths" };
    match state.applied.len() {
        0 => format!("{total} {paths}"),
        applied => format!("{total} {paths}, {applied} applied"),
    }
}

/// A command on one line, cut where it is long.
fn command(words: &[String]) -> String {
    const MOST: usize = 60;
    let line = words.iter().map(|word| words::shell(word.as_bytes())).collect::<Vec<_>>().join(" ");
    if line.chars().count() <= MOST {
        return line;
    }
    line.chars().take(MOST - 1).chain(['…']).collect()
}
