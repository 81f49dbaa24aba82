//! Reading bundles: the list, one bundle with its changes, and differing lines.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use stockade_api::{
    BundleChanges, BundleDetail, BundleEntry, BundleList, BundleState, Bytes, DiffBundle,
    ListBundles, ListedBundle, PathDiff, Result, ShowBundle,
};
use stockade_bundle::beneath::Dir;
use stockade_bundle::patch::{self, Sides};
use stockade_bundle::store::{Bundle, State, Status, StoredBundle};
use stockade_bundle::{Change, Entry, RelativePath, apply};
use stockade_core::{Code, Problem, Time};

use crate::bundles::{Bundles, READ_LIMITS, limits, pending, project_path};
use crate::groups;
use crate::paths::{paths, to_bytes};
use crate::problem::{apply_problem, nearest, store_problem};
use crate::views;

/// How long the lines of one file are compared with the most precise algorithm.
pub(crate) const DIFF_TIMEOUT: Duration = Duration::from_millis(500);

impl Bundles {
    /// The bundles that wait for a decision, the newest first. Before that, the views that
    /// killed runs left are turned into bundles.
    ///
    /// # Errors
    /// [`Code::Io`] when the data directory cannot be read.
    pub fn list(&self, request: &ListBundles) -> Result<BundleList> {
        let views = if request.stored_only {
            Vec::new()
        } else {
            let limits = limits(request.limit_bytes, request.limit_paths);
            views::bundle_leftovers(&self.data, &limits)?
        };
        let listed = self.store.list(&READ_LIMITS).map_err(|error| store_problem(&error))?;
        let (listed, expired) = self.remove_old(listed)?;
        let waiting = listed.into_iter().filter(|listed| !is_done(listed));
        let bundles = waiting.map(|StoredBundle { id, bundle }| {
            let bundle = bundle.and_then(|bundle| Ok(describe(&bundle, &bundle.state()?)));
            match bundle {
                Ok(bundle) => ListedBundle::Bundle(bundle),
                Err(error) => ListedBundle::Unreadable { id, error: store_problem(&error) },
            }
        });
        let bundles = bundles.collect();
        Ok(BundleList { bundles, views, expired, ..BundleList::default() })
    }

    /// A bundle with its changes, or with those at and below the given paths.
    ///
    /// # Errors
    /// [`Code::BundleNotFound`]; [`Code::FileNotFound`] for paths that it does not change.
    pub fn show(&self, request: &ShowBundle) -> Result<BundleDetail> {
        let mut bundle = self.find(&request.id)?;
        let paths = paths(&bundle.manifest.project, &request.paths)?;
        expand(&mut bundle, paths.iter().map(RelativePath::as_bytes))?;
        let entries = named_entries(&bundle, &paths)?;
        let state = bundle.state().map_err(|error| store_problem(&error))?;
        let project = project_dir(&bundle);
        let created = bundle.manifest.created_at_ms;
        let entry = |entry: &&Entry| {
            let applied = state.applied.contains(&entry.path);
            let is_in_conflict = |dir: &Dir| apply::is_in_conflict(dir, entry, created);
            let conflict = !applied && project.as_ref().map_or(entry.conflict, is_in_conflict);
            // What the host changed later was the same at the start as in the manifest.
            let base_known = conflict && (!entry.conflict || entry.base_known);
            match serde_json::to_value(Entry { conflict, base_known, ..(*entry).clone() }) {
                Ok(serde_json::Value::Object(change)) => Ok(BundleEntry { applied, change }),
                _ => Err(Problem::new(
                    Code::BundleInvalid,
                    "an entry of the bundle cannot be encoded",
                )),
            }
        };
        let entries = entries.iter().map(entry).collect::<Result<_>>()?;
        Ok(BundleDetail { bundle: describe(&bundle, &state), entries })
    }

    /// The old and the new content of a path that a bundle changes.
    ///
    /// # Errors
    /// [`Code::BundleNotFound`]; [`Code::FileNotFound`] for a path that it does not change.
    pub fn contents(&self, id: &str, path: &RelativePath) -> Result<Sides> {
        let mut bundle = self.find(id)?;
        expand(&mut bundle, std::iter::once(path.as_bytes()))?;
        let entry = bundle.manifest.entries.iter().find(|entry| entry.path == *path);
        let entry = entry.ok_or_else(|| not_in_bundle(&bundle, vec![path.clone()]))?;
        let project = project_dir(&bundle);
        Sides::of(&bundle, project.as_ref(), entry).map_err(|error| store_problem(&error))
    }

    /// The lines that differ, computed path by path as the caller iterates.
    ///
    /// # Errors
    /// [`Code::BundleNotFound`]; [`Code::FileNotFound`] for paths that it does not change.
    pub fn differences(&self, request: &DiffBundle) -> Result<Differences> {
        let mut bundle = self.find(&request.id)?;
        expand(&mut bundle, request.paths.iter().map(|Bytes(path)| path.as_slice()))?;
        let entries = &bundle.manifest.entries;
        let mut wanted = Vec::new();
        for Bytes(path) in &request.paths {
            let found = entries.binary_search_by(|entry| entry.path.as_bytes().cmp(path));
            wanted.push(found.map_err(|_| {
                let unknown = RelativePath::new(path.as_slice()).into_iter().collect();
                not_in_bundle(&bundle, unknown)
            })?);
        }
        if request.paths.is_empty() {
            wanted.extend(0..entries.len());
        }
        let project = project_dir(&bundle);
        let applied = bundle.state().map_err(|error| store_problem(&error))?.applied;
        Ok(Differences { bundle, project, applied, indices: wanted.into_iter() })
    }
}

/// The entries in the result of [`Bundles::show`], each with whether it was already applied.
///
/// # Errors
/// [`Code::BundleInvalid`] for an invalid entry.
pub fn entries(detail: &BundleDetail) -> Result<Vec<(Entry, bool)>> {
    let entry = |written: &BundleEntry| {
        let change = serde_json::Value::Object(written.change.clone());
        let entry = serde_json::from_value(change).map_err(|error| {
            Problem::new(Code::BundleInvalid, "an entry of the bundle cannot be read")
                .because(error.to_string())
        })?;
        Ok((entry, written.applied))
    };
    detail.entries.iter().map(entry).collect()
}

/// The lines that differ in paths of a bundle. Each path is compared only when the iterator reaches
/// it.
#[derive(Debug)]
pub struct Differences {
    bundle: Bundle,
    /// The project, which may still have old contents that the bundle does not store.
    project: Option<Dir>,
    applied: BTreeSet<RelativePath>,
    indices: std::vec::IntoIter<usize>,
}

impl Iterator for Differences {
    type Item = Result<PathDiff>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.bundle.manifest.entries.get(self.indices.next()?)?;
        let sides = match Sides::of(&self.bundle, self.project.as_ref(), entry) {
            Ok(sides) => sides,
            Err(error) => return Some(Err(store_problem(&error))),
        };
        let rendered = patch::render(entry, &sides, Some(Instant::now() + DIFF_TIMEOUT));
        Some(Ok(PathDiff {
            path: to_bytes(&entry.path),
            added: rendered.added,
            removed: rendered.removed,
            binary: rendered.binary,
            diff: rendered.text.into(),
            readable: rendered.readable.map(Into::into),
            unseen: rendered.unseen,
            host: self.host(entry),
        }))
    }
}

impl Differences {
    /// What the host has changed at a path in conflict; `None` if there is no conflict, or the common
    /// base is not known.
    fn host(&self, entry: &Entry) -> Option<Bytes> {
        let project = self.project.as_ref()?;
        if !apply::is_in_conflict(project, entry, self.bundle.manifest.created_at_ms)
            || (entry.conflict && !entry.base_known)
            || self.applied.contains(&entry.path)
        {
            return None;
        }
        let change = match (entry.change.old().cloned(), apply::host_node(project, &entry.path)) {
            (None, None) => return None,
            (None, Some(new)) => Change::Add { new },
            (Some(old), None) => Change::Delete { old },
            (Some(old), Some(new)) => Change::Modify { old, new },
        };
        let host = Entry::new(entry.path.clone(), change);
        let sides = Sides::of_host(&self.bundle, project, &host).ok()?;
        let rendered = patch::render(&host, &sides, Some(Instant::now() + DIFF_TIMEOUT));
        Some(rendered.readable.unwrap_or(rendered.text).into())
    }
}

/// The directory of the project of a bundle; `None` if it no longer exists.
pub(crate) fn project_dir(bundle: &Bundle) -> Option<Dir> {
    Dir::open_recorded(project_path(bundle)).ok()
}

/// Whether nothing in it remains to be decided.
fn is_done(listed: &StoredBundle) -> bool {
    let Ok(bundle) = &listed.bundle else { return false };
    pending(bundle).is_ok_and(|left| left.is_empty())
        && bundle.state().is_ok_and(|state| !state.applied.is_empty())
}

/// The description of a bundle without its changes.
pub(crate) fn describe(bundle: &Bundle, state: &State) -> stockade_api::Bundle {
    let manifest = &bundle.manifest;
    stockade_api::Bundle {
        id: bundle.id().to_owned(),
        project: Bytes(manifest.project.clone()),
        created_at: Time::from_ms(i64::try_from(manifest.created_at_ms).unwrap_or(i64::MAX)),
        command: manifest.command.clone(),
        labels: manifest.labels.clone(),
        exit_code: manifest.exit_code,
        base_ref: manifest.base_ref.clone(),
        state: match state.status {
            Status::Open => BundleState::Open,
            Status::Partial => BundleState::Partial,
            Status::Applied => BundleState::Applied,
        },
        changes: BundleChanges { applied: state.applied.len(), ..counts(&manifest.entries) },
    }
}

/// The numbers of changes, the same in every view of a bundle. None counts as applied.
pub fn counts<'e>(entries: impl IntoIterator<Item = &'e Entry>) -> BundleChanges {
    let mut changes = BundleChanges::default();
    let mut ignored = Vec::new();
    let mut refused = BTreeSet::new();
    for entry in entries {
        if entry.refused.is_some() {
            refused.insert(entry.path.clone());
        } else if entry.ignored {
            ignored.push(entry);
        } else {
            changes.total += 1;
            changes.executed += usize::from(entry.executed_by.is_some());
            changes.conflicting += usize::from(entry.conflict);
        }
    }
    changes.refused = groups::count(&refused, &refused);
    let (trees, single): (Vec<_>, Vec<_>) = ignored.into_iter().partition(|it| it.tree.is_some());
    let single: BTreeSet<_> = single.into_iter().map(|entry| entry.path.clone()).collect();
    let in_trees = trees.iter().filter_map(|entry| entry.tree.as_ref()).map(|tree| tree.paths);
    changes.ignored = groups::count(&single, &single) as u64 + in_trees.sum::<u64>();
    changes
}

/// Gives a bundle entries for the paths in ignored directories, if such a path is named.
fn expand<'p>(bundle: &mut Bundle, mut named: impl Iterator<Item = &'p [u8]>) -> Result<()> {
    let trees = bundle.manifest.entries.iter().filter(|entry| entry.tree.is_some());
    let trees: Vec<_> = trees.map(|entry| entry.path.clone()).collect();
    let is_in = |path: &[u8]| {
        RelativePath::new(path)
            .is_ok_and(|path| trees.iter().any(|tree| path != *tree && path.is_within(tree)))
    };
    if !trees.is_empty() && named.any(is_in) {
        bundle.manifest = bundle.whole_manifest().map_err(|error| store_problem(&error))?;
    }
    Ok(())
}

/// The entries at and below the given paths; all if there are no paths.
fn named_entries<'b>(bundle: &'b Bundle, paths: &[RelativePath]) -> Result<Vec<&'b Entry>> {
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
    Err(not_in_bundle(bundle, unknown))
}

/// The problem that a bundle does not change these paths, with the nearest path that it changes.
pub(crate) fn not_in_bundle(bundle: &Bundle, unknown: Vec<RelativePath>) -> Problem {
    let known = bundle.manifest.entries.iter().map(|entry| &entry.path);
    let nearest = unknown.first().and_then(|path| nearest(path, known));
    let problem = apply_problem(&apply::Error::NotInBundle(unknown), bundle.id());
    match nearest {
        Some(path) => problem.because(format!("the nearest path that it changes is {path}")),
        None => problem,
    }
}
