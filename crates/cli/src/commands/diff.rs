//! `stockade diff`: what a bundle would change. What `apply` takes comes first,
//! as a diff that `git apply` understands; what it leaves out or refuses comes
//! apart, with the reason.

use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stockade_bundle::patch::{self, Rendered, Sides};
use stockade_bundle::store::{Bundle, State};
use stockade_bundle::{Change, Entry, Node, RelativePath};
use stockade_core::Problem;

use crate::args::Diff;
use crate::commands::bundles::described;
use crate::problem::{of_apply, of_store};
use crate::review::output::{self, Output, Style};
use crate::review::{self, Review, words};

/// How long the lines of one file are compared with all care.
const CARE: Duration = Duration::from_millis(500);

/// How many names a list of what is left out shows.
const LISTED: usize = 100;

/// Shows the bundle, or the named paths of it.
pub(crate) fn run(arguments: &Diff) -> Result<u8, Problem> {
    let review = Review::open()?;
    let bundle = review.find(&arguments.id)?;
    let paths = review::paths(&bundle.manifest, &arguments.paths)?;
    let entries = named(&bundle, &paths)?;
    if arguments.json {
        return print_json(&bundle, &entries);
    }
    let state = bundle.state().map_err(|e| of_store(&e))?;
    let shown = Shown {
        bundle: &bundle,
        state: &state,
        entries: &entries,
        by_name: !paths.is_empty(),
        renamed: entries.iter().filter_map(|entry| entry.renamed_from.as_ref()).collect(),
    };
    let mut output = Output::for_reading();
    let result = match arguments.stat {
        true => shown.stat(&mut output),
        false => shown.diff(&mut output),
    };
    match result {
        Ok(()) => output::written(output.finish())?,
        Err(Stop::Written(error)) => {
            // The pager may show its last page still.
            let _ = output.finish();
            output::written(Err(error))?;
        }
        Err(Stop::Problem(problem)) => {
            let _ = output.finish();
            return Err(problem);
        }
    }
    Ok(0)
}

/// The entries at and below the given paths; all where there are none.
fn named<'b>(bundle: &'b Bundle, paths: &[RelativePath]) -> Result<Vec<&'b Entry>, Problem> {
    let is_named =
        |entry: &&Entry| paths.is_empty() || paths.iter().any(|path| entry.path.is_within(path));
    let entries: Vec<&Entry> = bundle.manifest.entries.iter().filter(is_named).collect();
    let unknown: Vec<RelativePath> = paths
        .iter()
        .filter(|path| !entries.iter().any(|entry| entry.path.is_within(path)))
        .cloned()
        .collect();
    if unknown.is_empty() {
        return Ok(entries);
    }
    Err(of_apply(&stockade_bundle::apply::Error::NotInBundle(unknown), bundle.id()))
}

fn render(bundle: &Bundle, entry: &Entry) -> Result<Rendered, Problem> {
    let sides = Sides::of(bundle, entry).map_err(|e| of_store(&e))?;
    Ok(patch::render(entry, &sides, Some(Instant::now() + CARE)))
}

fn print_json(bundle: &Bundle, entries: &[&Entry]) -> Result<u8, Problem> {
    let state = bundle.state().map_err(|e| of_store(&e))?;
    let mut answer = described(bundle, &state);
    let entries: Result<Vec<Value>, Problem> = entries
        .iter()
        .map(|entry| {
            let rendered = render(bundle, entry)?;
            let mut value = serde_json::to_value(entry).unwrap_or_default();
            value["applied"] = json!(state.applied.contains(&entry.path));
            value["added"] = json!(rendered.added);
            value["removed"] = json!(rendered.removed);
            value["binary"] = json!(rendered.binary);
            value["diff"] = json!(String::from_utf8_lossy(&rendered.text));
            Ok(value)
        })
        .collect();
    answer["entries"] = Value::Array(entries?);
    output::print_json(&answer)?;
    Ok(0)
}

/// Why showing ended early.
enum Stop {
    Written(io::Error),
    Problem(Problem),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Written(error)
    }
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// How `apply` treats an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Taken,
    Executed,
    Conflicting,
    Ignored,
    Refused,
}

impl Group {
    const APART: [Self; 4] = [Self::Executed, Self::Conflicting, Self::Ignored, Self::Refused];

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
            Self::Taken
        }
    }

    fn heading(self) -> &'static str {
        match self {
            Self::Taken => "applied without being asked for",
            Self::Executed => "executed by tools of the host, applied only with --allow-executed",
            Self::Conflicting => "changed on the host while the command ran, so not to be applied",
            Self::Ignored => "ignored by git, applied only by name or with --include-ignored",
            Self::Refused => "refused, never applied",
        }
    }

    /// Whether its diffs are shown without being asked for by name.
    fn is_shown(self) -> bool {
        matches!(self, Self::Taken | Self::Executed | Self::Conflicting)
    }
}

struct Shown<'b> {
    bundle: &'b Bundle,
    state: &'b State,
    entries: &'b [&'b Entry],
    /// Whether paths were named.
    by_name: bool,
    /// Where the shown renames come from.
    renamed: HashSet<&'b RelativePath>,
}

impl Shown<'_> {
    fn of(&self, group: Group) -> impl Iterator<Item = &Entry> {
        self.entries.iter().copied().filter(move |entry| {
            let is_half = entry.change.new_node().is_none() && self.renamed.contains(&entry.path);
            Group::of(entry) == group && !is_half
        })
    }

    fn diff(&self, output: &mut Output) -> Result<(), Stop> {
        for entry in self.of(Group::Taken) {
            self.entry(output, entry)?;
        }
        for group in Group::APART {
            let entries: Vec<&Entry> = self.of(group).collect();
            self.apart(output, group, &entries)?;
            if group.is_shown() || self.by_name {
                for entry in entries {
                    self.entry(output, entry)?;
                }
            }
        }
        Ok(())
    }

    fn stat(&self, output: &mut Output) -> Result<(), Stop> {
        let (mut count, mut added, mut removed) = (0_u64, 0, 0);
        for group in [Group::Taken].into_iter().chain(Group::APART) {
            let entries: Vec<&Entry> = self.of(group).collect();
            if group != Group::Taken && !entries.is_empty() {
                let heading = format!("# {}:", group.heading());
                output.line(Style::Heading, heading.as_bytes())?;
            }
            for entry in entries {
                let rendered = render(self.bundle, entry)?;
                let numbers = match rendered.binary {
                    true => "binary".to_owned(),
                    false => format!("+{} -{}", rendered.added, rendered.removed),
                };
                let applied =
                    self.state.applied.contains(&entry.path).then(|| "applied".to_owned());
                let reason = applied.or_else(|| reason(entry));
                let reason = reason.map(|text| format!("  ({text})")).unwrap_or_default();
                let line = format!(
                    "{} {} | {numbers}{}{reason}",
                    words::letter(entry),
                    words::path(entry),
                    modes(entry)
                );
                output.line(Style::Plain, line.as_bytes())?;
                count += 1;
                added += rendered.added;
                removed += rendered.removed;
            }
        }
        let paths = if count == 1 { "path" } else { "paths" };
        let sum = format!("{count} {paths} changed, {added} lines added, {removed} removed");
        Ok(output.line(Style::Plain, sum.as_bytes())?)
    }

    /// The heading of what is not simply applied, and each name with its reason.
    fn apart(&self, output: &mut Output, group: Group, entries: &[&Entry]) -> Result<(), Stop> {
        if entries.is_empty() {
            return Ok(());
        }
        let heading = format!("# {} {}:", entries.len(), group.heading());
        output.line(Style::Heading, heading.as_bytes())?;
        for entry in entries.iter().take(LISTED) {
            let reason = reason(entry).map(|text| format!(": {text}")).unwrap_or_default();
            let line = format!("#   {} {}{reason}", words::letter(entry), words::path(entry));
            output.line(Style::Plain, line.as_bytes())?;
        }
        if entries.len() > LISTED {
            let line = format!("#   and {} more; --stat lists all", entries.len() - LISTED);
            output.line(Style::Plain, line.as_bytes())?;
        }
        Ok(())
    }

    fn entry(&self, output: &mut Output, entry: &Entry) -> Result<(), Stop> {
        let rendered = render(self.bundle, entry)?;
        // In a hunk each line begins with a sign, so that content is never taken for a header.
        let mut in_hunks = false;
        let text = rendered.text.strip_suffix(b"\n").unwrap_or(&rendered.text);
        if text.is_empty() {
            return Ok(());
        }
        for line in text.split(|byte| *byte == b'\n') {
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
}

/// Why an entry is not simply applied.
fn reason(entry: &Entry) -> Option<String> {
    let mut reasons = Vec::new();
    reasons.extend(entry.refused.map(words::refusal));
    reasons.extend(entry.executed_by.map(words::executed));
    reasons.extend(entry.conflict.then_some("changed on the host"));
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
