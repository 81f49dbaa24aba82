//! `stockade bundles`: the bundles of the current project that wait for a decision, newest first,
//! including the changes that killed runs left.

use stockade_api::{Bundle, BundleList, ListBundles, ListedBundle, StoredView};
use stockade_core::{Code, Problem};

use crate::args::bundle::Bundles;
use crate::args::sandbox_flags::Pair;
use crate::output;
use crate::problem::short_id;
use crate::request::no_limit;
use crate::review::{Review, text};
use crate::table::Table;

/// Prints the list; bundles that cannot be read come last, with the reason.
pub(crate) fn run(arguments: &Bundles) -> Result<u8, Problem> {
    let review = Review::open()?;
    stockade_jail::cgroup::sweep();
    let mut list = review.list(ListBundles {
        limit_bytes: arguments.max_bundle.map(no_limit),
        limit_paths: arguments.max_paths,
        stored_only: false,
    })?;
    let newest = list.bundles.iter().find_map(|listed| match listed {
        ListedBundle::Bundle(bundle) if review.is_current(bundle) => Some(bundle.clone()),
        _ => None,
    });
    let mut others = 0_usize;
    list.bundles.retain(|listed| match listed {
        ListedBundle::Bundle(bundle)
            if !(arguments.all
                || review.is_current(bundle)
                || review.server_of(bundle).is_some()) =>
        {
            others += 1;
            false
        }
        // The project of an unreadable bundle is unknown.
        listed => has_labels(listed, &arguments.label),
    });
    if arguments.json {
        output::print_answer(&list)?;
    } else {
        print_list(&review, &list, arguments.all)?;
        if others > 0 {
            let bundles = if others == 1 { "bundle" } else { "bundles" };
            eprint_line!("stockade: {others} {bundles} of other projects: stockade bundles --all");
        }
    }
    for kept in &list.views {
        print_kept_view(kept);
    }
    if let Some(newest) = newest {
        review.record_shown(&newest);
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

fn print_list(review: &Review, list: &BundleList, all: bool) -> Result<(), Problem> {
    if list.bundles.is_empty() {
        let place = if all { "" } else { " of this project" };
        eprint_line!("stockade: no bundles{place}");
        return Ok(());
    }
    let mut table = Table::new(["ID", "CREATED", "CHANGES", "PROJECT", "LABELS", "COMMAND"]);
    for listed in &list.bundles {
        table.row(match listed {
            ListedBundle::Bundle(bundle) => {
                let path = if all { text::host_path(&bundle.project) } else { String::new() };
                let server = review.server_of(bundle);
                let path = server
                    .map_or(path, |url| format!("{} on {url}", text::host_path(&bundle.project)));
                row(bundle, path)
            }
            ListedBundle::Unreadable { id, error } => {
                let reason = format!("cannot be read: {}", error.message);
                let none = String::new;
                [short_id(id).to_owned(), none(), reason, none(), none(), none()]
            }
        });
    }
    output::print(&table.text())
}

fn row(bundle: &Bundle, project: String) -> [String; 6] {
    let labels = bundle.labels.iter().map(|(name, value)| format!("{name}={value}"));
    [
        short_id(&bundle.id).to_owned(),
        format!("{:.0}", bundle.created_at),
        text::changed(&bundle.changes),
        project,
        labels.collect::<Vec<_>>().join(","),
        text::command(&bundle.command),
    ]
}
