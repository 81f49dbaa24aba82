//! Texts for users about the content of a bundle.

use stockade_api::{Bundle, BundleChanges, Bytes};
use stockade_bundle::{Change, Entry, Node, RelativePath};
pub(crate) use stockade_review::messages::{
    executed_by, not_restored, refusal, shell_quote, skipped,
};

use crate::problem::short_id;

/// The mark of `git status` for an entry: `A`, `M`, `D`, `R`, or `T` for a change of type.
pub(crate) fn status_letter(entry: &Entry) -> char {
    match &entry.change {
        Change::Add { .. } if entry.renamed_from.is_some() => 'R',
        Change::Add { .. } => 'A',
        Change::Delete { .. } => 'D',
        Change::Modify { old, new }
            if std::mem::discriminant(old) != std::mem::discriminant(new) =>
        {
            'T'
        }
        Change::Modify { .. } => 'M',
    }
}

/// An entry's path, with the old path if it was renamed, and a slash if it is a directory.
pub(crate) fn path_text(entry: &Entry) -> String {
    let node = entry.change.new_node().or_else(|| entry.change.old());
    let slash = if matches!(node, Some(Node::Directory { .. })) { "/" } else { "" };
    match &entry.renamed_from {
        Some(from) => format!("{from} => {}{slash}", entry.path),
        None => format!("{}{slash}", entry.path),
    }
}

/// A number of paths.
pub(crate) fn count_paths(count: usize) -> String {
    if count == 1 { "1 path".to_owned() } else { format!("{count} paths") }
}

/// How many paths can be applied, and how many not by default, as in `1 path changed (40 ignored)`.
pub(crate) fn changed(changes: &BundleChanges) -> String {
    format!("{} changed{}", count_paths(changes.total), left(changes))
}

/// How many paths are not applied by default or applied already, in brackets; nothing if there are
/// none.
pub(crate) fn left(changes: &BundleChanges) -> String {
    let not = [
        (changes.ignored, "ignored"),
        (changes.refused as u64, "refused"),
        (changes.applied as u64, "applied"),
    ];
    let not = not.iter().filter(|(count, _)| *count > 0);
    let not: Vec<_> = not.map(|(count, what)| format!("{count} {what}")).collect();
    if not.is_empty() { String::new() } else { format!(" ({})", not.join(", ")) }
}

/// How many paths a bundle changes, and what can be done with it: only what works.
pub(crate) fn next_steps(changes: &BundleChanges, id: &str) -> String {
    let (changed, id) = (changed(changes), short_id(id));
    let apply = match changes {
        BundleChanges { total: 1.., .. } => format!("apply with `stockade apply {id}`, "),
        BundleChanges { ignored: 1.., .. } => {
            format!("apply with `stockade apply {id} --include-ignored`, ")
        }
        _ => String::new(),
    };
    format!("{changed}: show with `stockade diff {id}`, {apply}delete with `stockade reject {id}`")
}

/// A bundle on one line.
pub(crate) fn bundle(bundle: &Bundle) -> String {
    format!(
        "{}  {:.0}  {}  {}  {}",
        short_id(&bundle.id),
        bundle.created_at,
        changed(&bundle.changes),
        host_path(&bundle.project),
        command(&bundle.command),
    )
}

/// A command on one line, truncated if it is long.
pub(crate) fn command(words: &[String]) -> String {
    const MAX_CHARS: usize = 60;
    let line = words.iter().map(|word| shell_quote(word.as_bytes())).collect::<Vec<_>>().join(" ");
    if line.chars().count() <= MAX_CHARS {
        return line;
    }
    line.chars().take(MAX_CHARS - 1).chain(['…']).collect()
}

/// A path below the project's root.
pub(crate) fn path(path: &Bytes) -> String {
    RelativePath::new(path.0.as_slice()).map(|path| path.to_string()).unwrap_or_default()
}

/// A path of the host, as bundles record it.
pub(crate) fn host_path(path: &Bytes) -> String {
    let below = RelativePath::new(path.0.get(1..).unwrap_or_default());
    below.map(|path| format!("/{path}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_applied_is_counted_apart_from_the_rest() {
        let changes = BundleChanges { total: 1, ignored: 40, ..BundleChanges::default() };
        assert_eq!(changed(&changes), "1 path changed (40 ignored)");
        let changes = BundleChanges { refused: 2, applied: 3, total: 5, ..changes };
        assert_eq!(changed(&changes), "5 paths changed (40 ignored, 2 refused, 3 applied)");
        let changes = BundleChanges { total: 2, ..BundleChanges::default() };
        assert_eq!(changed(&changes), "2 paths changed");
    }

    #[test]
    fn only_steps_that_work_are_named() {
        let steps = |changes| next_steps(&changes, "0123456789abcdef");
        let changes = BundleChanges { refused: 2, ..BundleChanges::default() };
        assert!(!steps(changes).contains("stockade apply"), "{}", steps(changes));
        let changes = BundleChanges { ignored: 1, ..changes };
        assert!(steps(changes).contains("`stockade apply 0123456789ab --include-ignored`"));
        let changes = BundleChanges { total: 1, ..changes };
        assert!(steps(changes).contains("`stockade apply 0123456789ab`"));
    }
}
