//! Renders an entry as a diff for display and for `git apply`.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use stockade_core::printable::visible;

use super::code::unseen_bytes;
use super::hunks::{Hunks, Style};
use super::measure::{self, Encoding};
use super::name::quote;
use super::pieces::{self, Stop, Unit};
use super::sides::{Content, Sides, Text};
use super::source::Source;
use super::{binary, similarity};
use crate::manifest::{Change, Entry, Node};
use crate::path::RelativePath;

/// How many digits of a hash are shown.
const HASH_DIGITS: usize = 12;

/// A longer line is shown in parts.
const LONG_LINE_BYTES: usize = 2000;

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
    /// The diff for a reader, where it is not [`Rendered::text`]: decoded, with hidden bytes made
    /// visible, and with long lines in parts.
    pub readable: Option<Vec<u8>>,
    /// How many bytes of the new content are in neither of the two.
    pub unseen: u64,
}

/// Renders an entry. After `deadline` lines are compared less carefully: the diff stays correct
/// but may be longer.
///
/// Git does not track directories: they are rendered as a line of text, which `git apply`
/// skips.
pub fn render(entry: &Entry, sides: &Sides, deadline: Option<Instant>) -> Rendered {
    let mut rendering = Renderer { rendered: Rendered::default(), deadline, entry };
    let path = &entry.path;
    match &entry.change {
        Change::Modify { old, new } if is_same_type(old, new) => {
            rendering.section(path, path, Some(old), Some(new), sides);
        }
        change => {
            let (old, new) = (change.old(), change.new_node());
            // An entry that changes its type is deleted and added, as in git.
            if old.is_some() {
                let only = Sides { old: sides.old.clone(), new: None, renamed: None };
                rendering.section(path, path, old, None, &only);
            }
            if let Some(new) = new {
                match &entry.renamed_from {
                    Some(from) => match sides.renamed.as_ref() {
                        Some(old) if is_same_type(old, new) => {
                            rendering.section(from, path, Some(old), Some(new), sides);
                        }
                        _ => rendering.renamed(from, path),
                    },
                    None => {
                        let only = Sides { old: None, new: sides.new.clone(), renamed: None };
                        rendering.section(path, path, None, Some(new), &only);
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

struct Renderer<'e> {
    rendered: Rendered,
    deadline: Option<Instant>,
    entry: &'e Entry,
}

impl Renderer<'_> {
    fn line(&mut self, parts: &[&[u8]]) {
        for text in std::iter::once(&mut self.rendered.text).chain(&mut self.rendered.readable) {
            for part in parts {
                text.extend_from_slice(part);
            }
            text.push(b'\n');
        }
    }

    /// The text for a reader, which is different from here on.
    fn readable(&mut self) -> &mut Vec<u8> {
        self.rendered.readable.get_or_insert_with(|| self.rendered.text.clone())
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
        if from != to {
            let similarity = match (sides.old.as_ref(), sides.new.as_ref()) {
                _ if is_same_content(old, new) => 100,
                (Some(Content::Text(old)), Some(Content::Text(new))) => {
                    similarity::of(&old.source, &new.source)
                }
                _ => similarity::MIN_PERCENT,
            };
            self.line(&[format!("similarity index {similarity}%").as_bytes()]);
            self.line(&[b"rename from ", &quote("", from)]);
            self.line(&[b"rename to ", &quote("", to)]);
        }
        if is_same_content(old, new) {
            return;
        }
        let empty = Content::of(Vec::new());
        let (old_content, new_content) =
            (sides.old.as_ref().unwrap_or(&empty), sides.new.as_ref().unwrap_or(&empty));
        let none = b"/dev/null".to_vec();
        let a = if old.is_some() { a } else { none.clone() };
        let b = if new.is_some() { b } else { none };
        if let (Content::Text(old), Content::Text(new)) = (old_content, new_content)
            && self.hunks(&a, &b, old, new)
        {
            return;
        }
        self.rendered.binary = true;
        let a = described(a, old_content, old);
        let b = described(b, new_content, new);
        let sides = (old.map(|_| old_content), new.map(|_| new_content));
        self.binary(&[b"Binary files ", &a, b" and ", &b, b" differ"], sides);
        if new.is_some() {
            self.show_whole(new_content);
        }
    }

    /// Writes a patch of contents that are not compared line by line, and a description for a reader.
    fn binary(&mut self, description: &[&[u8]], (old, new): (Option<&Content>, Option<&Content>)) {
        let patch = binary::patch(old, new);
        let readable = self.readable();
        for part in description {
            readable.extend_from_slice(part);
        }
        readable.push(b'\n');
        match patch {
            Some(patch) => self.rendered.text.extend(patch.bytes()),
            None => {
                description.iter().for_each(|part| self.rendered.text.extend_from_slice(part));
                self.rendered.text.push(b'\n');
            }
        }
    }

    /// Shows a new content that could not be compared, or counts it.
    fn show_whole(&mut self, content: &Content) {
        let empty = Content::of(Vec::new());
        if let (Content::Text(new), Content::Text(empty)) = (content, &empty)
            && let Ok(visible) = visible_hunks(empty, new, self.deadline)
        {
            self.readable().extend(b"The whole new content:\n");
            self.readable().extend(visible.text);
            return;
        }
        self.rendered.unseen += unseen_bytes(self.entry, content);
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

    /// Compares two texts line by line; whether their difference is shown completely.
    fn hunks(&mut self, a: &[u8], b: &[u8], old: &Text, new: &Text) -> bool {
        let exact = compared(&old.source, &new.source, Unit::Line, Style::Exact, self.deadline);
        let encoding = new.encoding.name().or_else(|| old.encoding.name());
        let is_odd = match &exact {
            Ok(hunks) if hunks.text.is_empty() => return true,
            Ok(hunks) => encoding.is_some() || hunks.text.split(|b| *b == b'\n').any(is_odd),
            Err(_) => true,
        };
        let visible = is_odd.then(|| visible_hunks(old, new, self.deadline));
        let visible = visible.and_then(Result::ok);
        // As in git and GNU diff: a tab follows a name that contains a space.
        let tab = |name: &[u8]| if name.contains(&b' ') { &b"\t"[..] } else { b"" };
        let Ok(exact) = exact else {
            let Some(visible) = visible else { return false };
            self.rendered.binary = true;
            (self.rendered.added, self.rendered.removed) =
                (self.rendered.added + visible.added, self.rendered.removed + visible.removed);
            let size = |text: &Text| format!(" (text, {} bytes)", text.source.size());
            let (of_old, of_new) = (size(old), size(new));
            let parts: [&[u8]; 7] = [
                b"Binary files ",
                a,
                of_old.as_bytes(),
                b" and ",
                b,
                of_new.as_bytes(),
                b" differ",
            ];
            let contents = [old, new].map(|text| Content::Text(text.clone()));
            let sides = (a != b"/dev/null").then_some(&contents[0]);
            self.binary(&parts, (sides, (b != b"/dev/null").then_some(&contents[1])));
            self.readable().extend(visible.text);
            return true;
        };
        if encoding.is_some() && visible.is_none() {
            return false;
        }
        self.rendered.added += exact.added;
        self.rendered.removed += exact.removed;
        if visible.is_some() {
            self.readable();
        }
        if let Some(encoding) = encoding {
            self.readable().extend(format!("decoded from {encoding}\n").bytes());
        }
        self.line(&[b"--- ", a, tab(a)]);
        self.line(&[b"+++ ", b, tab(b)]);
        if let Some(readable) = &mut self.rendered.readable {
            readable.extend_from_slice(visible.as_ref().map_or(&exact.text, |hunks| &hunks.text));
        }
        self.rendered.text.extend(exact.text);
        true
    }
}

/// The hunks of two texts.
fn compared(
    old: &Source,
    new: &Source,
    unit: Unit,
    style: Style,
    deadline: Option<Instant>,
) -> Result<Hunks, Stop> {
    let mut hunks = Hunks::new(style);
    pieces::compare(old, new, unit, deadline, |kind, piece| hunks.push(kind, piece))?;
    hunks.finish();
    Ok(hunks)
}

/// The hunks of two texts for a reader.
fn visible_hunks(old: &Text, new: &Text, deadline: Option<Instant>) -> Result<Hunks, Stop> {
    let visible =
        |old: &Source, new: &Source| compared(old, new, Unit::Part, Style::Visible, deadline);
    let (before, is_old_ambiguous) = decoded(old)?;
    let (after, is_new_ambiguous) = decoded(new)?;
    let mut hunks = visible(&before, &after)?;
    if is_old_ambiguous || is_new_ambiguous {
        hunks.text.extend(b"the same as bytes\n");
        hunks.text.extend(visible(&old.source, &new.source)?.text);
    }
    Ok(hunks)
}

/// A text in UTF-8, and whether its bytes can be read as another one.
fn decoded(text: &Text) -> Result<(Arc<Source>, bool), Stop> {
    match text.encoding {
        Encoding::Bytes => Ok((Arc::clone(&text.source), false)),
        encoding => {
            let (source, is_ambiguous) = measure::decode(&text.source, encoding)?;
            Ok((Arc::new(source), is_ambiguous))
        }
    }
}

/// Whether a line of a hunk cannot be read as it is.
fn is_odd(line: &[u8]) -> bool {
    line.len() > LONG_LINE_BYTES || matches!(visible(line), Cow::Owned(_))
}

/// A name in a diff with the description of a content that is not compared.
fn described(mut name: Vec<u8>, content: &Content, node: Option<&Node>) -> Vec<u8> {
    let mut parts = vec![format!("{} bytes", content.size())];
    match content {
        Content::Text(_) => parts.insert(0, "text".to_owned()),
        Content::Binary { guess, .. } => parts.push((*guess).to_owned()),
        Content::Unknown(_) => parts.push("not shown".to_owned()),
    }
    if let Some(Node::File { hash, .. }) = node {
        parts.push(format!("blake3 {}", &hash.to_hex()[..HASH_DIGITS]));
    }
    name.extend(format!(" ({})", parts.join(", ")).bytes());
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
