//! `stockade reject`: deletes bundles, even damaged ones, or the views that killed runs left.

use std::io::{BufRead as _, Write as _};

use serde_json::json;
use stockade_api::{Bundle, LATEST, ListBundles, ListedBundle, RejectBundle, RejectedBundle};
use stockade_core::{Code, Problem};

use crate::args::bundle::Reject;
use crate::problem::{Failure, short_id};
use crate::review::{Review, text};

/// Removes the bundles, even if some cannot be removed.
pub(crate) fn run(arguments: &Reject) -> Result<u8, Failure> {
    let review = Review::open()?;
    let ids = match arguments.all {
        true => all(&review)?,
        false => arguments.id.clone(),
    };
    let (mut rejected, mut failed) = (Vec::new(), Vec::new());
    for name in ids {
        let done = id_of(&review, &name, arguments.yes)
            .and_then(|id| review.reject(RejectBundle { id }))
            .map_err(|problem| (name, Failure::from(problem)));
        match done {
            Ok(done) => {
                if !arguments.json {
                    print(&done);
                }
                rejected.push(done);
            }
            Err(failure) => failed.push(failure),
        }
    }
    if !arguments.json && rejected.is_empty() && failed.is_empty() {
        eprint_line!("stockade: no bundles of this project");
    }
    let answer = json!({ "rejected": rejected });
    Failure::report(failed, arguments.json.then_some(answer))
}

/// The ids of all readable bundles of the current project.
fn all(review: &Review) -> Result<Vec<String>, Problem> {
    let listed = review.list_here(ListBundles::default())?.bundles.into_iter();
    let own = listed.filter_map(|listed| match listed {
        ListedBundle::Bundle(bundle) if review.is_current(&bundle) => Some(bundle.id),
        _ => None,
    });
    Ok(own.collect())
}

/// The id of the bundle to delete. What `latest` means can change, and a deletion cannot be undone, so
/// it needs a confirmation.
fn id_of(review: &Review, name: &str, yes: bool) -> Result<String, Problem> {
    if name != LATEST {
        return Ok(name.to_owned());
    }
    let bundle = review.latest_as_shown()?;
    if yes || confirms(&bundle) {
        return Ok(bundle.id);
    }
    let id = short_id(&bundle.id);
    let message = format!("`latest` is {id}, and a deletion cannot be undone, so nothing was done");
    Err(Problem::new(Code::InvalidInput, message)
        .because("name the bundle by its id, or confirm with --yes")
        .remedied_by(format!("stockade reject {id}")))
}

/// Asks on the terminal, if there is one.
fn confirms(bundle: &Bundle) -> bool {
    if !rustix::termios::isatty(std::io::stdin()) || !rustix::termios::isatty(std::io::stderr()) {
        return false;
    }
    let (id, changed) = (short_id(&bundle.id), text::changed(&bundle.changes));
    let (project, command) = (text::host_path(&bundle.project), text::command(&bundle.command));
    eprint_line!("stockade: {id}: {changed} in {project} by {command}");
    let mut answer = String::new();
    let mut to = std::io::stderr();
    let asked = to.write_all(b"Delete these changes? [y/N] ").and_then(|()| to.flush());
    let read = asked.and_then(|()| std::io::stdin().lock().read_line(&mut answer));
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

fn print(rejected: &RejectedBundle) {
    let id = short_id(&rejected.id);
    match &rejected.project {
        Some(project) => eprint_line!("stockade: {id} of {} rejected", text::host_path(project)),
        None => eprint_line!("stockade: {id} rejected"),
    }
}
