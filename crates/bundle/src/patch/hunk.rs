//! Hunks: their header, their lines, and the check that both agree.

use super::error::Fault;

/// A sequence of changed lines with context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk<'a> {
    /// The first line in the old file, counted from one; 0 in an empty file.
    pub old_start: u32,
    /// How many lines of the old file it spans.
    pub old_count: u32,
    /// The first line in the new file.
    pub new_start: u32,
    /// How many lines of the new file it spans.
    pub new_count: u32,
    /// Its lines.
    pub lines: Vec<Line<'a>>,
}

/// Which of the two files contain a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Both.
    Both,
    /// Only the old one.
    Old,
    /// Only the new one.
    New,
}

/// One line of a hunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// The files that contain it.
    pub side: Side,
    /// Its bytes, without the newline.
    pub text: &'a [u8],
    /// Whether it ends with a newline in the file.
    pub newline: bool,
}

impl<'a> Hunk<'a> {
    /// Parses `@@ -1,2 +3,4 @@ …`.
    pub(super) fn header(line: &[u8]) -> Result<Self, Fault> {
        let parsed = (|| {
            let rest = line.strip_prefix(b"@@ -")?;
            let (old_start, old_count, rest) = range(rest)?;
            let (new_start, new_count, rest) = range(rest.strip_prefix(b" +")?)?;
            let after = rest.strip_prefix(b" @@")?;
            (after.is_empty() || after[0] == b' ').then_some(())?;
            // Only an empty range may start before the first line.
            (old_start > 0 || old_count == 0).then_some(())?;
            (new_start > 0 || new_count == 0).then_some(())?;
            Some(Self { old_start, old_count, new_start, new_count, lines: Vec::new() })
        })();
        parsed.ok_or(Fault::HunkHeader)
    }
}

/// A hunk whose lines are being read.
#[derive(Debug)]
pub(super) struct HunkReader<'a> {
    pub(super) hunk: Hunk<'a>,
    old_left: u32,
    new_left: u32,
}

impl<'a> HunkReader<'a> {
    pub(super) fn new(header: &[u8]) -> Result<Self, Fault> {
        let hunk = Hunk::header(header)?;
        Ok(Self { old_left: hunk.old_count, new_left: hunk.new_count, hunk })
    }

    /// Whether it has all the lines that its header announces.
    pub(super) fn is_full(&self) -> bool {
        self.old_left == 0 && self.new_left == 0
    }

    /// Adds one more line of the patch.
    pub(super) fn push(&mut self, line: &'a [u8]) -> Result<(), Fault> {
        let (side, text) = match line.split_first() {
            Some((b' ', text)) => (Side::Both, text),
            Some((b'-', text)) => (Side::Old, text),
            Some((b'+', text)) => (Side::New, text),
            // Mail programs remove the space of an empty line.
            None => (Side::Both, line),
            Some(_) => return Err(Fault::HunkLength),
        };
        let take = |left: &mut u32| match left.checked_sub(1) {
            Some(fewer) => {
                *left = fewer;
                Ok(())
            }
            None => Err(Fault::HunkLength),
        };
        if side != Side::New {
            take(&mut self.old_left)?;
        }
        if side != Side::Old {
            take(&mut self.new_left)?;
        }
        self.hunk.lines.push(Line { side, text, newline: true });
        Ok(())
    }

    /// Handles `\ No newline at end of file`, which refers to the line before it.
    pub(super) fn no_newline(&mut self) -> Result<(), Fault> {
        match self.hunk.lines.last_mut() {
            Some(line) if line.newline => line.newline = false,
            _ => return Err(Fault::NoNewline),
        }
        Ok(())
    }
}

/// Checks that the hunks of one file are in order, and that nothing follows a line that is the
/// last of its file.
pub(super) fn check_order(hunks: &[Hunk<'_>]) -> Result<(), Fault> {
    let (mut old_end, mut new_end) = (0_u64, 0_u64);
    let (mut old_ended, mut new_ended) = (false, false);
    for hunk in hunks {
        // The start of an empty range is the line before it.
        let first = |start: u32, count: u32| u64::from(start) + u64::from(count == 0);
        let old_first = first(hunk.old_start, hunk.old_count);
        let new_first = first(hunk.new_start, hunk.new_count);
        if old_first <= old_end || new_first <= new_end {
            return Err(Fault::HunkOrder);
        }
        old_end = old_first + u64::from(hunk.old_count) - 1;
        new_end = new_first + u64::from(hunk.new_count) - 1;
        for line in &hunk.lines {
            let in_old = line.side != Side::New;
            let in_new = line.side != Side::Old;
            if (in_old && old_ended) || (in_new && new_ended) {
                return Err(Fault::NoNewline);
            }
            old_ended |= in_old && !line.newline;
            new_ended |= in_new && !line.newline;
        }
    }
    Ok(())
}

fn range(text: &[u8]) -> Option<(u32, u32, &[u8])> {
    let (start, rest) = number(text)?;
    match rest.strip_prefix(b",") {
        None => Some((start, 1, rest)),
        Some(rest) => number(rest).map(|(count, rest)| (start, count, rest)),
    }
}

fn number(text: &[u8]) -> Option<(u32, &[u8])> {
    let length = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(length);
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest))
}
