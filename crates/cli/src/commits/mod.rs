//! The commits that a command has made: reading them in a jail, and checking what it prints.

mod reader;

use std::io::BufReader;

use stockade_bundle::commits::Objects;
use stockade_bundle::new_commits::Commits;
use stockade_core::Problem;
use stockade_review::{Bundles, StoredCommits, commits_problem};

/// Checked commits and their objects.
#[derive(Debug)]
pub(crate) struct CheckedCommits {
    pub(crate) stored: StoredCommits,
    pub(crate) objects: Objects,
    pub(crate) commits: Commits,
}

/// The commits of the bundle of this name. This process must have a single thread.
pub(crate) fn read(name: &str) -> Result<CheckedCommits, Problem> {
    let bundles = Bundles::open(&crate::data_dir::data_path()?)?;
    crate::review::recover(bundles.data())?;
    let stored = bundles.commits(name)?;
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
