//! The bundles of one data directory ([`Bundles`]), the limits for reading and creating them, and
//! the entries of a bundle that remain to be decided.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use stockade_api::Result;
use stockade_bundle::Entry;
use stockade_bundle::data::DataDir;
use stockade_bundle::project::mark_programs;
use stockade_bundle::store::{Bundle, Store};
use stockade_core::{BundleLimits, Code};

use crate::problem::{caused, store_problem};

/// The limits for reading: a bundle may have been created with a higher content limit than usual.
pub(crate) const READ_LIMITS: BundleLimits =
    BundleLimits { total_bytes: u64::MAX, ..BundleLimits::RUN };

/// The limits for creating a bundle with at most this much content.
pub fn limits(total_bytes: Option<u64>) -> BundleLimits {
    let usual = BundleLimits::RUN.total_bytes;
    BundleLimits { total_bytes: total_bytes.unwrap_or(usual), ..BundleLimits::RUN }
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

/// The entries that could still be applied.
///
/// # Errors
/// [`Code::BundleInvalid`] when the record of what was applied cannot be read.
pub fn pending(bundle: &Bundle) -> Result<Vec<&Entry>> {
    let state = bundle.state().map_err(|error| store_problem(&error))?;
    let entries = bundle.manifest.entries.iter();
    let is_left = |entry: &&Entry| entry.refused.is_none() && !state.applied.contains(&entry.path);
    Ok(entries.filter(is_left).collect())
}
