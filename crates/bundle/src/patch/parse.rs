//! Parsing an untrusted unified diff, and refusing one that different programs would interpret
//! differently.
//!
//! The parser never panics; memory and time are proportional to the input, whose size is
//! limited. Whether a path is a `.git` or otherwise refused is decided in [`crate::policy`].

use std::ops::Range;

use stockade_core::BundleLimits;

use super::binary_data::{BinaryData, Form};
use super::error::{Error, Fault};
use super::header::{Header, side};
use super::hunk::{self, Hunk, HunkReader, Side};
use crate::path::RelativePath;
use crate::policy::link_leaves;
use crate::validate::check_limit;

/// What a patch does to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePatch<'a> {
    /// The old path; `None` for an addition.
    pub old_path: Option<RelativePath>,
    /// The new path; `None` for a deletion.
    pub new_path: Option<RelativePath>,
    /// The kind of change.
    pub operation: Operation,
    /// The old mode, including the type, if the patch contains it.
    pub old_mode: Option<u32>,
    /// The new mode, if the patch contains it.
    pub new_mode: Option<u32>,
    /// Whether the content is binary; there are no hunks then.
    pub binary: bool,
    /// The binary content, if the patch has it.
    pub data: Option<BinaryData<'a>>,
    /// The changed lines.
    pub hunks: Vec<Hunk<'a>>,
    /// Where its text is in the whole patch, in bytes.
    pub place: Range<usize>,
}

/// The kind of change that a patch makes to one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// It is created.
    Add,
    /// It is removed.
    Delete,
    /// Its content or mode is changed.
    Modify,
    /// It is moved, and its content may change.
    Rename,
    /// It is copied, and the content of the copy may change.
    Copy,
}

/// Parses a patch of any number of files, in git's format or that of `diff -u` (with `a/` and
/// `b/` before the paths). Text around the diffs, as in mail, is skipped.
pub fn parse<'a>(bytes: &'a [u8], limits: &BundleLimits) -> Result<Vec<FilePatch<'a>>, Error> {
    let whole = check_limit(bytes.len() as u64, "total_bytes", limits.total_bytes, limits);
    whole.map_err(|exceeded| Error { line: 0, fault: exceeded.into() })?;
    let lines = bytes.split(|b| *b == b'\n').peekable();
    let mut reader = Reader { lines, number: 0, position: 0, limits };
    let mut files = Vec::new();
    loop {
        let file = reader.next_file();
        match file.map_err(|fault| Error { line: reader.number, fault })? {
            Some(mut file) => {
                // The last line may lack a newline.
                file.place.end = file.place.end.min(bytes.len());
                files.push(file);
            }
            None => return Ok(files),
        }
        let count = check_limit(files.len() as u64, "entries", limits.entries, limits);
        count.map_err(|exceeded| Error { line: reader.number, fault: exceeded.into() })?;
    }
}

struct Reader<'a, 'l, I: Iterator<Item = &'a [u8]>> {
    lines: std::iter::Peekable<I>,
    number: usize,
    /// Where the next line begins.
    position: usize,
    limits: &'l BundleLimits,
}

impl<'a, I: Iterator<Item = &'a [u8]>> Reader<'a, '_, I> {
    fn take(&mut self) -> Option<&'a [u8]> {
        self.number += 1;
        let line = self.lines.next()?;
        self.position += line.len() + 1;
        Some(line)
    }

    /// Consumes the next line if it starts with `label`; returns the rest of the line.
    fn take_after(&mut self, label: &[u8]) -> Option<&'a [u8]> {
        let rest = self.lines.peek()?.strip_prefix(label)?;
        self.take();
        Some(rest)
    }

    fn next_file(&mut self) -> Result<Option<FilePatch<'a>>, Fault> {
        while let Some(line) = self.lines.peek() {
            if line.starts_with(b"diff --git ") || line.starts_with(b"--- ") {
                return self.file().map(Some);
            }
            // A hunk without a file header.
            if line.starts_with(b"@@ -") || line.starts_with(b"+++ ") {
                return Err(Fault::UnexpectedLine);
            }
            self.take();
        }
        Ok(None)
    }

    fn file(&mut self) -> Result<FilePatch<'a>, Fault> {
        let start = self.position;
        let mut header = Header { git: self.take_after(b"diff --git "), ..Header::default() };
        if header.git.is_some() {
            while let Some(line) = self.lines.peek().copied() {
                if !header.extended(line)? {
                    break;
                }
                self.take();
            }
        }
        let binary = if header.git.is_some() { self.binary()? } else { None };
        if binary.is_none()
            && let Some(old) = self.take_after(b"--- ")
        {
            header.old = Some(side(old, b"a/")?);
            let new = self.take_after(b"+++ ").ok_or(Fault::Sides)?;
            header.new = Some(side(new, b"b/")?);
        }
        let mut hunks = Vec::new();
        if header.new.is_some() {
            while let Some(line) =
                self.lines.peek().filter(|line| line.starts_with(b"@@ -")).copied()
            {
                self.take();
                hunks.push(self.hunk(line)?);
            }
            self.after_hunks()?;
            hunk::check_order(&hunks)?;
            if hunks.is_empty() {
                return Err(Fault::Empty);
            }
        }
        let place = start..self.position;
        self.finish(header, (hunks, place), binary)
    }

    fn hunk(&mut self, header: &[u8]) -> Result<Hunk<'a>, Fault> {
        let mut open = HunkReader::new(header)?;
        while !open.is_full() {
            match self.take().ok_or(Fault::HunkLength)? {
                line if line.starts_with(b"\\ ") => open.no_newline()?,
                line => open.push(line)?,
            }
        }
        if self.take_after(b"\\ ").is_some() {
            open.no_newline()?;
        }
        Ok(open.hunk)
    }

    /// Lines that look like further lines of a hunk, beyond what its header announced, are not mail
    /// text.
    fn after_hunks(&mut self) -> Result<(), Fault> {
        match self.lines.peek() {
            // The signature separator of a mail.
            Some(&b"-- ") => Ok(()),
            Some(line) if line.starts_with(b"--- ") => Ok(()),
            Some([b' ' | b'+' | b'-' | b'\\', ..]) => Err(Fault::HunkLength),
            _ => Ok(()),
        }
    }

    /// Reads binary data; `None` if there is none, and no content if only a difference is stated.
    fn binary(&mut self) -> Result<Option<Option<BinaryData<'a>>>, Fault> {
        if let Some(line) = self.take_after(b"Binary files ") {
            return if line.ends_with(b" differ") { Ok(Some(None)) } else { Err(Fault::Binary) };
        }
        if self.take_after(b"GIT binary patch").is_none() {
            return Ok(None);
        }
        // The new content, and the old one for a program that takes the change back.
        let mut blocks = Vec::new();
        loop {
            let (form, size) = match self.take_after(b"literal ") {
                Some(size) => (Form::Literal, size),
                None => match self.take_after(b"delta ") {
                    Some(size) => (Form::Delta, size),
                    None => break,
                },
            };
            let size: u64 = std::str::from_utf8(size)
                .ok()
                .and_then(|size| size.parse().ok())
                .ok_or(Fault::Binary)?;
            check_limit(size, "total_bytes", self.limits.total_bytes, self.limits)?;
            let mut lines = Vec::new();
            while let Some(line) = self.take().filter(|line| !line.is_empty()) {
                if !is_base85(line) {
                    return Err(Fault::Binary);
                }
                lines.push(line);
            }
            blocks.push(BinaryData { form, size, lines });
        }
        if !(1..=2).contains(&blocks.len()) {
            return Err(Fault::Binary);
        }
        Ok(Some(blocks.into_iter().next()))
    }

    fn finish(
        &self,
        header: Header<'a>,
        (hunks, place): (Vec<Hunk<'a>>, Range<usize>),
        binary: Option<Option<BinaryData<'a>>>,
    ) -> Result<FilePatch<'a>, Fault> {
        let operation = operation(&header)?;
        let (old, new) = paths(&header, operation)?;
        if !header.matches(&old, &new) {
            return Err(Fault::Names);
        }
        for path in [&old, &new] {
            let length = path.as_bytes().len() as u64;
            check_limit(length, "path_bytes", self.limits.path_bytes, self.limits)?;
        }
        let one_sided = |wanted: Side| {
            hunks.len() <= 1 && hunks.iter().flat_map(|h| &h.lines).all(|line| line.side == wanted)
        };
        let fits = match operation {
            Operation::Add => one_sided(Side::New),
            Operation::Delete => one_sided(Side::Old),
            Operation::Modify => {
                if hunks.is_empty() && binary.is_none() && header.new_mode.is_none() {
                    return Err(Fault::Empty);
                }
                true
            }
            Operation::Rename | Operation::Copy => true,
        };
        if !fits {
            return Err(Fault::Contradiction);
        }
        let kept = header.index_mode;
        let file = FilePatch {
            old_mode: header.old_mode.or(header.deleted_file).or(kept),
            new_mode: header.new_mode.or(header.new_file).or(kept),
            old_path: (operation != Operation::Add).then_some(old),
            new_path: (operation != Operation::Delete).then_some(new),
            operation,
            binary: binary.is_some(),
            data: binary.flatten(),
            hunks,
            place,
        };
        check_link(&file)?;
        Ok(file)
    }
}

fn operation(header: &Header<'_>) -> Result<Operation, Fault> {
    let has_both = |pair: &(Option<RelativePath>, Option<RelativePath>)| match pair {
        (Some(_), Some(_)) => Ok(true),
        (None, None) => Ok(false),
        _ => Err(Fault::Contradiction),
    };
    let old_is_null = header.old == Some(None);
    let new_is_null = header.new == Some(None);
    let is_foreign = header.git.is_none();
    let adds = header.new_file.is_some() || (is_foreign && old_is_null);
    let deletes = header.deleted_file.is_some() || (is_foreign && new_is_null);
    let (renames, copies) = (has_both(&header.rename)?, has_both(&header.copy)?);
    let changes_mode = header.old_mode.is_some();
    let contradicts = [adds, deletes, renames, copies].iter().filter(|is| **is).count() > 1
        || changes_mode != header.new_mode.is_some()
        || (changes_mode && (adds || deletes || header.index_mode.is_some()))
        // Git states which sides exist twice, and both statements must agree.
        || (header.old.is_some() && old_is_null != adds)
        || (header.new.is_some() && new_is_null != deletes)
        || (is_foreign && header.old.is_none());
    match (adds, deletes, renames, copies) {
        _ if contradicts => Err(Fault::Contradiction),
        (true, ..) => Ok(Operation::Add),
        (_, true, ..) => Ok(Operation::Delete),
        (_, _, true, _) => Ok(Operation::Rename),
        (.., true) => Ok(Operation::Copy),
        _ => Ok(Operation::Modify),
    }
}

/// The paths of both sides; they are equal if only one side exists.
fn paths(header: &Header<'_>, operation: Operation) -> Result<(RelativePath, RelativePath), Fault> {
    let moved = match operation {
        Operation::Rename => header.rename.clone(),
        Operation::Copy => header.copy.clone(),
        Operation::Add | Operation::Delete | Operation::Modify => (None, None),
    };
    let sides = (header.old.clone().flatten(), header.new.clone().flatten());
    let (old, new) = match (moved, sides.clone()) {
        ((Some(old), Some(new)), _) | (_, (Some(old), Some(new))) => (old, new),
        (_, (Some(only), None) | (None, Some(only))) => (only.clone(), only),
        _ => {
            let path = header.path_of_git_line()?;
            (path.clone(), path)
        }
    };
    let disagrees =
        |side: Option<RelativePath>, path: &RelativePath| side.is_some_and(|s| s != *path);
    let is_moved = matches!(operation, Operation::Rename | Operation::Copy);
    if disagrees(sides.0, &old) || disagrees(sides.1, &new) || (old == new) == is_moved {
        return Err(Fault::Names);
    }
    Ok((old, new))
}

/// A link that the patch creates must stay inside the project, and its target must be in the patch.
fn check_link(file: &FilePatch<'_>) -> Result<(), Fault> {
    const LINK: u32 = 0o120_000;
    let Some(path) = file.new_path.as_ref().filter(|_| file.new_mode == Some(LINK)) else {
        return Ok(());
    };
    let lines = file.hunks.iter().flat_map(|hunk| &hunk.lines);
    let mut target = lines.filter(|line| line.side != Side::Old);
    match (target.next(), target.next()) {
        (Some(line), None) if !line.newline && !link_leaves(path, line.text) => Ok(()),
        _ => Err(Fault::Link),
    }
}

/// Whether a line is a count and base 85 digits, as git writes binary data.
fn is_base85(line: &[u8]) -> bool {
    let Some((count, digits)) = line.split_first() else { return false };
    let bytes = match count {
        b'A'..=b'Z' => usize::from(count - b'A') + 1,
        b'a'..=b'z' => usize::from(count - b'a') + 27,
        _ => return false,
    };
    digits.len() == bytes.div_ceil(4) * 5
        && digits
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&()*+-;<=>?@^_`{|}~".contains(b))
}
