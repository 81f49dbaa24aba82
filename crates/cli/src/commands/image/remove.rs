//! `stockade image rm`.

use serde_json::{Value, json};
use stockade_api::{RemoveImage, RemovedImages};
use stockade_core::{Code, Problem};
use stockade_image::{Reference, Removed, Store};

use super::used::in_use;
use super::{find, open};
use crate::args::image::ImageRemove;
use crate::args::sandbox::ServerMode;
use crate::commands::print::{notify, print_text};
use crate::many_ids;
use crate::problem::Failure;
use crate::registry;
use crate::remote;
use crate::remote::chosen::chosen;
use crate::table::size;

/// Removes the images; those that can be removed are.
pub(super) fn run(arguments: &ImageRemove) -> Result<u8, Failure> {
    let done = match chosen() {
        Some(_) => remove_there(&arguments.names)?,
        None => remove_here(&arguments.names)?,
    };
    let (mut removed, mut bytes, mut failed) = (Vec::new(), 0_u64, Vec::new());
    for (name, done) in done {
        match done {
            Err(problem) if arguments.force && problem.code == Code::ImageNotFound => {}
            Err(problem) => failed.push((name, Failure::from(problem))),
            Ok(done) => {
                removed.extend(done.removed);
                bytes = bytes.saturating_add(done.freed_bytes);
            }
        }
    }
    removed.sort();
    removed.dedup();
    let answer: Option<Value> =
        arguments.json.then(|| json!({ "removed": removed, "freedBytes": bytes }));
    if !arguments.json {
        let familiar = |name: &String| match name.parse::<Reference>() {
            Ok(name) => name.familiar(),
            Err(_) => name.clone(),
        };
        let lines = removed.iter().map(|name| format!("{}\n", familiar(name)));
        print_text(&lines.collect::<String>())?;
        if bytes > 0 {
            notify(&format!("{} freed", size(bytes)));
        }
    }
    Failure::report(failed, answer)
}

/// What was removed for each name or id, or why it was not.
type Done = Vec<(String, Result<RemovedImages, Problem>)>;

/// Removes images from the store of this machine.
fn remove_here(texts: &[String]) -> Result<Done, Failure> {
    let (mut data, mut store) = open()?;
    if many_ids::enter_to_remove(&store)? {
        (data, store) = open()?;
    }
    let used = in_use(&data, &store)?;
    let mut done = Vec::new();
    for text in texts {
        match names(&store, text) {
            Ok(names) => done.extend(names.iter().map(|name| {
                let removed = store.remove(name, &used);
                let removed = removed.map_err(|error| registry::store_problem(&error));
                (text.clone(), removed.map(answer).map_err(|problem| remedied(problem, name)))
            })),
            Err(problem) => done.push((text.clone(), Err(problem))),
        }
    }
    Ok(done)
}

fn answer(removed: Removed) -> RemovedImages {
    let names = removed.records.iter().map(|record| record.reference.to_string());
    RemovedImages { removed: names.collect(), freed_bytes: removed.bytes }
}

/// Removes images from the store of a server at a URL.
fn remove_there(texts: &[String]) -> Result<Done, Failure> {
    remote::with(ServerMode { in_process: false }, async |remote| {
        let mut done = Vec::new();
        for text in texts {
            let request = RemoveImage { image: text.clone() };
            let removed = remote.sandboxes.remove_image(&remote.idempotent(), request).await;
            done.push((text.clone(), removed));
        }
        Ok(done)
    })
}

/// The names that a name or an id means.
fn names(store: &Store, text: &str) -> Result<Vec<Reference>, Problem> {
    let found = find(store, text).map_err(|problem| match problem.code {
        // To download it in order to remove it helps nobody.
        Code::ImageNotFound => problem.remedied_by("stockade image ls"),
        _ => problem,
    });
    let mut names: Vec<_> = found?.into_iter().map(|record| record.reference).collect();
    names.dedup();
    Ok(names)
}

fn remedied(problem: Problem, name: &Reference) -> Problem {
    let message = format!("the image {} is used", name.familiar());
    match problem.code {
        Code::ImageInUse => Problem { message, cause: Some(problem.message), ..problem },
        _ => problem,
    }
}
