//! `stockade diff`: what a bundle would change. The changes that `apply` makes come first, as a
//! diff that `git apply` accepts; entries that it leaves out or refuses are listed separately,
//! with the reason.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;

use serde_json::{Value, json};
use stockade_api::{BundleChanges, BundleDetail, Bytes, DiffBundle, PathDiff, ShowBundle};
use stockade_bundle::{Change, Entry, Node, RelativePath};
use stockade_core::printable::visible;
use stockade_core::{Code, Problem};
use stockade_review::groups::by_directory;

use crate::args::bundle::Diff;
use crate::commands::difftool;
use crate::output::{self, Output, Style};
use crate::review::{Diffs, Review, paths, text};

/// The most names in a list of left-out entries.
const LISTED: usize = 100;

/// Shows the bundle, or its changes in the named paths.
pub(crate) fn run(arguments: &Diff) -> Result<u8, Problem> {
    let review = Review::open()?;
    let id = review.resolve(&arguments.id)?;
    let request = ShowBundle { id, paths: paths(&arguments.paths) };
    let detail = review.show(request.clone())?;
    review.record_shown(&detail.bundle);
    if arguments.json {
        return print_json(&review, &detail);
    }
    let entries = stockade_review::entries(&detail)?;
    if let Some(tool) = &arguments.tool {
        return difftool::show(&review, &detail.bundle.id, &entries, tool);
    }
    let shown = DiffView {
        review: &review,
        id: &detail.bundle.id,
        entries: &entries,
        has_named_paths: !stockade_review::paths(&detail.bundle.project.0, &request.paths)?
            .is_empty(),
        renamed: entries.iter().filter_map(|(entry, _)| entry.renamed_from.as_ref()).collect(),
    };
    let mut output = Output::with_pager(arguments.color);
    let result = match (arguments.stat, arguments.name_only) {
        (true, _) => shown.stat(&mut output),
        (false, true) => shown.names(&mut output),
        (false, false) => shown.diff(&mut output),
    };
    match result {
        Ok(()) => output::check_written(output.finish())?,
        Err(DiffError::Write(error)) => {
            // The pager may still be displaying its last page.
            let _ = output.finish();
            output::check_written(Err(error))?;
        }
        Err(DiffError::Problem(problem)) => {
            let _ = output.finish();
            return Err(problem);
        }
    }
    Ok(0)
}

/// The next diff; there is one for each requested path.
fn next(diffs: &mut Diffs<'_>) -> Result<PathDiff, Problem> {
    diffs.next().unwrap_or_else(|| Err(Problem::new(Code::Io, "the diff ended too early")))
}

fn print_json(review: &Review, detail: &BundleDetail) -> Result<u8, Problem> {
    let entries = stockade_review::entries(detail)?;
    let paths = entries.iter().map(|(entry, _)| Bytes(entry.path.as_bytes().to_vec())).collect();
    let mut diffs = review.differences(DiffBundle { id: detail.bundle.id.clone(), paths })?;
    let mut answer = serde_json::to_value(detail).unwrap_or_default();
    let mut unseen = Unseen::default();
    for entry in answer["entries"].as_array_mut().into_iter().flatten() {
        let diff = next(&mut diffs)?;
        entry["added"] = json!(diff.added);
        entry["removed"] = json!(diff.removed);
        entry["binary"] = json!(diff.binary);
        entry["diff"] = Value::from(diff.diff.lossy());
        entry["unseen"] = json!(diff.unseen);
        if let Some(host) = &diff.host {
            entry["host"] = Value::from(host.lossy());
        }
        if let Some(readable) = &diff.readable {
            entry["readable"] = Value::from(readable.lossy());
        }
        unseen.add(&diff);
    }
    answer["unseen"] = json!({ "paths": unseen.paths, "bytes": unseen.bytes });
    output::print_json(&answer)?;
    Ok(0)
}

/// Why the output ended early.
pub(super) enum DiffError {
    Write(io::Error),
    Problem(Problem),
}

impl From<io::Error> for DiffError {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

impl From<Problem> for DiffError {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// How `apply` treats an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Normal,
    Executed,
    Conflicting,
    Ignored,
    Refused,
}

impl Group {
    const SPECIAL: [Self; 4] = [Self::Executed, Self::Conflicting, Self::Ignored, Self::Refused];

    fn of(entry: &Entry) -> Self {
        if entry.refused.is_some() {
            Self::Refused
        } else if entry.ignored {
            Self::Ignored
        } else if entry.conflict {
            Self::Conflicting
        } else if entry.executed_by.is_some() {
            Self::Executed
        } else {
            Self::Normal
        }
    }

    fn heading(self) -> &'static str {
        match self {
            Self::Normal => "applied by default",
            Self::Executed => "executed by tools on the host, applied only with --allow-executed",
            Self::Conflicting => {
                "in conflict, also changed on the host, applied only with --merge, --ours or --theirs"
            }
            Self::Ignored => "ignored by git, applied only if named or with --include-ignored",
            Self::Refused => "refused, never applied",
        }
    }

    /// Whether its diffs are shown even if they are not requested by name.
    fn is_shown(self) -> bool {
        matches!(self, Self::Normal | Self::Executed | Self::Conflicting)
    }
}

struct DiffView<'b> {
    review: &'b Review,
    /// The bundle's id.
    id: &'b str,
    /// The entries, each with whether it was already applied.
    entries: &'b [(Entry, bool)],
    /// Whether paths were named.
    has_named_paths: bool,
    /// The old paths of the displayed renames.
    renamed: HashSet<&'b RelativePath>,
}

impl<'b> DiffView<'b> {
    fn of(&self, group: Group) -> Vec<&'b (Entry, bool)> {
        let is_shown = |(entry, _): &&(Entry, bool)| {
            let is_half = entry.change.new_node().is_none() && self.renamed.contains(&entry.path);
            Group::of(entry) == group && !is_half
        };
        self.entries.iter().filter(is_shown).collect()
    }

    /// The diffs of these entries, in this order.
    fn diffs<'e>(
        &self,
        entries: impl Iterator<Item = &'e (Entry, bool)>,
    ) -> Result<Diffs<'b>, Problem> {
        let paths = entries.map(|(entry, _)| Bytes(entry.path.as_bytes().to_vec())).collect();
        self.review.differences(DiffBundle { id: self.id.to_owned(), paths })
    }

    fn diff(&self, output: &mut Output) -> Result<(), DiffError> {
        let taken = self.of(Group::Normal);
        let apart = Group::SPECIAL.map(|group| {
            let entries = self.of(group);
            (group, group.is_shown() || self.has_named_paths, entries)
        });
        let with_lines = apart.iter().filter(|(_, is_shown, _)| *is_shown);
        let with_lines = with_lines.flat_map(|(_, _, entries)| entries);
        let mut diffs = self.diffs(taken.iter().chain(with_lines).copied())?;
        let mut unseen = Unseen::default();
        for _ in &taken {
            let diff = next(&mut diffs)?;
            lines(output, &diff)?;
            unseen.add(&diff);
        }
        for (group, is_shown, entries) in &apart {
            self.print_special(output, *group, entries)?;
            if *is_shown {
                for _ in entries {
                    let diff = next(&mut diffs)?;
                    lines(output, &diff)?;
                    unseen.add(&diff);
                }
            }
        }
        Ok(unseen.print(output)?)
    }

    /// Prints the paths whose diffs are shown, one per line.
    fn names(&self, output: &mut Output) -> Result<(), DiffError> {
        let groups = [Group::Normal].into_iter().chain(Group::SPECIAL);
        let groups = groups.filter(|group| group.is_shown() || self.has_named_paths);
        let mut entries: Vec<_> = groups.flat_map(|group| self.of(group)).collect();
        entries.sort_by(|(one, _), (other, _)| one.path.as_bytes().cmp(other.path.as_bytes()));
        for (entry, _) in entries {
            output.line(Style::Plain, text::path_text(entry).as_bytes())?;
        }
        Ok(())
    }

    fn stat(&self, output: &mut Output) -> Result<(), DiffError> {
        let (mut added, mut removed) = (0, 0);
        let mut unseen = Unseen::default();
        let groups = [Group::Normal].into_iter().chain(Group::SPECIAL);
        let groups: Vec<_> = groups.map(|group| (group, self.of(group))).collect();
        let is_listed = |group: Group| group.is_shown() || self.has_named_paths;
        let listed = groups.iter().filter(|(group, _)| is_listed(*group));
        let mut diffs = self.diffs(listed.flat_map(|(_, entries)| entries).copied())?;
        for (group, entries) in &groups {
            if !is_listed(*group) {
                self.print_special(output, *group, entries)?;
                continue;
            }
            if *group != Group::Normal && !entries.is_empty() {
                let heading = format!("# {}:", group.heading());
                output.line(Style::Heading, heading.as_bytes())?;
            }
            for (entry, is_applied) in entries {
                let diff = next(&mut diffs)?;
                let mut numbers = match diff.binary {
                    true if !is_shown_as_text(&diff) => "binary".to_owned(),
                    _ => format!("+{} -{}", diff.added, diff.removed),
                };
                if diff.unseen > 0 {
                    numbers.push_str(&format!(", {} bytes, not shown", diff.unseen));
                }
                unseen.add(&diff);
                let applied = is_applied.then(|| "applied".to_owned());
                let reason = applied.or_else(|| reason(entry));
                let reason = reason.map(|text| format!("  ({text})")).unwrap_or_default();
                let line = format!(
                    "{} {} | {numbers}{}{reason}",
                    text::status_letter(entry),
                    text::path_text(entry),
                    modes(entry)
                );
                output.line(Style::Plain, line.as_bytes())?;
                added += diff.added;
                removed += diff.removed;
            }
        }
        let changed = text::changed(&self.counts());
        let sum = format!("{changed}, {added} lines added, {removed} removed");
        output.line(Style::Plain, sum.as_bytes())?;
        Ok(unseen.print(output)?)
    }

    /// Prints a heading for entries that are not simply applied, and each name with its reason.
    fn print_special(
        &self,
        output: &mut Output,
        group: Group,
        entries: &[&(Entry, bool)],
    ) -> Result<(), DiffError> {
        if entries.is_empty() {
            return Ok(());
        }
        if !group.is_shown() && !self.has_named_paths {
            return self.print_directories(output, group, entries);
        }
        let heading = format!("# {} {}:", entries.len(), group.heading());
        output.line(Style::Heading, heading.as_bytes())?;
        for (entry, _) in entries.iter().take(LISTED) {
            let reason = reason(entry).map(|text| format!(": {text}")).unwrap_or_default();
            let line =
                format!("#   {} {}{reason}", text::status_letter(entry), text::path_text(entry));
            output.line(Style::Plain, line.as_bytes())?;
        }
        if entries.len() > LISTED {
            let line = format!("#   and {} more; --stat lists all", entries.len() - LISTED);
            output.line(Style::Plain, line.as_bytes())?;
        }
        Ok(())
    }

    /// Prints a heading for entries that are not applied by default, and one line for those of one
    /// directory that have the same reason.
    fn print_directories(
        &self,
        output: &mut Output,
        group: Group,
        entries: &[&(Entry, bool)],
    ) -> Result<(), DiffError> {
        let counts = stockade_review::counts(entries.iter().map(|(entry, _)| entry));
        let heading = format!("# {} {}:", counts.ignored + counts.refused as u64, group.heading());
        output.line(Style::Heading, heading.as_bytes())?;
        let mut by_reason: BTreeMap<Option<String>, BTreeSet<RelativePath>> = BTreeMap::new();
        for (entry, _) in entries {
            by_reason.entry(reason(entry)).or_default().insert(entry.path.clone());
        }
        let all: BTreeSet<_> = self.entries.iter().map(|(entry, _)| entry.path.clone()).collect();
        let found: HashMap<_, _> = entries.iter().map(|(entry, _)| (&entry.path, entry)).collect();
        let mut lines = 0;
        for (reason, paths) in by_reason {
            let reason = reason.map(|text| format!(": {text}")).unwrap_or_default();
            let others = all.difference(&paths).cloned().collect();
            for part in by_directory(&paths, &others) {
                lines += 1;
                if lines > LISTED {
                    continue;
                }
                let entry = part.path.as_ref().and_then(|path| found.get(path));
                let line = match entry {
                    Some(entry) if part.paths <= 1 => format!(
                        "#   {} {}{reason}",
                        text::status_letter(entry),
                        text::path_text(entry)
                    ),
                    _ => {
                        let path = part.path.map_or_else(|| ".".to_owned(), |it| it.to_string());
                        format!("#   {path}/: {} paths{reason}", part.paths)
                    }
                };
                output.line(Style::Plain, line.as_bytes())?;
            }
        }
        if lines > LISTED {
            let line = format!("#   and {} more; name a directory to list it", lines - LISTED);
            output.line(Style::Plain, line.as_bytes())?;
        }
        Ok(())
    }

    /// The numbers of the displayed changes.
    fn counts(&self) -> BundleChanges {
        stockade_review::counts(self.entries.iter().map(|(entry, _)| entry))
    }
}

/// Writes the lines of a diff, each in its style: on a terminal in the form for a reader. Elsewhere the
/// diff stays one for `git apply`, and what a reader cannot see in it follows as lines of its own.
fn lines(output: &mut Output, diff: &PathDiff) -> Result<(), DiffError> {
    match &diff.readable {
        Some(readable) if output.is_terminal() => styled(output, &readable.0)?,
        _ => styled(output, &diff.diff.0)?,
    }
    let path = RelativePath::new(diff.path.0.as_slice()).map(|path| path.to_string());
    let path = path.unwrap_or_default();
    if let Some(readable) = &diff.readable
        && !output.is_terminal()
        && needs_reader(&diff.diff.0)
    {
        if is_shown_as_text(diff) {
            let heading = format!("# {path}, with hidden bytes made visible:");
            output.line(Style::Heading, heading.as_bytes())?;
        }
        let descriptions = split(&readable.0).filter(|line| line.starts_with(b"Binary files "));
        for line in descriptions {
            output.line(Style::Heading, &[b"# ", line].concat())?;
        }
        let hunks = split(&readable.0).skip_while(|line| !starts_reading(line));
        for line in hunks {
            output.line(Style::Plain, &[b"# ", line].concat())?;
        }
    }
    if let Some(host) = &diff.host {
        let heading = format!("# {path}: conflict, the host has changed the same base:");
        output.line(Style::Heading, heading.as_bytes())?;
        for line in split(&host.0) {
            output.line(Style::Plain, &[b"# ", line].concat())?;
        }
    }
    if diff.unseen > 0 {
        let line = format!("# {path}: {} bytes, not shown", diff.unseen);
        output.line(Style::Heading, line.as_bytes())?;
    }
    Ok(())
}

/// Whether a reader of a diff does not see all of it as it is.
fn needs_reader(diff: &[u8]) -> bool {
    let has_hunks = split(diff).any(|line| line.starts_with(b"@@ "));
    !has_hunks || split(diff).any(|line| matches!(visible(line), Cow::Owned(_)))
}

/// Whether the part of a diff for a reader that differs begins with this line.
fn starts_reading(line: &[u8]) -> bool {
    [&b"@@ "[..], b"decoded from ", b"The whole new content"]
        .iter()
        .any(|start| line.starts_with(start))
}

/// Whether the lines of a change are shown to a reader, though it is no text for git.
fn is_shown_as_text(diff: &PathDiff) -> bool {
    diff.readable.as_ref().is_some_and(|readable| split(&readable.0).any(starts_reading))
}

/// The lines of a text.
fn split(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let lines = text.split(|byte| *byte == b'\n');
    lines.take(if text.is_empty() { 0 } else { usize::MAX })
}

/// Writes lines of a diff, each in its style.
pub(super) fn styled(output: &mut Output, text: &[u8]) -> Result<(), DiffError> {
    // In a hunk each line starts with a sign, so content is never mistaken for a header.
    let mut in_hunks = false;
    for line in split(text) {
        if line.starts_with(b"diff --git ") {
            in_hunks = false;
        }
        let style = match line.first() {
            Some(b'@') => Style::Hunk,
            Some(b'+') if in_hunks => Style::Added,
            Some(b'-') if in_hunks => Style::Removed,
            _ if in_hunks => Style::Plain,
            _ => Style::Heading,
        };
        in_hunks |= style == Style::Hunk;
        output.line(style, line)?;
    }
    Ok(())
}

/// What of the new contents a diff does not show.
#[derive(Debug, Default)]
struct Unseen {
    paths: usize,
    bytes: u64,
    /// Contents that are shown by their kind, size and hash.
    binary: usize,
}

impl Unseen {
    fn add(&mut self, diff: &PathDiff) {
        self.bytes += diff.unseen;
        self.paths += usize::from(diff.unseen > 0);
        self.binary += usize::from(diff.binary && diff.unseen == 0 && !is_shown_as_text(diff));
    }

    /// The last lines of a diff.
    fn print(&self, output: &mut Output) -> io::Result<()> {
        if self.binary > 0 {
            let paths = text::count_paths(self.binary);
            let line = format!("# {paths} not text: shown by kind, size and hash");
            output.line(Style::Heading, line.as_bytes())?;
        }
        if self.paths > 0 {
            let (paths, bytes) = (text::count_paths(self.paths), self.bytes);
            let line = format!(
                "# {paths} with {bytes} bytes, not shown, applied only with --allow-unseen"
            );
            output.line(Style::Heading, line.as_bytes())?;
        }
        Ok(())
    }
}

/// Why an entry is not simply applied.
fn reason(entry: &Entry) -> Option<String> {
    let mut reasons = Vec::new();
    reasons.extend(entry.refused.map(text::refusal));
    reasons.extend(entry.executed_by.map(text::executed_by));
    reasons.extend(entry.conflict.then_some(match entry.base_known {
        true => "conflict: the host has changed it too",
        false => {
            "conflict: changed on the host while the command ran; what it was before is unknown, \
             so it is compared with the host's version"
        }
    }));
    let below =
        entry.tree.as_ref().map(|tree| format!("{} paths, {} bytes", tree.paths, tree.bytes));
    reasons.extend(below.as_deref());
    if let Some(Node::Symlink { target }) = entry.change.new_node()
        && entry.refused.is_some()
    {
        return Some(format!("{} -> {}", reasons.join(", "), target.escape_ascii()));
    }
    (!reasons.is_empty()).then(|| reasons.join(", "))
}

/// A change of permission bits, for `--stat`.
fn modes(entry: &Entry) -> String {
    let mode = |node: &Node| match node {
        Node::File { mode, .. } | Node::Directory { mode } => Some(*mode),
        Node::Symlink { .. } => None,
    };
    match &entry.change {
        Change::Modify { old, new } => match (mode(old), mode(new)) {
            (Some(old), Some(new)) if old != new => format!(" mode {old:03o} => {new:03o}"),
            _ => String::new(),
        },
        Change::Add { .. } | Change::Delete { .. } => String::new(),
    }
}
