//! Texts for users about the content of a bundle.

use std::time::{SystemTime, UNIX_EPOCH};

use stockade_bundle::{Change, Entry, Node};
pub(crate) use stockade_review::messages::{executed_by, not_restored, refusal, shell_quote};

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

/// How many paths a bundle changes, and what can be done with it.
pub(crate) fn next_steps(count: usize, id: &str) -> String {
    let (paths, id) = (count_paths(count), short_id(id));
    format!(
        "{paths} changed: show with `stockade diff {id}`, apply with `stockade apply {id}`, delete with `stockade reject {id}`"
    )
}

/// How long ago a time was, roughly.
pub(crate) fn age(created_at_ms: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    let seconds = now_ms.saturating_sub(created_at_ms) / 1000;
    let (count, unit) = match seconds {
        0..60 => return "just now".to_owned(),
        60..3_600 => (seconds / 60, "minute"),
        3_600..86_400 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural} ago")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_rounded_down() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        let now = u64::try_from(now).unwrap();
        assert_eq!(age(now), "just now");
        assert_eq!(age(now - 61_000), "1 minute ago");
        assert_eq!(age(now - 2 * 86_400_000 - 5_000), "2 days ago");
        assert_eq!(age(u64::MAX), "just now");
    }
}
