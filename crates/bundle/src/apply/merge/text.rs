//! Three-way merges of texts, line by line, with the result and the markers of `git merge-file`.
//!
//! Changes of the two sides that neither overlap nor touch are both taken. Where they do, they are
//! taken if they are equal, and are a conflict otherwise.

use std::ops::Range;

use imara_diff::{Algorithm, Diff, InternedInput};

/// Conflicts that are at most this many unchanged lines apart become one, as in git.
const GAP_LINES: usize = 3;

/// The length of a marker, without its label.
const MARKER_LENGTH: usize = 7;

/// The side that is taken where both have changed the same lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Favor {
    /// Ours: what the project has now.
    Ours,
    /// Theirs: what the bundle has.
    Theirs,
}

/// The names behind the markers of a conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels {
    /// Behind the first marker.
    pub ours: String,
    /// Behind the last marker.
    pub theirs: String,
}

/// A merged text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MergedText {
    /// The text; a conflict is in it with markers, or as the favored side has it.
    pub text: Vec<u8>,
    /// The number of conflicts that no side was favored for.
    pub conflicts: usize,
}

/// A stretch of the merged text. The ranges are lines.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Same { ours: Range<usize>, theirs: Range<usize> },
    Ours(Range<usize>),
    Theirs(Range<usize>),
    Conflict { ours: Range<usize>, theirs: Range<usize> },
}

/// One difference between the base and a side.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hunk {
    base: Range<usize>,
    side: Range<usize>,
}

/// Merges the changes from `base` to `ours` and those from `base` to `theirs`.
pub(super) fn merge(
    base: &[u8],
    ours: &[u8],
    theirs: &[u8],
    favor: Option<Favor>,
    labels: &Labels,
) -> MergedText {
    let [base, ours, theirs] = [base, ours, theirs].map(lines);
    let parts = parts(&base, &ours, &theirs);
    let parts = parts.into_iter().flat_map(|part| refined(part, &ours, &theirs)).collect();
    let parts = without_gaps(parts);
    let mut merged = MergedText { text: Vec::new(), conflicts: 0 };
    for part in parts {
        match (part, favor) {
            (Part::Same { ours: range, .. } | Part::Ours(range), _)
            | (Part::Conflict { ours: range, .. }, Some(Favor::Ours)) => {
                push(&mut merged.text, &ours[range]);
            }
            (Part::Theirs(range), _)
            | (Part::Conflict { theirs: range, .. }, Some(Favor::Theirs)) => {
                push(&mut merged.text, &theirs[range]);
            }
            (Part::Conflict { ours: mine, theirs: other }, None) => {
                merged.conflicts += 1;
                let sides = Sides { base: &base, ours: &ours, theirs: &theirs };
                sides.push_conflict(&mut merged.text, mine, other, labels);
            }
        }
    }
    merged
}

/// The lines of a text, each with its end.
fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

fn push(text: &mut Vec<u8>, lines: &[&[u8]]) {
    lines.iter().for_each(|line| text.extend_from_slice(line));
}

/// The differences between two texts, in order.
fn differences(base: &[&[u8]], side: &[&[u8]]) -> Vec<Hunk> {
    let mut input: InternedInput<&[u8]> = InternedInput::default();
    input.update_before(base.iter().copied());
    input.update_after(side.iter().copied());
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    // As in the merges of git, which move no hunk to where a reader expects it.
    diff.postprocess_no_heuristic(&input);
    let range = |range: Range<u32>| range.start as usize..range.end as usize;
    diff.hunks().map(|hunk| Hunk { base: range(hunk.before), side: range(hunk.after) }).collect()
}

/// The differences of one side, of which some are consumed.
struct Changes {
    hunks: Vec<Hunk>,
    next: usize,
    /// The line of the side that belongs to the line of the base after the consumed differences, as
    /// an offset.
    before: isize,
}

impl Changes {
    fn of(base: &[&[u8]], side: &[&[u8]]) -> Self {
        Self { hunks: differences(base, side), next: 0, before: 0 }
    }

    fn start(&self) -> Option<usize> {
        self.hunks.get(self.next).map(|hunk| hunk.base.start)
    }

    /// Consumes the differences that start at or before `end`; returns the end of the last one.
    fn take_up_to(&mut self, end: usize) -> Option<usize> {
        let mut last = None;
        while let Some(hunk) = self.hunks.get(self.next)
            && hunk.base.start <= end.max(last.unwrap_or(0))
        {
            last = Some(hunk.base.end);
            self.next += 1;
        }
        last
    }

    /// The lines of the side for a range of the base that contains the differences consumed since
    /// `first` and no others.
    fn side(&mut self, base: &Range<usize>) -> Range<usize> {
        let start = base.start.saturating_add_signed(self.before);
        if let Some(last) = self.next.checked_sub(1).and_then(|at| self.hunks.get(at)) {
            self.before = last.side.end.cast_signed() - last.base.end.cast_signed();
        }
        start..base.end.saturating_add_signed(self.before)
    }
}

/// The merge as stretches in which the sides are equal, one of them has changed, or both have.
fn parts(base: &[&[u8]], ours: &[&[u8]], theirs: &[&[u8]]) -> Vec<Part> {
    let mut mine = Changes::of(base, ours);
    let mut other = Changes::of(base, theirs);
    let mut parts = Vec::new();
    let mut at = 0;
    loop {
        let start = match (mine.start(), other.start()) {
            (None, None) => break,
            (Some(one), None) | (None, Some(one)) => one,
            (Some(one), Some(two)) => one.min(two),
        };
        let unchanged = at..start;
        parts.push(Part::Same { ours: mine.side(&unchanged), theirs: other.side(&unchanged) });
        let mut end = start;
        let (mut by_us, mut by_them) = (false, false);
        // Differences that touch belong together.
        loop {
            let taken = [mine.take_up_to(end), other.take_up_to(end)];
            by_us |= taken[0].is_some();
            by_them |= taken[1].is_some();
            match taken.into_iter().flatten().max() {
                Some(last) => end = end.max(last),
                None => break,
            }
        }
        let changed = start..end;
        let (our_lines, their_lines) = (mine.side(&changed), other.side(&changed));
        parts.push(match (by_us, by_them) {
            (true, false) => Part::Ours(our_lines),
            (false, _) => Part::Theirs(their_lines),
            (true, true) if ours[our_lines.clone()] == theirs[their_lines.clone()] => {
                Part::Same { ours: our_lines, theirs: their_lines }
            }
            (true, true) => Part::Conflict { ours: our_lines, theirs: their_lines },
        });
        at = end;
    }
    let unchanged = at..base.len();
    parts.push(Part::Same { ours: mine.side(&unchanged), theirs: other.side(&unchanged) });
    parts
}

/// A conflict without the lines that are equal on both sides.
fn refined(part: Part, ours: &[&[u8]], theirs: &[&[u8]]) -> Vec<Part> {
    let Part::Conflict { ours: mine, theirs: other } = part else { return vec![part] };
    if mine.is_empty() || other.is_empty() {
        return vec![Part::Conflict { ours: mine, theirs: other }];
    }
    let mut parts = Vec::new();
    let (mut our_line, mut their_line) = (mine.start, other.start);
    for Hunk { base, side } in differences(&ours[mine.clone()], &theirs[other.clone()]) {
        let base = mine.start + base.start..mine.start + base.end;
        let side = other.start + side.start..other.start + side.end;
        parts.push(Part::Same { ours: our_line..base.start, theirs: their_line..side.start });
        (our_line, their_line) = (base.end, side.end);
        parts.push(Part::Conflict { ours: base, theirs: side });
    }
    parts.push(Part::Same { ours: our_line..mine.end, theirs: their_line..other.end });
    parts
}

/// Makes one conflict of those that are close to each other.
fn without_gaps(parts: Vec<Part>) -> Vec<Part> {
    let mut joined: Vec<Part> = Vec::with_capacity(parts.len());
    for part in parts {
        let is_empty = matches!(&part, Part::Same { ours, .. } if ours.is_empty());
        if is_empty {
            continue;
        }
        if let (Some(Part::Same { ours, theirs }), Part::Same { ours: mine, theirs: other }) =
            (joined.last_mut(), &part)
        {
            (ours.end, theirs.end) = (mine.end, other.end);
            continue;
        }
        if let Part::Conflict { ours, theirs } = &part {
            let before = joined.len().checked_sub(2).and_then(|at| joined.get(at..));
            if let Some(
                [Part::Conflict { ours: first, theirs: second }, Part::Same { ours: gap, .. }],
            ) = before
                && gap.len() <= GAP_LINES
            {
                let (first, second) = (first.start..ours.end, second.start..theirs.end);
                joined.truncate(joined.len() - 2);
                joined.push(Part::Conflict { ours: first, theirs: second });
                continue;
            }
            if let Some(Part::Conflict { ours: first, theirs: second }) = joined.last_mut() {
                first.end = ours.end;
                second.end = theirs.end;
                continue;
            }
        }
        joined.push(part);
    }
    joined
}

struct Sides<'a> {
    base: &'a [&'a [u8]],
    ours: &'a [&'a [u8]],
    theirs: &'a [&'a [u8]],
}

impl Sides<'_> {
    /// Writes both sides of a conflict between markers.
    fn push_conflict(
        &self,
        text: &mut Vec<u8>,
        ours: Range<usize>,
        theirs: Range<usize>,
        labels: &Labels,
    ) {
        let end: &[u8] =
            if self.has_carriage_returns(ours.start, theirs.start) { b"\r\n" } else { b"\n" };
        let marker = |text: &mut Vec<u8>, sign: u8, label: &str| {
            text.extend([sign; MARKER_LENGTH]);
            if !label.is_empty() {
                text.push(b' ');
                text.extend_from_slice(label.as_bytes());
            }
            text.extend_from_slice(end);
        };
        let side = |text: &mut Vec<u8>, lines: &[&[u8]]| {
            push(text, lines);
            if lines.last().is_some_and(|line| !line.ends_with(b"\n")) {
                text.extend_from_slice(end);
            }
        };
        marker(text, b'<', &labels.ours);
        side(text, &self.ours[ours]);
        marker(text, b'=', "");
        side(text, &self.theirs[theirs]);
        marker(text, b'>', &labels.theirs);
    }

    /// Whether the lines around a conflict end with a carriage return, on both sides.
    fn has_carriage_returns(&self, ours: usize, theirs: usize) -> bool {
        let ends = |lines: &[&[u8]], at: usize| {
            lines.get(at.saturating_sub(1)).map(|line| line.ends_with(b"\r\n"))
        };
        let known = [ends(self.ours, ours), ends(self.theirs, theirs), ends(self.base, 0)];
        let mut known = known.into_iter().flatten().peekable();
        known.peek().is_some() && known.all(|is_so| is_so)
    }
}
