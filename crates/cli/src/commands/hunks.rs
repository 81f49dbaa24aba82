//! `stockade apply --interactive`: asks for each hunk, as `git add --patch` does. What is not a change
//! of some lines of a text is chosen as a whole.

use std::io::{self, BufRead as _, Write as _};

use stockade_api::{ApplyBundle, Bytes, ChosenHunks, DiffBundle, PathDiff, ShowBundle};
use stockade_bundle::{Change, Entry, Node};
use stockade_core::printable::visible;
use stockade_core::{Code, Problem};

use crate::problem::caused;
use crate::review::{Review, text};

/// An answer to one question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    /// Yes for the rest of the file.
    All,
    /// No for the rest of the file.
    Done,
    /// No for everything that was not asked yet.
    Quit,
}

const HELP: &str = "y - apply this hunk
n - do not apply this hunk
q - quit; apply neither this hunk nor any that follow
a - apply this hunk and all later hunks of the file
d - apply neither this hunk nor any later hunk of the file
? - print this help
";

/// Asks which changes to apply; `None` if none is chosen.
pub(super) fn choose(
    review: &Review,
    request: ApplyBundle,
) -> Result<Option<ApplyBundle>, Problem> {
    let shown = ShowBundle { id: request.id.clone(), paths: request.paths.clone() };
    let detail = review.show(shown)?;
    let entries = stockade_review::entries(&detail)?;
    let is_named = !request.paths.is_empty();
    let asked: Vec<&Entry> = entries
        .iter()
        .filter(|(entry, is_applied)| {
            let is_ignored = entry.ignored && !request.include_ignored && !is_named;
            entry.refused.is_none() && !is_applied && !is_ignored
        })
        .map(|(entry, _)| entry)
        .collect();
    let sources: Vec<_> = asked.iter().filter_map(|entry| entry.renamed_from.as_ref()).collect();
    let is_asked = |entry: &&&Entry| {
        let is_half = entry.change.new_node().is_none() && sources.contains(&&entry.path);
        !is_half && !is_parent(entry, &asked)
    };
    let questions: Vec<&Entry> = asked.iter().filter(is_asked).copied().collect();
    let id = detail.bundle.id;
    let paths = questions.iter().map(|entry| Bytes(entry.path.as_bytes().to_vec())).collect();
    let diffs = review.differences(DiffBundle { id: id.clone(), paths })?;
    let mut chosen = ApplyBundle { id, paths: Vec::new(), hunks: Vec::new(), ..request };
    let mut has_quit = false;
    for (entry, diff) in questions.iter().zip(diffs) {
        if has_quit {
            break;
        }
        has_quit = ask_entry(entry, &diff?, &mut chosen)?;
    }
    let is_taken = |path: &[u8]| chosen.paths.iter().any(|Bytes(taken)| taken == path);
    // A directory is removed if all that is removed in it is chosen.
    let removed: Vec<Bytes> = asked
        .iter()
        .filter(|entry| matches!(entry.change, Change::Delete { old: Node::Directory { .. } }))
        .filter(|directory| {
            let mut below = questions.iter().filter(|entry| entry.path.is_within(&directory.path));
            is_parent(directory, &asked) && below.all(|entry| is_taken(entry.path.as_bytes()))
        })
        .map(|entry| Bytes(entry.path.as_bytes().to_vec()))
        .collect();
    chosen.paths.extend(removed);
    Ok((!chosen.paths.is_empty()).then_some(chosen))
}

/// Whether an entry is a directory in which other paths are asked for.
fn is_parent(entry: &Entry, asked: &[&Entry]) -> bool {
    let nodes = [entry.change.old(), entry.change.new_node()];
    nodes.iter().flatten().all(|node| matches!(node, Node::Directory { .. }))
        && !matches!(entry.change, Change::Modify { .. })
        && asked.iter().any(|other| other.path != entry.path && other.path.is_within(&entry.path))
}

/// Asks for the hunks of an entry, or for all of it; whether the user quits.
fn ask_entry(entry: &Entry, diff: &PathDiff, chosen: &mut ApplyBundle) -> Result<bool, Problem> {
    let path = Bytes(entry.path.as_bytes().to_vec());
    let (header, hunks) = split(&diff.diff.0);
    let is_text =
        matches!(&entry.change, Change::Modify { old: Node::File { .. }, new: Node::File { .. } })
            && diff.readable.is_none();
    show(header)?;
    if let Some(by) = entry.executed_by {
        eprint_line!("stockade: {} is {}", entry.path, text::executed_by(by));
    }
    let mut taken = Vec::new();
    let mut rest = None;
    let whole: Vec<&[u8]> =
        vec![diff.readable.as_ref().map_or_else(|| &diff.diff.0[header.len()..], |it| &it.0)];
    let pieces = if is_text && hunks.len() > 1 { &hunks } else { &whole };
    for (number, piece) in pieces.iter().enumerate() {
        let answer = match rest {
            Some(answer) => answer,
            None => {
                show(piece)?;
                ask(number + 1, pieces.len())?
            }
        };
        match answer {
            Answer::Yes => taken.push(*piece),
            Answer::No => {}
            Answer::All => {
                taken.push(*piece);
                rest = Some(Answer::Yes);
            }
            Answer::Done => rest = Some(Answer::No),
            Answer::Quit => {
                add(chosen, path, header, (&taken, pieces.len()), entry);
                return Ok(true);
            }
        }
    }
    add(chosen, path, header, (&taken, pieces.len()), entry);
    Ok(false)
}

/// Adds the chosen hunks of a path to the request.
fn add(
    chosen: &mut ApplyBundle,
    path: Bytes,
    header: &[u8],
    (taken, of): (&[&[u8]], usize),
    entry: &Entry,
) {
    if taken.is_empty() {
        return;
    }
    if taken.len() < of {
        let mut diff = header.to_vec();
        taken.iter().for_each(|hunk| diff.extend_from_slice(hunk));
        chosen.hunks.push(ChosenHunks { path: path.clone(), diff: Bytes(diff) });
    }
    chosen.allow_executed |= entry.executed_by.is_some();
    chosen.paths.push(path);
}

/// The lines before the first hunk, and the hunks. Each line of a hunk starts with a sign.
fn split(diff: &[u8]) -> (&[u8], Vec<&[u8]>) {
    let mut starts = Vec::new();
    let mut at = 0;
    for line in diff.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(b"@@ ") {
            starts.push(at);
        }
        at += line.len();
    }
    let header = starts.first().copied().unwrap_or(diff.len());
    let ends = starts.iter().skip(1).copied().chain([diff.len()]);
    let hunks = starts.iter().copied().zip(ends).map(|(start, end)| &diff[start..end]).collect();
    (&diff[..header], hunks)
}

/// Prints a part of a diff, with what could control a terminal made visible.
fn show(part: &[u8]) -> Result<(), Problem> {
    let mut output = io::stdout().lock();
    let part = part.strip_suffix(b"\n").unwrap_or(part);
    for line in part.split(|byte| *byte == b'\n').filter(|_| !part.is_empty()) {
        let written = writeln!(output, "{}", visible(line));
        written.map_err(|error| caused(Code::Io, &error))?;
    }
    output.flush().map_err(|error| caused(Code::Io, &error))
}

fn ask(number: usize, of: usize) -> Result<Answer, Problem> {
    let failed = |error: io::Error| caused(Code::Io, &error);
    loop {
        let mut output = io::stdout().lock();
        write!(output, "({number}/{of}) Apply this hunk [y,n,q,a,d,?]? ").map_err(failed)?;
        output.flush().map_err(failed)?;
        drop(output);
        let mut line = String::new();
        if io::stdin().lock().read_line(&mut line).map_err(failed)? == 0 {
            return Ok(Answer::Quit);
        }
        match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => return Ok(Answer::Yes),
            "n" | "no" => return Ok(Answer::No),
            "a" => return Ok(Answer::All),
            "d" => return Ok(Answer::Done),
            "q" => return Ok(Answer::Quit),
            _ => show(HELP.as_bytes())?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_is_split_at_its_hunks() {
        let diff =
            b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n@@ -9 +9 @@\n-@@ \n+c\n";
        let (header, hunks) = split(diff);
        assert_eq!(header, b"diff --git a/x b/x\n--- a/x\n+++ b/x\n");
        assert_eq!(hunks, [&b"@@ -1 +1 @@\n-a\n+b\n"[..], b"@@ -9 +9 @@\n-@@ \n+c\n"]);
        assert_eq!(split(b"new directory d\n"), (&b"new directory d\n"[..], Vec::new()));
    }
}
