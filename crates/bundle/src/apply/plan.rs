//! Which entries of a bundle are to be applied. This is pure: the host is not accessed.

use std::collections::{BTreeMap, BTreeSet};

use super::error::Error;
use crate::manifest::{Change, Entry, ExecutedBy, Manifest, Node, Refusal};
use crate::path::RelativePath;

/// The prefixes of directories in the project's root that only apply operations create.
pub(super) const RESERVED: [&str; 2] =
    [super::journal::STAGE_PREFIX, super::journal::PRESERVED_PREFIX];

/// The entries that the caller wants to apply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The paths; a directory includes everything below it. All entries if this is empty.
    pub paths: Vec<RelativePath>,
    /// Whether to include paths that git ignores. Otherwise an ignored entry is selected only if
    /// it, or a directory in which everything is ignored, is named in `paths`.
    pub include_ignored: bool,
    /// Whether to include files that host tools execute automatically.
    pub allow_executed: bool,
    /// The paths whose new content no diff shows, each with its size, as far as they were not
    /// accepted.
    pub unseen: BTreeMap<RelativePath, u64>,
    /// Whether what is executed or unseen, and not accepted, is left out. Otherwise it is an error.
    pub skip_unaccepted: bool,
    /// The paths that were applied before. They are left out unless they are in `paths`.
    pub applied: BTreeSet<RelativePath>,
}

/// Why an entry was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Skip {
    /// It may never be applied.
    Refused(Refusal),
    /// Its name is reserved for Stockade's own use in a project.
    Reserved,
    /// Git ignores it and it was not requested.
    Ignored,
    /// Host tools execute it automatically, and that was not accepted.
    Executed(ExecutedBy),
    /// No diff shows its new content, and that was not accepted.
    Unseen,
    /// It cannot be applied without this entry, which was left out: the other half of a rename,
    /// or a directory that contains it.
    MissingDependency(RelativePath),
    /// It is a directory that still contains files of the host.
    NotEmpty,
}

/// An entry that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedChange {
    /// Its path.
    pub path: RelativePath,
    /// Why.
    pub reason: Skip,
}

/// The entries to apply, sorted by path, and those left out.
#[derive(Debug)]
pub(super) struct SelectedChanges<'a> {
    pub(super) entries: Vec<&'a Entry>,
    pub(super) skipped: Vec<SkippedChange>,
}

/// Chooses the entries that match the selection.
pub(super) fn select<'a>(
    manifest: &'a Manifest,
    selection: &Selection,
) -> Result<SelectedChanges<'a>, Error> {
    let entries: BTreeMap<&RelativePath, &Entry> =
        manifest.entries.iter().map(|entry| (&entry.path, entry)).collect();
    let named = named_entries(&entries, selection)?;
    let mut renamed_to: BTreeMap<&RelativePath, Vec<&Entry>> = BTreeMap::new();
    for entry in &manifest.entries {
        if let Some(from) = &entry.renamed_from {
            renamed_to.entry(from).or_default().push(entry);
        }
    }
    let mut choice =
        Selector { entries: &entries, renamed_to, named, selection, selected: BTreeSet::new() };
    let mut skipped = Vec::new();
    let wanted: Vec<&Entry> = entries
        .values()
        .filter(|entry| match selection.paths.is_empty() {
            true => !selection.applied.contains(&entry.path),
            false => choice.named.contains_key(&entry.path),
        })
        .copied()
        .collect();
    for entry in wanted {
        if let Err(reason) = choice.select(entry) {
            skipped.push(SkippedChange { path: entry.path.clone(), reason });
        }
    }
    let taken = choice.selected;
    // An entry that a parent or the other half of a rename requires is applied after all.
    skipped.retain(|skip| !taken.contains(&skip.path));
    let chosen: Vec<&Entry> =
        entries.values().filter(|entry| taken.contains(&entry.path)).copied().collect();
    check_accepted(&chosen, selection)?;
    Ok(SelectedChanges { entries: chosen, skipped })
}

/// Whether all entries that must be accepted were.
pub(super) fn check_accepted(chosen: &[&Entry], selection: &Selection) -> Result<(), Error> {
    let executed: Vec<_> = chosen
        .iter()
        .filter_map(|entry| entry.executed_by.map(|by| (entry.path.clone(), by)))
        .collect();
    let unseen = |entry: &&Entry| {
        selection.unseen.get(&entry.path).map(|bytes| (entry.path.clone(), *bytes))
    };
    let unseen: Vec<_> = chosen.iter().filter_map(unseen).collect();
    if !selection.allow_executed && !executed.is_empty() {
        return Err(Error::Executed { paths: executed, has_unseen: !unseen.is_empty() });
    }
    if unseen.is_empty() { Ok(()) } else { Err(Error::Unseen(unseen)) }
}

/// The entries that match the given paths, each with whether ignored entries are meant, too.
fn named_entries<'a>(
    entries: &BTreeMap<&'a RelativePath, &'a Entry>,
    selection: &Selection,
) -> Result<BTreeMap<&'a RelativePath, bool>, Error> {
    let mut named = BTreeMap::new();
    let mut unknown = Vec::new();
    let mut refused = Vec::new();
    for path in &selection.paths {
        let matching: Vec<&Entry> = entries
            .range::<RelativePath, _>(path..)
            .map(|(_, entry)| *entry)
            .take_while(|entry| entry.path.as_bytes().starts_with(path.as_bytes()))
            .filter(|entry| entry.path.is_within(path))
            .collect();
        if matching.is_empty() {
            unknown.push(path.clone());
        }
        if matching.iter().all(|entry| entry.refused.is_some()) {
            refused.extend(
                matching.iter().filter_map(|entry| Some((entry.path.clone(), entry.refused?))),
            );
        }
        let all_ignored = matching.iter().all(|entry| entry.ignored);
        for entry in matching {
            *named.entry(&entry.path).or_insert(false) |= all_ignored || entry.path == *path;
        }
    }
    if !unknown.is_empty() {
        return Err(Error::NotInBundle(unknown));
    }
    if !refused.is_empty() {
        return Err(Error::Refused(refused));
    }
    Ok(named)
}

struct Selector<'a, 's> {
    entries: &'s BTreeMap<&'a RelativePath, &'a Entry>,
    renamed_to: BTreeMap<&'a RelativePath, Vec<&'a Entry>>,
    named: BTreeMap<&'a RelativePath, bool>,
    selection: &'s Selection,
    selected: BTreeSet<RelativePath>,
}

impl<'a> Selector<'a, '_> {
    /// Selects an entry and everything that it requires, or nothing.
    fn select(&mut self, entry: &'a Entry) -> Result<(), Skip> {
        if self.selected.contains(&entry.path) {
            return Ok(());
        }
        let mut together = vec![entry];
        let mut paths = BTreeSet::from([&entry.path]);
        let is_requested = self.named.get(&entry.path).copied().unwrap_or(false);
        let mut next = 0;
        while let Some(&entry) = together.get(next) {
            next += 1;
            let is_requested = is_requested || next > 1 && makes_directory(&entry.change);
            self.check(entry, is_requested).map_err(|reason| match next {
                1 => reason,
                _ => Skip::MissingDependency(entry.path.clone()),
            })?;
            for needed in self.dependencies(entry) {
                if paths.insert(&needed.path) {
                    together.push(needed);
                }
            }
        }
        self.selected.extend(together.into_iter().map(|entry| entry.path.clone()));
        Ok(())
    }

    fn check(&self, entry: &Entry, is_requested: bool) -> Result<(), Skip> {
        if let Some(refusal) = entry.refused {
            return Err(Skip::Refused(refusal));
        }
        let first = entry.path.components().next().unwrap_or_default();
        if RESERVED.iter().any(|prefix| first.starts_with(prefix.as_bytes())) {
            return Err(Skip::Reserved);
        }
        let is_requested = is_requested || self.named.get(&entry.path).copied().unwrap_or(false);
        if entry.ignored && !is_requested && !self.selection.include_ignored {
            return Err(Skip::Ignored);
        }
        if self.selection.skip_unaccepted {
            if let Some(by) = entry.executed_by.filter(|_| !self.selection.allow_executed) {
                return Err(Skip::Executed(by));
            }
            if self.selection.unseen.contains_key(&entry.path) {
                return Err(Skip::Unseen);
            }
        }
        Ok(())
    }

    /// The entries that must be applied together with an entry: its parents if the bundle
    /// creates them, and the other half of a rename.
    fn dependencies(&self, entry: &'a Entry) -> Vec<&'a Entry> {
        let mut needed = Vec::new();
        if entry.change.new_node().is_some() {
            let mut parent = entry.path.parent();
            while let Some(path) = parent {
                if let Some(entry) = self.entries.get(&path)
                    && makes_directory(&entry.change)
                {
                    needed.push(*entry);
                }
                parent = path.parent();
            }
        }
        if let Some(from) = &entry.renamed_from {
            needed.extend(self.entries.get(from).filter(|half| half.change.new_node().is_none()));
        }
        if entry.change.new_node().is_none()
            && let Some(targets) = self.renamed_to.get(&entry.path)
        {
            needed.extend(targets);
        }
        needed
    }
}

fn makes_directory(change: &Change) -> bool {
    matches!(change.new_node(), Some(Node::Directory { .. }))
        && !matches!(change.old(), Some(Node::Directory { .. }))
}
