//! `stockade apply --branch`: commits the changes of a bundle to a new branch.

use stockade_api::ApplyBundle;
use stockade_core::Problem;
use stockade_review::Bundles;

use crate::args::bundle::Apply;
use crate::output;
use crate::problem::short_id;
use crate::review::{Review, absolute, paths, text};

/// Commits the changes. It works on the files of this user, like `run`: a server has no part in it.
pub(super) fn run(arguments: &Apply) -> Result<u8, Problem> {
    let decision = &arguments.decision;
    // It completes what killed commands started.
    let review = Review::open()?;
    let bundles = Bundles::open(&crate::data_dir::data_path()?)?;
    let request = ApplyBundle {
        id: review.resolve_as_shown(&arguments.id)?,
        paths: paths(&arguments.paths),
        include_ignored: arguments.include_ignored,
        allow_executed: arguments.allow_executed,
        allow_unseen: arguments.allow_unseen,
        skip_unaccepted: arguments.skip_unaccepted,
        project: decision.project.as_deref().map(absolute).transpose()?,
        ..ApplyBundle::default()
    };
    let branch = decision.branch.as_deref().unwrap_or_default();
    let committed = bundles.commit_to_branch(&request, branch)?;
    if arguments.json {
        output::print_answer(&committed)?;
        return Ok(0);
    }
    output::print(&format!("{}\n", committed.commit))?;
    let id = short_id(&committed.id);
    let count = text::count_paths(committed.committed.len());
    eprint_line!("stockade: {count} committed to the branch {}", committed.branch);
    for skip in &committed.skipped {
        eprint_line!("  skipped: {}", text::skipped(skip));
    }
    eprint_line!("  the bundle still waits; delete it: stockade reject {id}");
    Ok(0)
}
