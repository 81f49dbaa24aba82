//! The changes that a command made: the difference between a view's layer and the project, as
//! the entries of a bundle.
//!
//! The scan reads the view and the project, and changes no path in either. (It changes permission bits of
//! the view that would prevent its own owner from reading it, and copies the content of renamed
//! directories there.) Everything in the view is treated
//! as hostile: names, link targets, depth, sizes and types.

mod bookkeeping;
mod ignored;
mod marks;
mod node;
mod origins;
mod rename;
mod walk;

use stockade_core::BundleLimits;

use crate::beneath;
use crate::history::History;
use crate::ignored_tree::{self, Listing};
use crate::layer::renamed;
use crate::manifest::Entry;
use crate::path::RelativePath;
use crate::project::Project;
use crate::validate::{LimitExceeded, check_limit};
use crate::view::View;

/// The changes that a command made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// The changed paths, sorted, without duplicates, and marked. A new directory has an entry
    /// of its own before those of its content; a deleted one has entries for everything that it
    /// contained.
    pub entries: Vec<Entry>,
    /// The changes in ignored directories that have one entry each.
    pub listings: Vec<Listing>,
    /// Descriptions of what could not be taken into account.
    pub notes: Vec<String>,
}

/// Why the changes could not be determined.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is more than a bundle may hold: `entries` or `total_bytes`. The view is unchanged.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// Something could not be read.
    #[error("cannot read {path} in the {layer}")]
    Read {
        /// `view` or `project`.
        layer: &'static str,
        /// The path, printable.
        path: String,
        /// Why.
        #[source]
        source: beneath::Error,
    },
}

/// Determines the changes in `view`, whose command has ended, relative to the present state of
/// `project`.
///
/// # Errors
/// [`Error::Limit`] when there is more than `limits` allow; a path longer than they allow is
/// not an error but a refused entry.
pub fn scan(view: &View, project: &Project, limits: &BundleLimits) -> Result<Changes, Error> {
    scan_excluding(view, project, view.excluded(), &mut History::default(), limits)
}

/// The same, but paths in `excluded` and below are ignored, and what the host applied from an
/// earlier bundle of the same view is not a conflict. The entries found are recorded in the history
/// as offered.
///
/// # Errors
/// As [`scan`].
pub fn scan_excluding(
    view: &View,
    project: &Project,
    excluded: &[RelativePath],
    history: &mut History,
    limits: &BundleLimits,
) -> Result<Changes, Error> {
    if view.copy().is_none() {
        fill_renamed(view, project, limits)?;
    }
    let mut entries = walk::walk(view, project, excluded, history, limits)?;
    bookkeeping::remove(&mut entries, view, project);
    let changes = finish(entries, view, project)?;
    check_limit(changes.entries.len() as u64, "entries", limits.entries, limits)?;
    history.record_offered(&changes.entries);
    for listing in &changes.listings {
        history.record_offered(&listing.entries);
    }
    Ok(changes)
}

/// Copies the content of renamed directories to the layer: a bundle contains it at the new paths.
fn fill_renamed(view: &View, project: &Project, limits: &BundleLimits) -> Result<(), Error> {
    let allowed = limits.total_bytes;
    renamed::fill(view.changed(), &project.dir, allowed).or_else(|error| match error {
        renamed::Error::TooLarge { .. } => {
            Ok(check_limit(allowed.saturating_add(1), "total_bytes", allowed, limits)?)
        }
        renamed::Error::Entry { path, source } => Err(Error::Read { layer: "view", path, source }),
    })
}

/// Sorts and marks entries whose new contents are in `view`, pairs renames, and makes one entry of each
/// ignored directory with many changes.
pub(crate) fn finish(
    mut entries: Vec<Entry>,
    view: &View,
    project: &Project,
) -> Result<Changes, Error> {
    if entries.is_empty() {
        return Ok(Changes::default());
    }
    // The sorting makes the same changes produce the same bundle.
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let mut notes = Vec::new();
    marks::mark(&mut entries, view, project, &mut notes)?;
    let listings = ignored_tree::collapse(&mut entries, project).map_err(|source| Error::Read {
        layer: "project",
        path: ".".to_owned(),
        source,
    })?;
    rename::pair(&mut entries);
    rename::pair_similar(&mut entries, view.changed(), &project.dir);
    Ok(Changes { entries, listings, notes })
}

#[cfg(test)]
mod tests;
