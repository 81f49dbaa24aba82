//! Merging what is at one path: its type, its content and its permission bits.

use super::Options;
use super::text::{self, Favor};
use crate::apply::error::Difference;
use crate::manifest::{ContentHash, Node};

/// A content with a NUL byte within this many bytes is not text, as for git.
const TEXT_PROBE_BYTES: usize = 8000;

/// What there was before both changes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Base<'n> {
    /// Nothing.
    Nothing,
    /// This node.
    Node(&'n Node),
    /// It is not known.
    Unknown,
}

/// The contents of the three sides, read when they are needed. `None` if a content is not available,
/// or too large.
pub(super) trait Contents {
    fn base(&mut self, hash: ContentHash) -> Option<Vec<u8>>;
    fn ours(&mut self) -> Option<Vec<u8>>;
    fn theirs(&mut self, hash: ContentHash) -> Option<Vec<u8>>;
}

/// The result at one path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NodeMerge {
    /// The project keeps what it has.
    Ours,
    /// The bundle's node replaces what the project has; nothing if it is a deletion.
    Theirs,
    /// A file that neither side has: its content, permission bits, and whether conflicts are marked
    /// in it.
    File { content: Vec<u8>, mode: u32, is_marked: bool },
    /// This cannot be decided.
    Conflict(Difference),
}

/// Merges what both sides have made of a path. `None` is nothing.
pub(super) fn merge(
    base: Base<'_>,
    ours: Option<&Node>,
    theirs: Option<&Node>,
    options: &Options<'_>,
    contents: &mut dyn Contents,
) -> NodeMerge {
    let merged = match (ours, theirs) {
        (ours, theirs) if ours == theirs => NodeMerge::Ours,
        (Some(Node::File { .. }), Some(Node::File { .. })) => {
            return files(base, (ours, theirs), options, contents);
        }
        (Some(Node::Symlink { .. }), Some(Node::Symlink { .. })) => match base {
            Base::Node(base) if Some(base) == ours => NodeMerge::Theirs,
            Base::Node(base) if Some(base) == theirs => NodeMerge::Ours,
            _ => NodeMerge::Conflict(Difference::Target),
        },
        // Git does not track the permission bits of directories.
        (Some(Node::Directory { .. }), Some(Node::Directory { .. })) => NodeMerge::Ours,
        // Whether it is empty is verified before it is removed.
        (Some(Node::Directory { .. }), None) => NodeMerge::Theirs,
        (Some(_), None) => NodeMerge::Conflict(Difference::Content),
        (None, _) => NodeMerge::Conflict(Difference::Missing),
        (Some(_), Some(_)) => NodeMerge::Conflict(Difference::Type),
    };
    favored(merged, options.favor)
}

/// The decision for the favored side, if there is one.
fn favored(merged: NodeMerge, favor: Option<Favor>) -> NodeMerge {
    match (merged, favor) {
        (NodeMerge::Conflict(_), Some(Favor::Ours)) => NodeMerge::Ours,
        (NodeMerge::Conflict(_), Some(Favor::Theirs)) => NodeMerge::Theirs,
        (merged, _) => merged,
    }
}

fn files(
    base: Base<'_>,
    (ours, theirs): (Option<&Node>, Option<&Node>),
    options: &Options<'_>,
    contents: &mut dyn Contents,
) -> NodeMerge {
    let (Some((our_hash, our_mode)), Some((their_hash, their_mode))) = (file(ours), file(theirs))
    else {
        return NodeMerge::Conflict(Difference::Type);
    };
    let before = match base {
        Base::Node(node) => file(Some(node)),
        Base::Nothing | Base::Unknown => None,
    };
    let mode = match mode(before.map(|(_, mode)| mode), our_mode, their_mode) {
        Some(mode) => mode,
        None => match options.favor {
            Some(Favor::Ours) => our_mode,
            Some(Favor::Theirs) => their_mode,
            None => return NodeMerge::Conflict(Difference::Mode),
        },
    };
    let keeps_ours = our_hash == their_hash || before.is_some_and(|(hash, _)| hash == their_hash);
    if keeps_ours && mode == our_mode {
        return NodeMerge::Ours;
    }
    if before.is_some_and(|(hash, _)| hash == our_hash) && mode == their_mode {
        return NodeMerge::Theirs;
    }
    let unavailable = || favored(NodeMerge::Conflict(Difference::Content), options.favor);
    let Some(mine) = contents.ours() else { return unavailable() };
    if keeps_ours {
        return NodeMerge::File { content: mine, mode, is_marked: false };
    }
    let Some(other) = contents.theirs(their_hash) else { return unavailable() };
    if before.is_some_and(|(hash, _)| hash == our_hash) {
        return NodeMerge::File { content: other, mode, is_marked: false };
    }
    let common = match (base, before) {
        (Base::Unknown, _) => None,
        (_, None) => Some(Vec::new()),
        (_, Some((hash, _))) => contents.base(hash),
    };
    let is_known = common.is_some();
    let common = common.unwrap_or_default();
    if ![&common, &mine, &other].into_iter().all(|content| is_text(content)) {
        return favored(NodeMerge::Conflict(Difference::Binary), options.favor);
    }
    if !is_known && options.favor.is_some() {
        return favored(NodeMerge::Conflict(Difference::BaseUnknown), options.favor);
    }
    let merged = text::merge(&common, &mine, &other, options.favor, &options.labels);
    if (merged.conflicts > 0 || !is_known) && !options.marks_conflicts {
        let difference = if is_known { Difference::Lines } else { Difference::BaseUnknown };
        return NodeMerge::Conflict(difference);
    }
    NodeMerge::File { content: merged.text, mode, is_marked: merged.conflicts > 0 }
}

fn file(node: Option<&Node>) -> Option<(ContentHash, u32)> {
    match node {
        Some(Node::File { hash, mode, .. }) => Some((*hash, *mode)),
        _ => None,
    }
}

/// The permission bits; `None` if both sides have changed whether the file is executable, in
/// different ways.
fn mode(base: Option<u32>, ours: u32, theirs: u32) -> Option<u32> {
    let is_executable = |mode: u32| mode & 0o100 != 0;
    match base {
        _ if ours == theirs => Some(ours),
        Some(base) if base == ours => Some(theirs),
        Some(base) if base == theirs => Some(ours),
        // Git has only this bit.
        _ if is_executable(ours) == is_executable(theirs) => Some(ours),
        Some(base) if is_executable(base) == is_executable(theirs) => Some(ours),
        Some(base) if is_executable(base) == is_executable(ours) => Some(theirs),
        _ => None,
    }
}

fn is_text(content: &[u8]) -> bool {
    !content.iter().take(TEXT_PROBE_BYTES).any(|byte| *byte == 0)
}
