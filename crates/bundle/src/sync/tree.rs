//! What a scan of a directory finds.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::manifest::Node;
use crate::path::RelativePath;

/// How many directories may be within each other, as in a tree that is copied as a stream.
pub const MAX_DEPTH: usize = 127;

/// The start of the names of files that exist only while something is being written.
pub const TEMPORARY: &str = ".stockade-";

/// The permission bits that a directory of the host gets from elsewhere: none with which other users
/// can change a file.
const WRITE_MODE: u32 = 0o755;

/// A tree of files: what was last the same on both sides.
pub type Nodes = BTreeMap<RelativePath, Node>;

/// A file, link or directory, and when its content was last changed, if that is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// What it is.
    pub node: Node,
    /// Seconds since 1970, and nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<(i64, u32)>,
}

/// Why a path is not copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// A pattern excludes it.
    Excluded,
    /// A `.gitignore` names it.
    Ignored,
    /// It is the directory of a git repository, or a file that exists only during a copy.
    GitDirectory,
    /// An access rule denies it.
    AccessDenied,
    /// It is a link that leads out of the tree.
    UnsafeLink,
    /// It is neither file, directory nor link, or lies too deep.
    SpecialFile,
    /// It could not be read.
    Unreadable,
    /// It is larger than allowed.
    TooLarge,
    /// It changed while it was copied.
    ChangedMeanwhile,
    /// It was changed on both sides.
    Conflict,
    /// Only the destination has changed it since the last time.
    NewerAtDestination,
    /// It is at the destination only, and is protected by a pattern or a `.gitignore`.
    Protected,
}

/// What a scan has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// What is part of the tree.
    pub tree: BTreeMap<RelativePath, Found>,
    /// What is not, without what lies below it.
    pub skipped: BTreeMap<RelativePath, SkipReason>,
}

impl Scan {
    /// The first path that could not be read.
    pub fn unreadable(&self) -> Option<&RelativePath> {
        let is_error = |reason: SkipReason| {
            matches!(reason, SkipReason::Unreadable | SkipReason::ChangedMeanwhile)
        };
        self.skipped.iter().find(|(_, reason)| is_error(**reason)).map(|(path, _)| path)
    }

    /// How many files and links there are, and the bytes of the files.
    pub fn size(&self) -> (u64, u64) {
        self.tree.values().fold((0, 0), |(count, bytes), found| match &found.node {
            Node::File { size, .. } => (count + 1, bytes + size),
            Node::Symlink { .. } => (count + 1, bytes),
            Node::Directory { .. } => (count, bytes),
        })
    }

    /// Whether a path, or a directory above it, was left out.
    pub fn is_skipped(&self, path: &RelativePath) -> bool {
        self.skip_reason(path).is_some()
    }

    /// Why a path, or a directory above it, was left out.
    pub fn skip_reason(&self, path: &RelativePath) -> Option<SkipReason> {
        let above = std::iter::successors(Some(path.clone()), RelativePath::parent);
        { above }.find_map(|path| self.skipped.get(&path).copied())
    }
}

/// The names that make a directory a repository, or that git obeys in one.
const REPOSITORY: [&str; 8] =
    ["HEAD", "objects", "refs", "commondir", "config", "config.worktree", "gitdir", "hooks"];

/// Leaves out of a tree what git would take for a repository at the destination: a directory that has
/// `HEAD`, `objects` and `refs`, or `HEAD` and a `commondir`, some of them there and some here, in any
/// letter case. What makes it a repository stays as it is there.
pub fn skip_repositories(scan: &mut Scan, destination: &Scan) {
    let mut named: BTreeMap<Option<RelativePath>, BTreeSet<&str>> = BTreeMap::new();
    for side in [&*scan, destination] {
        // What is left out here may have been copied earlier.
        for path in side.tree.keys().chain(side.skipped.keys()) {
            // A directory that is not included itself exists if something in it is.
            for path in std::iter::successors(Some(path.clone()), RelativePath::parent) {
                if let Some(name) = repository_name(&path) {
                    named.entry(path.parent()).or_default().insert(name);
                }
            }
        }
    }
    named.retain(|_, names| {
        let has = |name| names.contains(name);
        has("HEAD") && ((has("objects") && has("refs")) || has("commondir"))
    });
    if named.is_empty() {
        return;
    }
    let is_part =
        |path: &RelativePath| repository_name(path).is_some() && named.contains_key(&path.parent());
    let parts: BTreeSet<_> = { scan.tree.keys() }
        .flat_map(|path| std::iter::successors(Some(path.clone()), RelativePath::parent))
        .filter(is_part)
        .collect();
    for part in parts {
        scan.tree.retain(|path, _| !path.is_within(&part));
        scan.skipped.retain(|path, _| !path.is_within(&part));
        scan.skipped.insert(part, SkipReason::GitDirectory);
    }
}

fn repository_name(path: &RelativePath) -> Option<&'static str> {
    let name = path.file_name();
    REPOSITORY.into_iter().find(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// Whether two nodes have the same content; permissions are not compared.
pub fn same(one: &Node, other: &Node) -> bool {
    match (one, other) {
        (Node::File { hash, .. }, Node::File { hash: other, .. }) => hash == other,
        (Node::Symlink { target }, Node::Symlink { target: other }) => target == other,
        (Node::Directory { .. }, Node::Directory { .. }) => true,
        _ => false,
    }
}

/// The permission bits of a node that comes from elsewhere, on the host.
pub fn write_mode(mode: u32) -> u32 {
    mode & WRITE_MODE
}

/// Whether a name is that of a file that exists only during a copy.
pub fn is_temporary(name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(TEMPORARY.as_bytes()) else { return false };
    rest.starts_with(b"sync-") || (rest.len() == 16 && rest.iter().all(u8::is_ascii_hexdigit))
}

/// Whether a symbolic link at this depth below the top of a tree leads to a place in the tree. Only
/// the start of the target may be `..`: after a name, `..` depends on what that name is.
#[must_use]
pub fn stays_inside(target: &[u8], depth: usize) -> bool {
    if target.starts_with(b"/") {
        return false;
    }
    let (mut above, mut named) = (0, false);
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if named => return false,
            b".." => above += 1,
            _ => named = true,
        }
    }
    above <= depth
}
