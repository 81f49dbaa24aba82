//! The bundles of a data directory as files: what is listed, shown, applied and thrown away.
//!
//! Knows no owner and no record: `operations::bundles` puts those around it where a server runs. A
//! command without a server works on its own user's files, and calls this as it is.

mod collect;
mod decide;
mod look;
pub mod problem;
mod propose;
mod views;
pub mod words;

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use stockade_api::{Bytes, Result};
use stockade_bundle::data::DataDir;
use stockade_bundle::store::{Bundle, Store};
use stockade_bundle::{Entry, RelativePath};
use stockade_core::{BundleLimits, Code, Problem};

pub(crate) use collect::Kept;
pub use decide::{Found, Outcome};
pub use look::Differences;
pub use views::of_view;

use crate::failure::caused;
use problem::of_store;

/// The limits of reading: what is made may have been allowed more content than usual.
const READING: BundleLimits = BundleLimits { total_bytes: u64::MAX, ..BundleLimits::RUN };

/// The limits of a bundle that is made, of at most so much content.
pub fn limits(total_bytes: Option<u64>) -> BundleLimits {
    let usual = BundleLimits::RUN.total_bytes;
    BundleLimits { total_bytes: total_bytes.unwrap_or(usual), ..BundleLimits::RUN }
}

/// The bundles of a data directory.
#[derive(Debug)]
pub struct Bundles {
    data: DataDir,
    store: Store,
}

impl Bundles {
    /// Opens the data directory, and makes it where it is missing.
    ///
    /// # Errors
    /// [`Code::Io`] for one that cannot be used, or must not be.
    pub fn open(path: &Path) -> Result<Self> {
        let data = DataDir::open(path).map_err(|error| {
            let problem = caused(Code::Io, &error);
            match error.hint() {
                Some(hint) => problem.remedied_by(hint),
                None => problem,
            }
        })?;
        let store = Store::open(&data).map_err(|error| of_store(&error))?;
        Ok(Self { data, store })
    }

    /// The data directory.
    pub const fn data(&self) -> &DataDir {
        &self.data
    }

    /// The bundle that a name stands for: an id, the beginning of just one, or `latest`.
    fn find(&self, name: &str) -> Result<Bundle> {
        self.store.find(name, &READING).map_err(|error| of_store(&error))
    }
}

/// The entries that could still be applied.
///
/// # Errors
/// [`Code::BundleInvalid`] when what was applied of it cannot be read.
pub fn pending(bundle: &Bundle) -> Result<Vec<&Entry>> {
    let state = bundle.state().map_err(|error| of_store(&error))?;
    let entries = bundle.manifest.entries.iter();
    let is_left = |entry: &&Entry| entry.refused.is_none() && !state.applied.contains(&entry.path);
    Ok(entries.filter(is_left).collect())
}

/// A path as it is told.
fn told(path: &RelativePath) -> Bytes {
    Bytes(path.as_bytes().to_vec())
}

/// The paths of a project that somebody names: below its root, or absolute ones in it. Empty when
/// they name the root itself.
///
/// # Errors
/// [`Code::InvalidInput`] for what is no path in the project.
pub fn paths(project: &[u8], given: &[Bytes]) -> Result<Vec<RelativePath>> {
    let path = |bytes: &'_ [u8]| Path::new(std::ffi::OsStr::from_bytes(bytes)).to_owned();
    let project = path(project);
    let mut paths = Vec::new();
    for Bytes(given) in given {
        let named = path(given);
        let below = named.strip_prefix(&project).unwrap_or(&named);
        // `components` drops what does not matter: `./`, doubled and trailing slashes.
        let plain: std::path::PathBuf =
            below.components().filter(|part| *part != std::path::Component::CurDir).collect();
        if plain.as_os_str().is_empty() && !given.is_empty() {
            return Ok(Vec::new());
        }
        let path = RelativePath::new(plain.as_os_str().as_bytes()).map_err(|error| {
            let message = format!("`{}` is no path in the project", String::from_utf8_lossy(given));
            Problem::new(Code::InvalidInput, message)
                .because(error.to_string())
                .remedied_by("name paths as `stockade diff --stat` does, below the project's root")
        })?;
        paths.push(path);
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_below_the_project() {
        let named = |text: &str| {
            let paths = paths(b"/home/me/project", &[text.into()]).ok()?;
            Some(paths.iter().map(RelativePath::quoted).collect::<Vec<_>>().join(" "))
        };
        for same in ["a/b", "./a/b", "a//b/", "/home/me/project/a/b"] {
            assert_eq!(named(same).as_deref(), Some("a/b"), "{same}");
        }
        for all in [".", "./", "/home/me/project", "/home/me/project/"] {
            assert_eq!(named(all).as_deref(), Some(""), "{all}");
        }
        for outside in ["", "..", "../x", "a/../../x", "/etc", "/home/me/project/../x"] {
            assert_eq!(named(outside), None, "{outside}");
        }
    }
}
