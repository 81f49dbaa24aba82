//! Finding renames: a deletion and an addition of the same content.

use std::collections::HashMap;

use crate::manifest::{Change, ContentHash, Entry, Node};
use crate::path::RelativePath;

/// The most deletions of the same content that are examined for one addition.
const CANDIDATES: usize = 64;

/// What must be equal on both sides, including the mode. Empty files are too similar to be
/// matched.
#[derive(PartialEq, Eq, Hash)]
enum Content {
    File(ContentHash, u32),
    Symlink(Vec<u8>),
}

fn content(node: &Node) -> Option<Content> {
    match node {
        Node::File { hash, size, mode } if *size > 0 => Some(Content::File(*hash, *mode)),
        Node::Symlink { target } => Some(Content::Symlink(target.clone())),
        Node::File { .. } | Node::Directory { .. } => None,
    }
}

/// Pairs each addition, in order, with an unpaired deletion of the same content, preferably one
/// of the same file name. Both must be treated alike when they are applied: neither is refused,
/// and both are ignored or executed, or neither.
pub(super) fn pair(entries: &mut [Entry]) {
    let mut deleted: HashMap<Content, Vec<usize>> = HashMap::new();
    for (at, entry) in entries.iter().enumerate().rev() {
        if entry.refused.is_none()
            && let Change::Delete { old } = &entry.change
            && let Some(content) = content(old)
        {
            deleted.entry(content).or_default().push(at);
        }
    }
    if deleted.is_empty() {
        return;
    }
    let mut pairs: Vec<(usize, RelativePath)> = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let Change::Add { new } = &entry.change else { continue };
        let candidates = content(new).and_then(|content| deleted.get_mut(&content));
        let Some(candidates) = candidates.filter(|_| entry.refused.is_none()) else { continue };
        // The last candidate is the first in path order.
        let fitting: Vec<usize> = (0..candidates.len())
            .rev()
            .take(CANDIDATES)
            .filter(|place| {
                let from = &entries[candidates[*place]];
                from.ignored == entry.ignored && from.executed_by == entry.executed_by
            })
            .collect();
        let same_name = fitting
            .iter()
            .find(|place| entries[candidates[**place]].path.file_name() == entry.path.file_name());
        if let Some(found) = same_name.or_else(|| fitting.first()).copied() {
            pairs.push((at, entries[candidates.remove(found)].path.clone()));
        }
    }
    for (at, from) in pairs {
        entries[at].renamed_from = Some(from);
    }
}
