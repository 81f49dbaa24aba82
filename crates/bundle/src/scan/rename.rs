//! Finding renames: a deletion and an addition of the same content, or of similar texts.

use std::collections::{HashMap, HashSet};
use std::io::Read as _;

use crate::beneath::Dir;
use crate::manifest::{Change, ContentHash, Entry, Node};
use crate::patch::Fingerprint;
use crate::path::RelativePath;

/// The most deletions of the same content that are examined for one addition.
const CANDIDATES: usize = 64;

/// The most deletions, and the most additions, of which the texts are compared, as in git.
const MAX_TEXTS: usize = 1000;

/// The longest text that is compared.
const MAX_TEXT_BYTES: u64 = 1 << 20;

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

/// Pairs the additions and deletions that are left, by the similarity of their texts: the most similar
/// first, of equally similar ones those with the same file name.
pub(super) fn pair_similar(entries: &mut [Entry], layer: &Dir, project: &Dir) {
    let taken: HashSet<RelativePath> =
        entries.iter().filter_map(|entry| entry.renamed_from.clone()).collect();
    let mut deleted = Vec::new();
    let mut added = Vec::new();
    for (at, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.refused.is_none()) {
        match &entry.change {
            Change::Delete { old } if is_text_size(old) && !taken.contains(&entry.path) => {
                deleted.push(at);
            }
            Change::Add { new } if is_text_size(new) && entry.renamed_from.is_none() => {
                added.push(at);
            }
            _ => {}
        }
    }
    if deleted.is_empty() || added.is_empty() || deleted.len().max(added.len()) > MAX_TEXTS {
        return;
    }
    let texts = |places: Vec<usize>, dir: &Dir| -> Vec<(usize, Fingerprint)> {
        let text = |at: usize| Some((at, read(dir, &entries[at].path)?));
        places.into_iter().filter_map(text).collect()
    };
    let (deleted, added) = (texts(deleted, project), texts(added, layer));
    let mut pairs = Vec::new();
    for (to, new) in &added {
        for (from, old) in &deleted {
            let (one, other) = (&entries[*from], &entries[*to]);
            let is_alike = one.ignored == other.ignored && one.executed_by == other.executed_by;
            if is_alike && old.is_rename(new) {
                let has_other_name = one.path.file_name() != other.path.file_name();
                pairs.push((std::cmp::Reverse(old.percent(new)), has_other_name, *from, *to));
            }
        }
    }
    pairs.sort_unstable();
    let mut used = HashSet::new();
    for (_, _, from, to) in pairs {
        if !used.contains(&from) && !used.contains(&to) {
            used.extend([from, to]);
            entries[to].renamed_from = Some(entries[from].path.clone());
        }
    }
}

fn is_text_size(node: &Node) -> bool {
    matches!(node, Node::File { size, .. } if (1..=MAX_TEXT_BYTES).contains(size))
}

/// What is compared of a text; `None` if it is not one.
fn read(dir: &Dir, path: &RelativePath) -> Option<Fingerprint> {
    let mut content = Vec::new();
    dir.open_file(path).ok()?.take(MAX_TEXT_BYTES + 1).read_to_end(&mut content).ok()?;
    let is_text = content.len() as u64 <= MAX_TEXT_BYTES && !content.contains(&0);
    is_text.then(|| Fingerprint::of(&content))
}
