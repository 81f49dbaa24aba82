//! Ignored directories with many changed paths, such as `node_modules`: a bundle has one entry for each.
//! The entries for the single paths are in a listing, which is stored like the content of a file.

use std::collections::HashMap;

use crate::beneath;
use crate::manifest::{Change, ContentHash, Entry, IgnoredTree, Node};
use crate::path::RelativePath;
use crate::policy;
use crate::project::Project;

/// A directory of at most this many changed paths is not one thing: each path can be seen.
pub(crate) const MIN_PATHS: u64 = 1_000;

/// How many paths all ignored directories of a bundle may have together.
pub const MAX_PATHS: u64 = 1_000_000;

/// The largest listing that is read.
pub(crate) const MAX_LISTING_BYTES: u64 = 1 << 30;

/// The listing of an ignored directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The hash of the text.
    pub hash: ContentHash,
    /// The entries, as JSON.
    pub text: Vec<u8>,
    /// The entries.
    pub entries: Vec<Entry>,
}

/// Why a listing is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not what the entry says.
    #[error("the listing of {0} is not the one that the bundle was created with")]
    Altered(RelativePath),
    /// It is not JSON, or not a list of entries.
    #[error("the listing of {path} cannot be read")]
    Form {
        /// The directory.
        path: RelativePath,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// Replaces the entries of each ignored directory with many of them by one entry. Returns the
/// listings.
pub(crate) fn collapse(
    entries: &mut Vec<Entry>,
    project: &Project,
) -> Result<Vec<Listing>, beneath::Error> {
    let tops = tops(entries);
    if tops.is_empty() {
        return Ok(Vec::new());
    }
    let mut groups: HashMap<RelativePath, Vec<Entry>> = HashMap::new();
    let mut rest = Vec::new();
    for entry in std::mem::take(entries) {
        let top = ancestors(&entry.path).find(|path| tops.contains_key(path));
        match top {
            Some(top) => groups.entry(top).or_default().push(entry),
            None => rest.push(entry),
        }
    }
    let mut listings = Vec::new();
    for (path, group) in groups {
        let (entry, listing) = of_group(path, group, project)?;
        rest.push(entry);
        listings.push(listing);
    }
    rest.sort_by(|a, b| a.path.cmp(&b.path));
    listings.sort_by_key(|listing| listing.hash);
    *entries = rest;
    Ok(listings)
}

/// The number of ignored entries at and below a directory, and whether there are others.
#[derive(Debug, Clone, Copy, Default)]
struct Content {
    ignored: u64,
    has_others: bool,
}

/// The directories that become one entry, each without one above it.
fn tops(entries: &[Entry]) -> HashMap<RelativePath, Content> {
    if entries.iter().filter(|entry| entry.ignored).count() as u64 <= MIN_PATHS {
        return HashMap::new();
    }
    let mut contents: HashMap<RelativePath, Content> = HashMap::new();
    for entry in entries {
        for path in ancestors(&entry.path) {
            let content = contents.entry(path).or_default();
            content.ignored += u64::from(entry.ignored);
            // What can never be applied does not count on either side.
            content.has_others |= !entry.ignored && entry.refused.is_none();
        }
    }
    contents.retain(|_, content| content.ignored > MIN_PATHS && !content.has_others);
    contents
}

/// The path and those above it, from the topmost one.
fn ancestors(path: &RelativePath) -> impl Iterator<Item = RelativePath> {
    let mut all = vec![path.clone()];
    while let Some(parent) = all.last().and_then(RelativePath::parent) {
        all.push(parent);
    }
    all.into_iter().rev()
}

fn of_group(
    path: RelativePath,
    group: Vec<Entry>,
    project: &Project,
) -> Result<(Entry, Listing), beneath::Error> {
    let own = group.iter().find(|entry| entry.path == path).map(|entry| entry.change.clone());
    let change = match own {
        Some(change) => change,
        None => {
            let mode = project.dir.stat(&path)?.map_or(0o755, |stat| stat.mode & 0o777);
            let node = Node::Directory { mode };
            Change::Modify { old: node.clone(), new: node }
        }
    };
    let bytes = group.iter().map(new_bytes).fold(0, u64::saturating_add);
    // A list of entries is always valid JSON.
    let text = serde_json::to_vec(&group).unwrap_or_default();
    let hash = ContentHash::of(&text);
    let entry = Entry {
        path,
        change,
        renamed_from: None,
        ignored: true,
        refused: None,
        executed_by: group.iter().find_map(|entry| entry.executed_by),
        conflict: group.iter().any(|entry| entry.conflict),
        base_known: false,
        tree: Some(IgnoredTree { listing: hash, paths: group.len() as u64, bytes }),
    };
    Ok((entry, Listing { hash, text, entries: group }))
}

fn new_bytes(entry: &Entry) -> u64 {
    match entry.change.new_node() {
        Some(Node::File { size, .. }) => *size,
        _ => 0,
    }
}

/// The entries of a listing, checked as those of a manifest are.
pub(crate) fn parse(
    path: &RelativePath,
    tree: &IgnoredTree,
    text: &[u8],
    project: &[u8],
) -> Result<Vec<Entry>, Error> {
    let altered = || Error::Altered(path.clone());
    if ContentHash::of(text) != tree.listing {
        return Err(altered());
    }
    let mut entries: Vec<Entry> = serde_json::from_slice(text)
        .map_err(|source| Error::Form { path: path.clone(), source })?;
    let is_sorted = entries.windows(2).all(|pair| pair[0].path < pair[1].path);
    let is_below = |entry: &Entry| entry.path.is_within(path) && entry.tree.is_none();
    if entries.len() as u64 != tree.paths || !is_sorted || !entries.iter().all(is_below) {
        return Err(altered());
    }
    entries.iter_mut().for_each(|entry| policy::classify(entry, project));
    Ok(entries)
}

#[cfg(test)]
mod tests;
