//! What a command changed: the difference between a view's layer and the project, as the entries
//! of a bundle.
//!
//! Reads the view and the project, and changes neither (but for permission bits of the view that
//! would keep its own owner from reading it). Everything in the view is taken as hostile: names,
//! link targets, depth, sizes and types.

mod ignored;
mod marks;
mod node;
mod origins;
mod rename;
mod walk;

use stockade_core::BundleLimits;

use crate::beneath;
use crate::history::History;
use crate::manifest::Entry;
use crate::path::RelativePath;
use crate::project::Project;
use crate::validate::Exceeded;
use crate::view::View;

/// What a command changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// The changed paths, sorted, each once, and marked. A new directory has an entry of its own
    /// before those of its content; a deleted one has entries for all that it held.
    pub entries: Vec<Entry>,
    /// What could not be taken into account, in words.
    pub notes: Vec<String>,
}

/// Why the changes could not be told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is more than a bundle may hold: `entries` or `total_bytes`. The view is as it was.
    #[error(transparent)]
    Limit(#[from] Exceeded),
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

/// Tells what was changed in `view`, whose command has ended, against `project` as it is now.
///
/// # Errors
/// [`Error::Limit`] when there is more than `limits` allow; a path longer than they allow is no
/// error but an entry that is refused.
pub fn scan(view: &View, project: &Project, limits: &BundleLimits) -> Result<Changes, Error> {
    scan_but(view, project, &[], &mut History::default(), limits)
}

/// The same but for what is at and below some paths, which is not looked at; and what the host has
/// from an earlier bundle of the same view is no conflict. The history is told what is offered now.
///
/// # Errors
/// As [`scan`].
pub fn scan_but(
    view: &View,
    project: &Project,
    excluded: &[RelativePath],
    history: &mut History,
    limits: &BundleLimits,
) -> Result<Changes, Error> {
    let entries = walk::walk(view, project, excluded, history, limits)?;
    let changes = finish(entries, view, project)?;
    history.offer(&changes.entries);
    Ok(changes)
}

/// Sorts and marks entries whose new contents are in `view`, and pairs renames.
pub(crate) fn finish(
    mut entries: Vec<Entry>,
    view: &View,
    project: &Project,
) -> Result<Changes, Error> {
    if entries.is_empty() {
        return Ok(Changes::default());
    }
    // Only the order makes the same changes the same bundle.
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let mut notes = Vec::new();
    marks::mark(&mut entries, view, project, &mut notes)?;
    rename::pair(&mut entries);
    Ok(Changes { entries, notes })
}

#[cfg(test)]
mod tests;
