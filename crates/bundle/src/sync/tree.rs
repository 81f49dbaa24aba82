//! What a scan of a directory finds.

use std::collections::BTreeMap;

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

/// Leaves out of a tree what git would take for a repository at the destination: the file `HEAD` of a
/// directory that has `objects` and `refs`, or a `commondir`, there or here, in any letter case.
pub fn skip_repositories(scan: &mut Scan, destination: &Scan) {
    let named = |directory: Option<&RelativePath>, name: &str| {
        let is_it = |path: &RelativePath| {
            path.file_name().eq_ignore_ascii_case(name.as_bytes())
                && path.parent().as_ref() == directory
        };
        scan.tree.keys().chain(destination.tree.keys()).any(is_it)
    };
    let heads = scan.tree.keys().filter(|path| path.file_name().eq_ignore_ascii_case(b"HEAD"));
    let found: Vec<_> = heads
        .filter(|head| {
            let directory = head.parent();
            let has = |name| named(directory.as_ref(), name);
            (has("objects") && has("refs")) || has("commondir")
        })
        .cloned()
        .collect();
    for head in found {
        scan.tree.remove(&head);
        scan.skipped.insert(head, SkipReason::GitDirectory);
    }
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
