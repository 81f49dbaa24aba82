//! Puts the pieces of a comparison together as hunks, with unchanged lines around each.

use std::collections::VecDeque;

use stockade_core::printable::visible;

use super::pieces::{Kind, Piece, Stop};

/// The number of unchanged lines shown around a change, as in git.
const CONTEXT: usize = 3;

/// The longest text that is made of one path.
const MAX_TEXT_BYTES: usize = 64 << 20;

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// With their own bytes, for `git apply`.
    Exact,
    /// For a reader: with hidden bytes made visible. `…` is before a part that continues a line, and
    /// after one that the next part continues.
    Visible,
}

/// The hunks of one file.
#[derive(Debug)]
pub(super) struct Hunks {
    style: Style,
    pub(super) text: Vec<u8>,
    pub(super) added: u64,
    pub(super) removed: u64,
    /// The unchanged lines since the last change, or before the first one.
    same: VecDeque<Vec<u8>>,
    hunk: Option<Hunk>,
    /// The lines that were passed in the old and the new content.
    lines: [u64; 2],
}

#[derive(Debug)]
struct Hunk {
    /// The lines before it, in the old and the new content.
    before: [u64; 2],
    /// Its own lines, without those in [`Hunks::same`].
    count: [u64; 2],
    body: Vec<u8>,
}

impl Hunks {
    pub(super) fn new(style: Style) -> Self {
        Self {
            style,
            text: Vec::new(),
            added: 0,
            removed: 0,
            same: VecDeque::new(),
            hunk: None,
            lines: [0; 2],
        }
    }

    pub(super) fn push(&mut self, kind: Kind, piece: Piece<'_>) -> Result<(), Stop> {
        let sign = match kind {
            Kind::Same => b' ',
            Kind::Removed => b'-',
            Kind::Added => b'+',
        };
        let line = self.written(sign, piece);
        // Only the first part of a line counts as a line.
        let one = u64::from(piece.starts);
        let sides = [kind != Kind::Added, kind != Kind::Removed];
        if kind == Kind::Same {
            self.same.push_back(line);
            self.count(sides, one);
            match &self.hunk {
                None if self.same.len() > CONTEXT => drop(self.same.pop_front()),
                Some(_) if self.same.len() > 2 * CONTEXT => self.close(),
                _ => {}
            }
            return Ok(());
        }
        let same: Vec<Vec<u8>> = self.same.drain(..).collect();
        let around = same.len() as u64;
        let lines = self.lines;
        let hunk = self.hunk.get_or_insert_with(|| Hunk {
            before: lines.map(|lines| lines.saturating_sub(around)),
            count: [0; 2],
            body: Vec::new(),
        });
        for line in same {
            hunk.body.extend(line);
        }
        hunk.count = hunk.count.map(|count| count + around);
        hunk.body.extend(line);
        for (side, is_in) in sides.into_iter().enumerate() {
            hunk.count[side] += if is_in { one } else { 0 };
        }
        self.added += if kind == Kind::Added { one } else { 0 };
        self.removed += if kind == Kind::Removed { one } else { 0 };
        let size = self.text.len() + hunk.body.len();
        self.count(sides, one);
        if size > MAX_TEXT_BYTES { Err(Stop::TooLarge) } else { Ok(()) }
    }

    /// Ends the last hunk.
    pub(super) fn finish(&mut self) {
        self.close();
    }

    fn count(&mut self, sides: [bool; 2], one: u64) {
        for (lines, is_in) in self.lines.iter_mut().zip(sides) {
            *lines += if is_in { one } else { 0 };
        }
    }

    fn close(&mut self) {
        let Some(mut hunk) = self.hunk.take() else { return };
        let after = self.same.len().min(CONTEXT);
        for line in self.same.drain(..after) {
            hunk.body.extend(line);
        }
        while self.same.len() > CONTEXT {
            self.same.pop_front();
        }
        let count = hunk.count.map(|count| count + after as u64);
        let [old, new] = [0, 1].map(|side| range(hunk.before[side], count[side]));
        self.text.extend(format!("@@ -{old} +{new} @@\n").bytes());
        self.text.extend(hunk.body);
    }

    fn written(&self, sign: u8, piece: Piece<'_>) -> Vec<u8> {
        let (bytes, is_whole) = match piece.bytes.strip_suffix(b"\n") {
            Some(bytes) => (bytes, true),
            None => (piece.bytes, false),
        };
        let mut line = Vec::with_capacity(bytes.len() + 2);
        line.push(sign);
        match self.style {
            Style::Exact => line.extend_from_slice(bytes),
            Style::Visible => {
                if !piece.starts {
                    line.extend("…".bytes());
                }
                line.extend(visible(bytes).bytes());
                if !is_whole && !piece.is_last {
                    line.extend("…".bytes());
                }
            }
        }
        line.push(b'\n');
        if !is_whole && piece.is_last {
            line.extend(b"\\ No newline at end of file\n");
        }
        line
    }
}

/// The lines after `before`, in the notation of a hunk header.
fn range(before: u64, count: u64) -> String {
    match count {
        // The start of an empty range is the line before it.
        0 => format!("{before},0"),
        1 => format!("{}", before + 1),
        count => format!("{},{count}", before + 1),
    }
}
