//! Compares two contents line by line in a bounded amount of memory, whatever their size.
//!
//! Both are read in windows. Each window is compared as a whole; what follows its last common line is
//! compared again with what comes next. So the result is always correct, and minimal within a window.

use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

use super::source::Source;

/// The size of a window. A longer line makes a window longer.
const WINDOW_BYTES: usize = 32 << 20;

/// How long a window is compared carefully at least.
const WINDOW_TIME: Duration = Duration::from_millis(500);

/// A longer line cannot be compared as one.
const MAX_LINE_BYTES: usize = 64 << 20;

/// A longer line has parts, and none is longer.
const PART_BYTES: usize = 1000;

/// A part ends after one of so many of the bytes at which lines are usually broken,
const PLACES: u32 = 16;

/// which so many bytes before it choose.
const AROUND: usize = 12;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Whole lines.
    Line,
    /// Lines, and parts of those that are too long to read.
    Part,
}

/// A line or a part of one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'a> {
    /// Its bytes, with the line feed.
    pub(super) bytes: &'a [u8],
    /// Whether a line starts with it.
    pub(super) starts: bool,
    /// Whether the content ends with it.
    pub(super) is_last: bool,
}

/// How a piece differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Same,
    Removed,
    Added,
}

/// Why a comparison ended early.
#[derive(Debug)]
pub(super) enum Stop {
    /// The consumer of the pieces has enough, or a line is too long.
    TooLarge,
    /// A content could not be read.
    Unreadable,
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Unreadable
    }
}

/// Calls `each` with every piece of both contents, in the order of a diff.
pub(super) fn compare(
    old: &Source,
    new: &Source,
    unit: Unit,
    deadline: Option<Instant>,
    mut each: impl FnMut(Kind, Piece<'_>) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let (mut old, mut new) = (Window::of(old, unit), Window::of(new, unit));
    loop {
        old.fill()?;
        new.fill()?;
        let (before, after) = (old.slices(), new.slices());
        // Each window has time of its own: the last ones are compared as carefully as the first.
        let deadline = deadline.map(|deadline| deadline.max(Instant::now() + WINDOW_TIME));
        let operations = capture_diff_slices_deadline(Algorithm::Myers, &before, &after, deadline);
        let is_end = old.is_whole() && new.is_whole();
        let common = operations.iter().rposition(|op| matches!(op, DiffOp::Equal { .. }));
        let taken = match common {
            Some(last) if !is_end => {
                let end = (operations[last].old_range().end, operations[last].new_range().end);
                // Less than that would compare the same pieces too often.
                let is_enough = old.is_much(end.0) || new.is_much(end.1);
                if is_enough { last + 1 } else { operations.len() }
            }
            _ => operations.len(),
        };
        let (mut old_done, mut new_done) = (0, 0);
        for operation in &operations[..taken] {
            let (removed, added) = (operation.old_range(), operation.new_range());
            if matches!(operation, DiffOp::Equal { .. }) {
                for at in added.clone() {
                    each(Kind::Same, new.piece(at))?;
                }
            } else {
                for at in removed.clone() {
                    each(Kind::Removed, old.piece(at))?;
                }
                for at in added.clone() {
                    each(Kind::Added, new.piece(at))?;
                }
            }
            (old_done, new_done) = (removed.end.max(old_done), added.end.max(new_done));
        }
        if is_end {
            return Ok(());
        }
        old.consume(old_done);
        new.consume(new_done);
    }
}

/// The pieces of a content from a position on.
struct Window<'s> {
    source: &'s Source,
    unit: Unit,
    /// The position in the content of the first byte in the buffer.
    at: u64,
    buffer: Vec<u8>,
    pieces: Vec<Range<usize>>,
    /// Whether a line starts with the first piece.
    starts: bool,
}

impl<'s> Window<'s> {
    fn of(source: &'s Source, unit: Unit) -> Self {
        Self { source, unit, at: 0, buffer: Vec::new(), pieces: Vec::new(), starts: true }
    }

    /// Whether the buffer holds the rest of the content.
    fn is_whole(&self) -> bool {
        self.at + self.buffer.len() as u64 >= self.source.size()
    }

    /// Reads until the window is full and its last piece is complete.
    fn fill(&mut self) -> Result<(), Stop> {
        let mut wanted = WINDOW_BYTES;
        loop {
            if !self.is_whole() && self.buffer.len() < wanted {
                let from = self.at + self.buffer.len() as u64;
                let missing = wanted - self.buffer.len();
                self.source.read(from, missing, &mut self.buffer)?;
            }
            self.pieces = cut(&self.buffer, self.unit);
            if !self.is_whole() {
                // The last piece may continue.
                let last = self.pieces.pop();
                if self.pieces.is_empty() {
                    if last.is_some_and(|last| last.len() >= MAX_LINE_BYTES) {
                        return Err(Stop::TooLarge);
                    }
                    wanted = self.buffer.len().saturating_add(WINDOW_BYTES);
                    continue;
                }
            }
            let is_too_long = |piece: &Range<usize>| piece.len() > MAX_LINE_BYTES;
            return if self.pieces.iter().any(is_too_long) { Err(Stop::TooLarge) } else { Ok(()) };
        }
    }

    fn slices(&self) -> Vec<&[u8]> {
        self.pieces.iter().map(|piece| &self.buffer[piece.clone()]).collect()
    }

    fn piece(&self, at: usize) -> Piece<'_> {
        let range = self.pieces[at].clone();
        let end = self.at + range.end as u64;
        let starts = match at.checked_sub(1) {
            None => self.starts,
            Some(before) => self.ends_line(before),
        };
        Piece { bytes: &self.buffer[range], starts, is_last: end >= self.source.size() }
    }

    fn ends_line(&self, at: usize) -> bool {
        self.buffer[self.pieces[at].clone()].ends_with(b"\n")
    }

    /// Whether the first pieces are a good part of a window.
    fn is_much(&self, count: usize) -> bool {
        let last = count.checked_sub(1).and_then(|last| self.pieces.get(last));
        last.is_some_and(|last| last.end >= WINDOW_BYTES / 4)
    }

    /// Drops the first pieces.
    fn consume(&mut self, count: usize) {
        let Some(last) = count.checked_sub(1) else { return };
        self.starts = self.ends_line(last);
        let end = self.pieces[last].end;
        self.buffer.drain(..end);
        self.pieces.clear();
        self.at += end as u64;
    }
}

/// The pieces of a text.
fn cut(text: &[u8], unit: Unit) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let end = start + line.len();
        if unit == Unit::Part && line.len() > PART_BYTES {
            cut_line(text, start..end, &mut pieces);
        } else {
            pieces.push(start..end);
        }
        start = end;
    }
    pieces
}

/// The parts of a long line. Where one ends depends on the bytes around it, so that the parts after
/// a change are the same again.
fn cut_line(text: &[u8], line: Range<usize>, pieces: &mut Vec<Range<usize>>) {
    let mut start = line.start;
    for at in line.clone() {
        let length = at + 1 - start;
        let is_end = b";{},>".contains(&text[at])
            && is_chosen(&text[at.saturating_sub(AROUND)..at])
            || length >= PART_BYTES && !is_within_character(text, at + 1)
            || length >= PART_BYTES + 4;
        if is_end {
            pieces.push(start..at + 1);
            start = at + 1;
        }
    }
    if start < line.end {
        pieces.push(start..line.end);
    }
}

/// Whether a part ends after these bytes and the next: for one of so many places.
fn is_chosen(before: &[u8]) -> bool {
    let sum =
        before.iter().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
    (sum ^ sum >> 7).is_multiple_of(PLACES)
}

/// Whether a byte continues a character of UTF-8.
fn is_within_character(text: &[u8], at: usize) -> bool {
    text.get(at).is_some_and(|byte| byte & 0xc0 == 0x80)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    /// The old and the new content, put together from the pieces.
    fn sides(old: &[u8], new: &[u8], unit: Unit) -> (Vec<u8>, Vec<u8>, usize) {
        let (mut before, mut after, mut changed) = (Vec::new(), Vec::new(), 0);
        let (old, new) = (Source::of(old.to_vec()), Source::of(new.to_vec()));
        compare(&old, &new, unit, None, |kind, piece| {
            if kind != Kind::Added {
                before.extend_from_slice(piece.bytes);
            }
            if kind != Kind::Removed {
                after.extend_from_slice(piece.bytes);
            }
            changed += usize::from(kind != Kind::Same);
            Ok(())
        })
        .unwrap();
        (before, after, changed)
    }

    #[test]
    fn the_pieces_are_the_contents() {
        let mut random = Random::new(17);
        for _ in 0..300 {
            let mut text = || {
                let mut text = Vec::new();
                for _ in 0..random.below(20) {
                    let word = [&b"one"[..], b"two;", b"\xc3\xbc", b"\0", b"{}"][random.below(5)];
                    text.extend(word.repeat(random.below(300)));
                    if random.below(2) == 0 {
                        text.push(b'\n');
                    }
                }
                text
            };
            let (old, new) = (text(), text());
            for unit in [Unit::Line, Unit::Part] {
                let (before, after, _) = sides(&old, &new, unit);
                assert!(before == old && after == new);
            }
        }
    }

    #[test]
    fn a_change_in_a_large_content_is_one_change() {
        let line = |n: usize| format!("// {} {n}\n", "x".repeat(90));
        let old: String = (0..400_000).map(line).collect();
        let new = format!("{}EVIL()\n{}last\n", &old[..old.len() / 2], &old[old.len() / 2..]);
        let (before, after, changed) = sides(old.as_bytes(), new.as_bytes(), Unit::Line);
        assert!(before == old.as_bytes() && after == new.as_bytes());
        assert!(changed <= 4, "{changed}");
    }

    #[test]
    fn a_change_in_a_long_line_is_short() {
        let old: String = (0..100_000).map(|n| format!("f({n});")).collect();
        let new = format!("{}EVIL();{}", &old[..300_002], &old[300_002..]);
        let (before, after, changed) = sides(old.as_bytes(), new.as_bytes(), Unit::Part);
        assert!(before == old.as_bytes() && after == new.as_bytes());
        assert!(changed < 30, "{changed}");
    }
}
