//! Renders an entry as a diff for display and for `git apply`.

use std::collections::HashSet;
use std::time::Instant;

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline, group_diff_ops};

use super::name::quote;
use super::sides::{Content, Sides};
use crate::manifest::{Change, Entry, Node};
use crate::path::RelativePath;

/// The number of unchanged lines shown around a change, as in git.
const CONTEXT: usize = 3;

/// A rendered entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The diff; it contains bytes of the files unchanged.
    pub text: Vec<u8>,
    /// The number of added lines.
    pub added: u64,
    /// The number of removed lines.
    pub removed: u64,
    /// Whether a content was not compared line by line.
    pub binary: bool,
}

/// Renders an entry. After `deadline` lines are compared less carefully: the diff stays correct
/// but may be longer.
///
/// Git does not track directories: they are rendered as a line of text, which `git apply`
/// skips.
pub fn render(entry: &Entry, sides: &Sides, deadline: Option<Instant>) -> Rendered {
    let mut rendering = Renderer { rendered: Rendered::default(), deadline };
    let path = &entry.path;
    match &entry.change {
        Change::Modify { old, new } if is_same_type(old, new) => {
            rendering.section(path, path, Some(old), Some(new), sides);
        }
        change => {
            let (old, new) = (change.old(), change.new_node());
            // An entry that changes its type is deleted and added, as in git.
            if old.is_some() {
                let only = Sides { old: sides.old.clone(), new: None };
                rendering.section(path, path, old, None, &only);
            }
            if new.is_some() {
                match &entry.renamed_from {
                    Some(from) => rendering.renamed(from, path),
                    None => {
                        let only = Sides { old: None, new: sides.new.clone() };
                        rendering.section(path, path, None, new, &only);
                    }
                }
            }
        }
    }
    rendering.rendered
}

/// The deletions that are already covered by a rename; a diff of the whole bundle leaves them
/// out.
pub fn rename_sources(entries: &[Entry]) -> HashSet<&RelativePath> {
    entries.iter().filter_map(|entry| entry.renamed_from.as_ref()).collect()
}

struct Renderer {
    rendered: Rendered,
    deadline: Option<Instant>,
}

impl Renderer {
    fn line(&mut self, parts: &[&[u8]]) {
        for part in parts {
            self.rendered.text.extend_from_slice(part);
        }
        self.rendered.text.push(b'\n');
    }

    fn renamed(&mut self, from: &RelativePath, to: &RelativePath) {
        self.line(&[b"diff --git ", &quote("a/", from), b" ", &quote("b/", to)]);
        self.line(&[b"similarity index 100%"]);
        self.line(&[b"rename from ", &quote("", from)]);
        self.line(&[b"rename to ", &quote("", to)]);
    }

    fn section(
        &mut self,
        from: &RelativePath,
        to: &RelativePath,
        old: Option<&Node>,
        new: Option<&Node>,
        sides: &Sides,
    ) {
        if let Some(Node::Directory { mode }) = old.or(new) {
            return self.directory(to, *mode, old, new);
        }
        let (a, b) = (quote("a/", from), quote("b/", to));
        self.line(&[b"diff --git ", &a, b" ", &b]);
        match (old.map(mode), new.map(mode)) {
            (None, Some(mode)) => self.line(&[b"new file mode ", git_mode(mode).as_bytes()]),
            (Some(mode), None) => self.line(&[b"deleted file mode ", git_mode(mode).as_bytes()]),
            (Some(old), Some(new)) if old != new => {
                // Git has two modes for files; if they do not differ for git, all bits are shown.
                let is_same = git_mode(old) == git_mode(new);
                let shown = |mode| if is_same { format!("{mode:06o}") } else { git_mode(mode) };
                self.line(&[b"old mode ", shown(old).as_bytes()]);
                self.line(&[b"new mode ", shown(new).as_bytes()]);
            }
            _ => {}
        }
        if is_same_content(old, new) {
            return;
        }
        let empty = Content::Text(Vec::new());
        let old_content = sides.old.as_ref().unwrap_or(&empty);
        let new_content = sides.new.as_ref().unwrap_or(&empty);
        let none = b"/dev/null".to_vec();
        let a = if old.is_some() { a } else { none.clone() };
        let b = if new.is_some() { b } else { none };
        match (old_content, new_content) {
            (Content::Text(old), Content::Text(new)) => self.hunks(&a, &b, old, new),
            (old, new) => {
                self.rendered.binary = true;
                let sized = |name: Vec<u8>, content: &Content| match content {
                    Content::Text(bytes) => with_size(name, bytes.len() as u64),
                    Content::Binary(size) => with_size(name, *size),
                };
                self.line(&[
                    b"Binary files ",
                    &sized(a, old),
                    b" and ",
                    &sized(b, new),
                    b" differ",
                ]);
            }
        }
    }

    fn directory(
        &mut self,
        path: &RelativePath,
        mode: u32,
        old: Option<&Node>,
        new: Option<&Node>,
    ) {
        let what = match (old, new) {
            (None, _) => "new directory",
            (_, None) => "deleted directory",
            _ => "changed directory",
        };
        let modes = match new {
            Some(Node::Directory { mode: new }) if *new != mode => {
                format!(" mode {mode:03o} => {new:03o}")
            }
            _ => format!(" mode {mode:03o}"),
        };
        self.line(&[what.as_bytes(), b" ", &quote("", path), modes.as_bytes()]);
    }

    fn hunks(&mut self, a: &[u8], b: &[u8], old: &[u8], new: &[u8]) {
        let old: Vec<&[u8]> = old.split_inclusive(|b| *b == b'\n').collect();
        let new: Vec<&[u8]> = new.split_inclusive(|b| *b == b'\n').collect();
        let operations = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, self.deadline);
        if operations.iter().all(|op| matches!(op, DiffOp::Equal { .. })) {
            return;
        }
        // As in git and GNU diff: a tab follows a name that contains a space.
        let tab = |name: &[u8]| if name.contains(&b' ') { &b"\t"[..] } else { b"" };
        self.line(&[b"--- ", a, tab(a)]);
        self.line(&[b"+++ ", b, tab(b)]);
        for group in group_diff_ops(operations, CONTEXT) {
            let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
            let old_range = range(first.old_range().start, last.old_range().end);
            let new_range = range(first.new_range().start, last.new_range().end);
            self.line(&[b"@@ -", old_range.as_bytes(), b" +", new_range.as_bytes(), b" @@"]);
            for operation in &group {
                if matches!(operation, DiffOp::Equal { .. }) {
                    self.lines(b" ", &old[operation.old_range()]);
                    continue;
                }
                let (removed, added) = (&old[operation.old_range()], &new[operation.new_range()]);
                self.rendered.removed += removed.len() as u64;
                self.rendered.added += added.len() as u64;
                self.lines(b"-", removed);
                self.lines(b"+", added);
            }
        }
    }

    fn lines(&mut self, sign: &[u8], lines: &[&[u8]]) {
        for line in lines {
            match line.strip_suffix(b"\n") {
                Some(line) => self.line(&[sign, line]),
                None => {
                    self.line(&[sign, line]);
                    self.line(&[b"\\ No newline at end of file"]);
                }
            }
        }
    }
}

/// The lines from `start` (counted from zero) up to `end`, in the notation of a hunk header.
fn range(start: usize, end: usize) -> String {
    match end - start {
        // The start of an empty range is the line before it.
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        count => format!("{},{count}", start + 1),
    }
}

fn with_size(mut name: Vec<u8>, size: u64) -> Vec<u8> {
    name.extend(format!(" ({size} bytes)").bytes());
    name
}

fn mode(node: &Node) -> u32 {
    match node {
        Node::File { mode, .. } => 0o100_000 | mode,
        Node::Symlink { .. } => 0o120_000,
        Node::Directory { mode } => 0o040_000 | mode,
    }
}

/// The mode that git stores.
fn git_mode(mode: u32) -> String {
    let stored = match (mode & 0o170_000, mode & 0o100) {
        (0o100_000, 0) => 0o100_644,
        (0o100_000, _) => 0o100_755,
        (other, _) => other,
    };
    format!("{stored:06o}")
}

fn is_same_type(old: &Node, new: &Node) -> bool {
    std::mem::discriminant(old) == std::mem::discriminant(new)
}

fn is_same_content(old: Option<&Node>, new: Option<&Node>) -> bool {
    match (old, new) {
        (Some(Node::File { hash: old, .. }), Some(Node::File { hash: new, .. })) => old == new,
        (Some(old), Some(new)) => old == new,
        _ => false,
    }
}
