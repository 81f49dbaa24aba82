//! `stockade apply`: applies a bundle or some of its paths, all or nothing.

use std::collections::HashSet;

use stockade_api::{AppliedBundle, ApplyBundle, BundleDetail, ShowBundle};
use stockade_bundle::RelativePath;
use stockade_core::Problem;

use crate::args::Apply;
use crate::output;
use crate::problem::short_id;
use crate::review::{Review, paths, text};

/// Applies a bundle. The bundle is removed if nothing in it remains to be decided.
pub(crate) fn run(arguments: &Apply) -> Result<u8, Problem> {
    if arguments.commits {
        return super::commits::apply(arguments);
    }
    let review = Review::open()?;
    let request = ApplyBundle {
        id: arguments.id.clone(),
        paths: paths(&arguments.paths),
        include_ignored: arguments.include_ignored,
        allow_executed: arguments.allow_executed,
        allow_unseen: arguments.allow_unseen,
    };
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
    let count = applied.applied.len();
    let paths = if count == 1 { "path" } else { "paths" };
    eprint_line!("stockade: {count} {paths} applied");
    for skip in applied.skipped.iter().take(SHOWN) {
        let path = RelativePath::new(skip.path.0.as_slice());
        let path = path.map(|path| path.to_string()).unwrap_or_default();
        eprint_line!("  skipped: {path} {}", skip.reason);
    }
    if applied.skipped.len() > SHOWN {
        eprint_line!("  skipped: {} more", applied.skipped.len() - SHOWN);
    }
    if !applied.done {
        eprint_line!("  show the rest: stockade diff {id}; delete it: stockade reject {id}");
    }
}
