//! The commits that a command has made: reading them in a jail, and checking what it prints.

mod reader;

use std::io::BufReader;

use stockade_bundle::commits::Objects;
use stockade_bundle::new_commits::Commits;
use stockade_core::Problem;
use stockade_review::{StoredCommits, commits_problem};

use crate::review::Review;

/// Checked commits and their objects.
#[derive(Debug)]
pub(crate) struct CheckedCommits {
    pub(crate) stored: StoredCommits,
    pub(crate) objects: Objects,
    pub(crate) commits: Commits,
}

/// What the commits are read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// They are shown.
    Show,
    /// They are taken: `latest` must be the bundle that was shown last.
    Decide,
}

/// The commits of the bundle of this name. This process must have a single thread.
pub(crate) fn read(name: &str, purpose: Purpose) -> Result<CheckedCommits, Problem> {
    let review = Review::of_files()?;
    let id = match purpose {
        Purpose::Show => review.resolve(name)?,
        Purpose::Decide => review.resolve_as_shown(name)?,
    };
    let stored = review.files().commits(&id)?;
    let failed = |error| commits_problem(&error, stored.bundle.id());
    let tip = &stored.harvest.tip;
    let mut objects = Objects::default();
    let printed = BufReader::new(reader::print_new(&stored)?);
    objects.read(printed, tip.format()).map_err(failed)?;
    let (project, base) = (&stored.project, stored.base.as_ref());
    let old = Commits::old_contents(project, &objects, tip, base).map_err(failed)?;
    if !old.is_empty() {
        let printed = BufReader::new(reader::print_old(&stored, &old)?);
        objects.read(printed, tip.format()).map_err(failed)?;
    }
    let commits = Commits::check(project, &objects, tip, base);
    let commits = commits.map_err(failed)?;
    Ok(CheckedCommits { stored, objects, commits })
}
