//! `stockade bundles`: the bundles that wait for a decision, newest first, including the
//! changes that killed runs left.

use stockade_api::{Bundle, BundleList, ListBundles, ListedBundle, StoredView};
use stockade_core::{Code, Problem};

use crate::args::Bundles;
use crate::args::sandbox_flags::Pair;
use crate::output;
use crate::problem::short_id;
use crate::review::{Review, text};

/// Prints the list; bundles that cannot be read come last, with the reason.
pub(crate) fn run(arguments: &Bundles) -> Result<u8, Problem> {
    let review = Review::open()?;
    stockade_jail::cgroup::sweep();
    let mut list = review.list(ListBundles {
        limit_bytes: arguments.max_bundle,
        limit_paths: arguments.max_paths,
    })?;
    list.bundles.retain(|listed| has_labels(listed, &arguments.label));
    if arguments.json {
        output::print_answer(&list)?;
    } else {
        print_list(&list)?;
    }
    for kept in &list.views {
        print_kept_view(kept);
    }
    for expired in &list.expired {
        let days = stockade_review::MAX_AGE.as_secs() / (24 * 60 * 60);
        eprint_line!(
            "stockade: deleted after {days} days without a decision: {}",
            describe(expired)
        );
    }
    Ok(0)
}

/// Whether a bundle has all of these labels. An unreadable one has none.
fn has_labels(listed: &ListedBundle, wanted: &[Pair]) -> bool {
    wanted.iter().all(|Pair(name, value)| match listed {
        ListedBundle::Bundle(bundle) => bundle.labels.get(name) == Some(value),
        ListedBundle::Unreadable { .. } => false,
    })
}

/// Reports a view that could not become a bundle, and what can be done about it.
fn print_kept_view(kept: &StoredView) {
    let problem = &kept.error;
    let cause = problem.cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
    eprint_line!(
        "stockade: a killed run left changes that are not a bundle yet: {}{cause}",
        problem.message
    );
    eprint_line!("  they are in {}", kept.path.lossy());
    if problem.code == Code::BundleTooLarge
        && let Some(command) = &problem.remediation
    {
        eprint_line!("  to make a bundle of them: {command}");
    }
    eprint_line!("  to delete them: stockade reject {}", kept.id);
}

fn print_list(list: &BundleList) -> Result<(), Problem> {
    if list.bundles.is_empty() {
        eprint_line!("stockade: no bundles");
    }
    let mut text = String::new();
    for listed in &list.bundles {
        let line = match listed {
            ListedBundle::Bundle(bundle) => describe(bundle),
            ListedBundle::Unreadable { id, error } => {
                format!("{}  cannot be read: {}", short_id(id), error.message)
            }
        };
        text.push_str(&line);
        text.push('\n');
    }
    output::print(&text)
}

fn describe(bundle: &Bundle) -> String {
    let project = bundle.project.0.get(1..).unwrap_or_default();
    format!(
        "{}  {:<14}  {:<28}  {}  {}",
        short_id(&bundle.id),
        text::age(bundle.created_at_ms),
        count_paths(bundle),
        stockade_bundle::RelativePath::new(project)
            .map(|path| format!("/{path}"))
            .unwrap_or_default(),
        text::command(&bundle.command),
    )
}

fn count_paths(bundle: &Bundle) -> String {
    let total = bundle.changes.total;
    let paths = if total == 1 { "path" } else { "paths" };
    match bundle.changes.applied {
        0 => format!("{total} {paths}"),
        applied => format!("{total} {paths}, {applied} applied"),
    }
}
