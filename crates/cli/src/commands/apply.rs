//! `stockade apply`: applies a bundle or some of its paths, all or nothing.

use std::collections::HashSet;

use stockade_api::{AppliedBundle, ApplyBundle, BundleDetail, Conflicts, ShowBundle};
use stockade_core::Problem;

use super::{branch, hunks};
use crate::args::bundle::Apply;
use crate::output;
use crate::problem::short_id;
use crate::review::{Review, absolute, paths, text};

/// Applies a bundle. The bundle is removed if nothing in it remains to be decided.
pub(crate) fn run(arguments: &Apply) -> Result<u8, Problem> {
    if arguments.commits {
        return super::commits::apply(arguments);
    }
    let decision = &arguments.decision;
    if decision.branch.is_some() {
        return branch::run(arguments);
    }
    let review = Review::open()?;
    let request = ApplyBundle {
        id: review.resolve_as_shown(&arguments.id)?,
        paths: paths(&arguments.paths),
        include_ignored: arguments.include_ignored,
        allow_executed: arguments.allow_executed,
        allow_unseen: arguments.allow_unseen,
        skip_unaccepted: arguments.skip_unaccepted,
        conflicts: match (decision.ours, decision.theirs, decision.merge) {
            (true, ..) => Conflicts::Ours,
            (_, true, _) => Conflicts::Theirs,
            (_, _, true) => Conflicts::Merge,
            _ => Conflicts::Refuse,
        },
        markers: decision.markers,
        hunks: Vec::new(),
        project: decision.project.as_deref().map(absolute).transpose()?,
    };
    if decision.interactive {
        let Some(request) = hunks::choose(&review, request)? else {
            eprint_line!("stockade: nothing was chosen");
            return Ok(0);
        };
        let detail = review.show(ShowBundle { id: request.id.clone(), paths: Vec::new() })?;
        let applied = review.apply(request)?;
        output::print(&change_lines(&detail, &applied)?)?;
        print_summary(&applied);
        return Ok(0);
    }
    if arguments.json {
        output::print_answer(&review.apply(request)?)?;
        return Ok(0);
    }
    let detail = review.show(ShowBundle { id: request.id, paths: Vec::new() })?;
    let applied = review.apply(ApplyBundle { id: detail.bundle.id.clone(), ..request })?;
    output::print(&change_lines(&detail, &applied)?)?;
    print_summary(&applied);
    Ok(0)
}

fn change_lines(detail: &BundleDetail, applied: &AppliedBundle) -> Result<String, Problem> {
    let changed: HashSet<&[u8]> = applied.applied.iter().map(|path| path.0.as_slice()).collect();
    let mut text = String::new();
    for (entry, _) in stockade_review::entries(detail)? {
        if changed.contains(entry.path.as_bytes()) {
            text.push_str(&format!(
                "{} {}\n",
                text::status_letter(&entry),
                text::path_text(&entry)
            ));
        }
    }
    Ok(text)
}

fn print_summary(applied: &AppliedBundle) {
    const SHOWN: usize = 50;
    let id = short_id(&applied.id);
    let paths = text::count_paths(applied.applied.len());
    eprint_line!("stockade: {paths} applied to {}", text::host_path(&applied.project));
    if !applied.already.is_empty() {
        let already = text::count_paths(applied.already.len());
        eprint_line!("  {already} in the project had these changes already");
    }
    for (paths, what) in [
        (&applied.merged, "merged with the host's changes"),
        (&applied.marked, "contains conflicts between markers; edit it before you use it"),
        (&applied.kept, "kept as the host has it"),
    ] {
        for path in paths.iter().take(SHOWN) {
            eprint_line!("  {}: {what}", text::path(path));
        }
        if paths.len() > SHOWN {
            eprint_line!("  {} more: {what}", paths.len() - SHOWN);
        }
    }
    for skip in applied.skipped.iter().take(SHOWN) {
        eprint_line!("  skipped: {}", text::skipped(skip));
    }
    if applied.skipped.len() > SHOWN {
        eprint_line!("  skipped: {} more", applied.skipped.len() - SHOWN);
    }
    if !applied.done {
        eprint_line!("  show the rest: stockade diff {id}; delete it: stockade reject {id}");
    }
}
