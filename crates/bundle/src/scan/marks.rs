//! Marking entries: whether git ignores them, whether they are refused, whether host tools execute
//! them.

use super::{Error, ignored};
use crate::manifest::Entry;
use crate::policy;
use crate::project::Project;
use crate::view::View;

/// Marks sorted entries.
pub(super) fn mark(
    entries: &mut [Entry],
    view: &View,
    project: &Project,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    entries.iter_mut().for_each(policy::classify);
    policy::refuse_bare_repositories(entries, |path| {
        project.dir.exists(path).map_err(|source| Error::Read {
            layer: "project",
            path: path.quoted(),
            source,
        })
    })?;
    let ignored = ignored::ignored(entries, view, project, notes);
    for (entry, ignored) in entries.iter_mut().zip(ignored) {
        entry.ignored = ignored;
    }
    Ok(())
}
