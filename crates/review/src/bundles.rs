//! The bundles of one data directory ([`Bundles`]), the limits for reading and creating them, and
//! the entries of a bundle that remain to be decided.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use stockade_api::Result;
use stockade_bundle::Entry;
use stockade_bundle::data::DataDir;
use stockade_bundle::project::mark_programs;
use stockade_bundle::store::{Bundle, State, Store};
use stockade_core::{BundleLimits, Code};

use crate::problem::{caused, store_problem};

/// The limits for reading: a bundle may have been created with higher limits than usual.
pub(crate) const READ_LIMITS: BundleLimits = BundleLimits {
    total_bytes: u64::MAX,
    entries: u64::MAX,
    manifest_bytes: u64::MAX,
    ..BundleLimits::RUN
};

/// The limits for creating a bundle with at most this much content and this many paths.
pub fn limits(total_bytes: Option<u64>, paths: Option<u64>) -> BundleLimits {
    let usual = BundleLimits::RUN;
    let entries = paths.unwrap_or(usual.entries);
    // The manifest grows with the paths.
    let manifest_bytes = (usual.manifest_bytes / usual.entries).saturating_mul(entries);
    BundleLimits {
        total_bytes: total_bytes.unwrap_or(usual.total_bytes),
        entries,
        manifest_bytes: manifest_bytes.max(usual.manifest_bytes),
        ..usual
    }
}

/// The bundles of a data directory.
#[derive(Debug)]
pub struct Bundles {
    pub(crate) data: DataDir,
    pub(crate) store: Store,
}

impl Bundles {
    /// Opens the data directory, and creates it if it does not exist.
    ///
    /// # Errors
    /// [`Code::Io`] if it cannot or must not be used.
    pub fn open(path: &Path) -> Result<Self> {
        let data = DataDir::open(path).map_err(|error| {
            let problem = caused(Code::Io, &error);
            match error.hint() {
                Some(hint) => problem.remedied_by(hint),
                None => problem,
            }
        })?;
        let store = Store::open(&data).map_err(|error| store_problem(&error))?;
        Ok(Self { data, store })
    }

    /// The data directory.
    pub const fn data(&self) -> &DataDir {
        &self.data
    }

    /// The bundle called `name`: an id, a unique prefix of an id, or `latest`.
    ///
    /// What git executes by the project's present configuration is marked in it.
    pub(crate) fn find(&self, name: &str) -> Result<Bundle> {
        let found = self.store.find(name, &READ_LIMITS);
        let mut bundle = found.map_err(|error| store_problem(&error))?;
        let project = project_path(&bundle).to_owned();
        mark_programs(&project, &mut bundle.manifest.entries);
        Ok(bundle)
    }
}

/// The path of a bundle's project.
pub(crate) fn project_path(bundle: &Bundle) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(&bundle.manifest.project))
}

/// Whether an entry, or something in its directory, could still be applied.
fn is_pending(bundle: &Bundle, entry: &Entry, state: &State) -> Result<bool> {
    if entry.tree.is_none() {
        return Ok(!state.applied.contains(&entry.path));
    }
    if !state.applied.iter().any(|path| path.is_within(&entry.path)) {
        return Ok(true);
    }
    let below = bundle.listing(entry).map_err(|error| store_problem(&error))?;
    let is_left = |entry: &Entry| entry.refused.is_none() && !state.applied.contains(&entry.path);
    Ok(below.iter().any(is_left))
}

/// The entries that could still be applied.
///
/// # Errors
/// [`Code::BundleInvalid`] when the record of what was applied cannot be read.
pub fn pending(bundle: &Bundle) -> Result<Vec<&Entry>> {
    let state = bundle.state().map_err(|error| store_problem(&error))?;
    let entries = bundle.manifest.entries.iter();
    let mut left = Vec::new();
    for entry in entries.filter(|entry| entry.refused.is_none()) {
        if is_pending(bundle, entry, &state)? {
            left.push(entry);
        }
    }
    Ok(left)
}
