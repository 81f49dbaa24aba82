//! `stockade image rm`.

use serde_json::{Value, json};
use stockade_core::{Code, Problem};
use stockade_image::{Reference, Store};

use super::used::in_use;
use super::{find, open};
use crate::args::image::ImageRemove;
use crate::commands::print::{notify, print_text};
use crate::many_ids;
use crate::problem::Failure;
use crate::registry;
use crate::table::size;

/// Removes the images; those that can be removed are.
pub(super) fn run(arguments: &ImageRemove) -> Result<u8, Failure> {
    let (mut data, mut store) = open()?;
    if many_ids::enter_to_remove(&store)? {
        (data, store) = open()?;
    }
    let used = in_use(&data, &store)?;
    let (mut removed, mut bytes, mut failed) = (Vec::new(), 0, Vec::new());
    for name in &arguments.names {
        let found = names(&store, name).and_then(|names| {
            names.iter().try_for_each(|name| {
                let done =
                    store.remove(name, &used).map_err(|error| registry::store_problem(&error));
                let done = done.map_err(|problem| remedied(problem, name))?;
                bytes += done.bytes;
                removed.extend(done.records.into_iter().map(|record| record.reference));
                Ok(())
            })
        });
        match found {
            Err(problem) if arguments.force && problem.code == Code::ImageNotFound => {}
            Err(problem) => failed.push((name.clone(), Failure::from(problem))),
            Ok(()) => {}
        }
    }
    removed.sort();
    removed.dedup();
    let answer: Option<Value> =
        arguments.json.then(|| json!({ "removed": removed, "freedBytes": bytes }));
    if !arguments.json {
        let lines = removed.iter().map(|name| format!("{}\n", name.familiar()));
        print_text(&lines.collect::<String>())?;
        if bytes > 0 {
            notify(&format!("{} freed", size(bytes)));
        }
    }
    Failure::report(failed, answer)
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
