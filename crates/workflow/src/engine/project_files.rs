//! The files of a project as the steps of its runs found them: what a fork of a run starts with.

use std::path::{Path, PathBuf};

use stockade_bundle::beneath::Dir;
use stockade_bundle::data::DataDir;
use stockade_bundle::kept_trees::{Error, KeptTrees, Record};
use stockade_bundle::manifest::ContentHash;
use stockade_core::{Code, Problem};

use crate::schedule::Key;

/// Records the files of a project for steps that start now. If they cannot be kept, the record says why,
/// and the run continues.
pub(super) fn keep(data: &Path, project: &Path, run: &str, event: i64, steps: &[Key]) {
    let steps: Vec<(String, u32)> =
        steps.iter().map(|key| (key.node.clone(), key.iteration)).collect();
    let recorded = open(data, project).and_then(|kept| {
        let tree = Dir::open(project).map_err(Error::from).and_then(|dir| kept.keep(&dir));
        let (tree, reason) = match tree {
            Ok(tree) => (Some(tree), None),
            Err(error) => (None, Some(with_sources(&error))),
        };
        kept.record(run, &Record { event, steps, tree, reason })
    });
    if let Err(error) = recorded {
        tracing::warn!(
            error = with_sources(&error),
            run,
            "the files of the project were not recorded"
        );
    }
}

/// The tree that was there when a step started, whose first event has this number. `None` if no step of
/// the run works on files.
///
/// # Errors
/// If the files of that moment were not kept.
pub(super) fn tree_at(
    data: &Path,
    project: &Path,
    run: &str,
    (step, started): (&Key, i64),
) -> Result<Option<ContentHash>, Problem> {
    let records = open(data, project).and_then(|kept| kept.records(run)).map_err(unusable)?;
    let is_of = |record: &&Record| {
        record.steps.iter().any(|(node, at)| (node, *at) == (&step.node, step.iteration))
    };
    // Between two records, no step that works on files has started.
    let found = records
        .iter()
        .find(is_of)
        .or_else(|| records.iter().find(|record| record.event >= started))
        .or_else(|| records.last());
    match found {
        None => Ok(None),
        Some(Record { tree: Some(tree), .. }) => Ok(Some(*tree)),
        Some(Record { reason, .. }) => {
            let message = format!("the files of the project were not kept when \"{step}\" started");
            let why = reason.clone().unwrap_or_default();
            Err(Problem::new(Code::Unsupported, message).because(why))
        }
    }
}

/// Copies a project to a new or empty directory, with the files of a tree; returns its absolute path.
///
/// # Errors
/// If the directory has files, or something cannot be read or written.
pub(super) fn restore(
    data: &Path,
    project: &Path,
    tree: ContentHash,
    directory: &Path,
) -> Result<PathBuf, Problem> {
    let failed = |error: Error| {
        let message =
            format!("the files of the project cannot be copied to {}", directory.display());
        let code = match error {
            Error::NotEmpty => Code::InvalidInput,
            _ => Code::Io,
        };
        Problem::new(code, message)
            .because(with_sources(&error))
            .remedied_by("name a new or empty directory with --directory")
    };
    let made = std::fs::create_dir(directory);
    let is_new = made.is_ok();
    match made {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(failed(error.into()));
        }
        _ => {}
    }
    let restored = (|| {
        let to = Dir::open(directory)?;
        open(data, project)?.restore(tree, &Dir::open(project)?, &to)?;
        Ok::<_, Error>(std::fs::canonicalize(directory)?)
    })();
    if restored.is_err() && is_new {
        // Nothing but the incomplete copy is in it.
        let _ = std::fs::remove_dir_all(directory);
    }
    restored.map_err(failed)
}

/// Removes old records of a project, and what only they needed.
pub(super) fn tidy(data: &Path, project: &Path, unfinished: &[String], now_seconds: i64) {
    let tidied = open(data, project).and_then(|kept| kept.tidy(unfinished, now_seconds));
    if let Err(error) = tidied {
        tracing::warn!(error = with_sources(&error), "old files of runs remain");
    }
}

fn open(data: &Path, project: &Path) -> Result<KeptTrees, Error> {
    KeptTrees::open(&DataDir::open(data)?, project)
}

fn unusable(error: Error) -> Problem {
    Problem::new(Code::Io, "the kept files of the project cannot be used")
        .because(with_sources(&error))
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(&format!(": {source}"));
        next = source.source();
    }
    text
}
