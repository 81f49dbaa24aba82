//! The table of the versions of clients in `docs/clients/e2b.md`: it has those of the lock files.

use super::{Finding, Tree};
use crate::clients::{PAGE, differences, lock_path};

/// Compares the table with the lock files.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let text = |path: &str| tree.file(path).map(|file| file.text.clone()).unwrap_or_default();
    let found = differences(&text(PAGE), |lock| text(&lock_path(lock)));
    found.into_iter().map(|difference| format!("{PAGE}: {difference}")).collect()
}
