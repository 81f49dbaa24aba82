//! `stockade diff --commits` and `stockade apply --commits`: showing the commits of a command, and
//! taking them to a branch of the project's repository.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stockade_bundle::new_commits::{Branch, NewCommit, import};
use stockade_core::printable::escaped_lines;
use stockade_core::{Code, Problem};
use stockade_review::commits_problem;

use super::diff::{DiffError, styled};
use crate::args::bundle::{Apply, Diff};
use crate::commits::{CheckedCommits, Purpose, read};
use crate::output::{self, Output, Style};
use crate::problem::short_id;
use crate::review::{Review, text};

/// The prefix of the branches that Stockade names itself.
const PREFIX: &str = "stockade/";

/// Shows every new commit, with what it changes.
pub(super) fn diff(arguments: &Diff) -> Result<u8, Problem> {
    if !arguments.paths.is_empty() {
        return Err(Problem::new(Code::InvalidInput, "--commits takes no paths")
            .because("commits are shown and taken as a whole"));
    }
    let checked = read(&arguments.id, Purpose::Show)?;
    if arguments.json {
        output::print_json(&json!({
            "bundle": checked.stored.bundle.id(),
            "base": checked.stored.base.as_ref().map(ToString::to_string),
            "commits": checked.commits.list.iter().map(commit_json).collect::<Vec<_>>(),
        }))?;
        return Ok(0);
    }
    let mut output = Output::with_pager(arguments.color);
    let shown = show(&mut output, &checked, arguments.stat);
    let finished = output.finish();
    match shown {
        Ok(()) => output::check_written(finished)?,
        Err(DiffError::Write(error)) => output::check_written(Err(error))?,
        Err(DiffError::Problem(problem)) => return Err(problem),
    }
    Ok(0)
}

fn show(output: &mut Output, checked: &CheckedCommits, stat: bool) -> Result<(), DiffError> {
    for NewCommit { id, commit, changes } in &checked.commits.list {
        let lossy = |bytes: &[u8]| escaped_lines(&String::from_utf8_lossy(bytes)).into_owned();
        output.line(Style::Heading, format!("commit {id}").as_bytes())?;
        if commit.parents.len() > 1 {
            let parents: Vec<_> = commit.parents.iter().map(ToString::to_string).collect();
            output.line(Style::Plain, format!("Merge:     {}", parents.join(" ")).as_bytes())?;
        }
        for (label, person) in [("Author:   ", &commit.author), ("Committer:", &commit.committer)] {
            let line = format!("{label} {} (claimed, not verified)", lossy(person));
            output.line(Style::Plain, line.as_bytes())?;
        }
        output.line(Style::Plain, b"")?;
        for line in lossy(&commit.message).lines() {
            output.line(Style::Plain, format!("    {line}").as_bytes())?;
        }
        output.line(Style::Plain, b"")?;
        for change in changes {
            let rendered = change.render();
            let entry = &change.entry;
            if stat {
                let executed = entry.executed_by.map(text::executed_by);
                let executed = executed.map(|by| format!("  ({by})")).unwrap_or_default();
                let line = format!(
                    "{} {} | +{} -{}{executed}",
                    text::status_letter(entry),
                    text::path_text(entry),
                    rendered.added,
                    rendered.removed
                );
                output.line(Style::Plain, line.as_bytes())?;
                continue;
            }
            if let Some(by) = entry.executed_by.map(text::executed_by) {
                let line = format!("# {}: {by}", text::path_text(entry));
                output.line(Style::Heading, line.as_bytes())?;
            }
            match &rendered.readable {
                Some(readable) => styled(output, readable)?,
                None => styled(output, &rendered.text)?,
            }
            if rendered.unseen > 0 {
                let line =
                    format!("# {}: {} bytes, not shown", text::path_text(entry), rendered.unseen);
                output.line(Style::Heading, line.as_bytes())?;
            }
        }
        output.line(Style::Plain, b"")?;
    }
    Ok(())
}

fn commit_json(new: &NewCommit) -> Value {
    let NewCommit { id, commit, changes } = new;
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let change = |change: &stockade_bundle::new_commits::FileChange| {
        let rendered = change.render();
        let mut value = serde_json::to_value(&change.entry).unwrap_or_default();
        value["added"] = json!(rendered.added);
        value["removed"] = json!(rendered.removed);
        value["unseen"] = json!(rendered.unseen);
        value["diff"] = Value::from(lossy(&rendered.text));
        value
    };
    json!({
        "id": id.to_string(),
        "parents": commit.parents.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "claimedAuthor": lossy(&commit.author),
        "claimedCommitter": lossy(&commit.committer),
        "message": lossy(&commit.message),
        "entries": changes.iter().map(change).collect::<Vec<_>>(),
    })
}

/// Takes all new commits to a branch, or none.
pub(super) fn apply(arguments: &Apply) -> Result<u8, Problem> {
    if !arguments.paths.is_empty() || arguments.include_ignored {
        return Err(Problem::new(Code::InvalidInput, "--commits takes no paths")
            .because("commits are taken as a whole"));
    }
    let CheckedCommits { stored, objects, commits } = read(&arguments.id, Purpose::Decide)?;
    let id = short_id(stored.bundle.id());
    refuse_unaccepted(arguments, &commits.list, id)?;
    let name = arguments.decision.branch.clone().unwrap_or_else(|| format!("{PREFIX}{id}"));
    let failed = |error| commits_problem(&error, stored.bundle.id());
    let branch = Branch::new(&name).map_err(failed)?;
    let is_new = import(&stored.project, &commits, &objects, &branch).map_err(failed)?;
    if is_new {
        let changes = commits.list.iter().flat_map(|commit| &commit.changes);
        let paths: BTreeSet<_> = changes.map(|change| &change.entry.path).collect();
        Review::of_files()?.files().record_commits(&stored, paths.len())?;
    }
    let count = commits.list.len();
    if arguments.json {
        let list: Vec<_> = commits.list.iter().map(|commit| commit.id.to_string()).collect();
        output::print_json(&json!({
            "id": stored.bundle.id(),
            "project": stored.project.root,
            "branch": branch.as_str(),
            "tip": commits.tip.to_string(),
            "commits": list,
            "created": is_new,
        }))?;
        return Ok(0);
    }
    for commit in &commits.list {
        let subject = commit.commit.message.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let id = commit.id.to_string();
        output::print(&format!("{} {}\n", &id[..12], String::from_utf8_lossy(subject)))?;
    }
    let commits = if count == 1 { "commit" } else { "commits" };
    let verb = if is_new { "applied to" } else { "already in" };
    eprint_line!(
        "stockade: {count} {commits} {verb} the branch {} of {}",
        branch.as_str(),
        stored.project.root.display()
    );
    eprint_line!(
        "  take them: git merge {}; the changes of files still wait: stockade apply {id}",
        branch.as_str()
    );
    Ok(0)
}

/// Refuses what needs an acceptance of its own.
fn refuse_unaccepted(arguments: &Apply, list: &[NewCommit], id: &str) -> Result<(), Problem> {
    let changes = || list.iter().flat_map(|commit| &commit.changes);
    let paths = |chosen: Vec<String>| {
        let rest = chosen.len().saturating_sub(10);
        let mut text = chosen.into_iter().take(10).collect::<Vec<_>>().join("\n");
        if rest > 0 {
            text.push_str(&format!("\nand {rest} more"));
        }
        text
    };
    if !arguments.allow_executed {
        let executed: Vec<_> = changes()
            .filter_map(|change| {
                let by = text::executed_by(change.entry.executed_by?);
                Some(format!("{}: {by}", text::path_text(&change.entry)))
            })
            .collect();
        if !executed.is_empty() {
            let message = "the commits change files that tools of the host execute by themselves";
            return Err(Problem::new(Code::ExecutedFile, message)
                .because(paths(executed))
                .remedied_by(format!("stockade apply {id} --commits --allow-executed")));
        }
    }
    if !arguments.allow_unseen {
        let unseen: Vec<_> = changes()
            .filter(|change| change.entry.change.new_node().is_some())
            .filter_map(|change| {
                let bytes = change.render().unseen;
                (bytes > 0).then(|| format!("{}: {bytes} bytes", text::path_text(&change.entry)))
            })
            .collect();
        if !unseen.is_empty() {
            let message = "the commits have contents that the diff does not show";
            return Err(Problem::new(Code::UnseenContent, message)
                .because(paths(unseen))
                .remedied_by(format!("stockade apply {id} --commits --allow-unseen")));
        }
    }
    Ok(())
}
