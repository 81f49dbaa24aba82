//! Which bundle of each project was shown last: `latest` may mean another one by the time of the
//! decision. The record is a file for each project, named by the hash of the project's path.

use std::io::{Read as _, Write as _};

use stockade_api::Result;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, Rename};
use stockade_bundle::manifest::ContentHash;
use stockade_core::{Code, Problem};

use crate::bundles::Bundles;
use crate::problem::caused;

/// The length of a bundle's id.
const ID_BYTES: u64 = 64;

impl Bundles {
    /// Records that a bundle of this project was shown.
    ///
    /// # Errors
    /// [`Code::Io`] when it cannot be recorded.
    pub fn record_shown(&self, project: &[u8], id: &str) -> Result<()> {
        let (shown, name) = self.record_of(project)?;
        let new = format!("{name}.{}", std::process::id());
        let new = RelativePath::new(new).map_err(|error| invalid(&error))?;
        let write = || {
            shown.remove_tree(&new)?;
            shown.create_file(&new, 0o600)
        };
        let mut file = write().map_err(|error| caused(Code::Io, &error))?;
        let failed = |error: std::io::Error| {
            Problem::new(Code::Io, "cannot record what was shown").because(error.to_string())
        };
        file.write_all(id.as_bytes()).map_err(failed)?;
        let renamed = shown.rename(&new, &shown, &name, Rename::Replace);
        renamed.map_err(|error| caused(Code::Io, &error))
    }

    /// The id of the bundle of this project that was shown last, if it still waits for a decision.
    ///
    /// # Errors
    /// [`Code::Io`] when the record cannot be read.
    pub fn last_shown(&self, project: &[u8]) -> Result<Option<String>> {
        let (shown, name) = self.record_of(project)?;
        let Ok(file) = shown.open_file(&name) else { return Ok(None) };
        let mut id = String::new();
        if file.take(ID_BYTES + 1).read_to_string(&mut id).is_err()
            || ContentHash::from_hex(&id).is_none()
        {
            return Ok(None);
        }
        Ok(Some(id).filter(|id| self.store.contains(id)))
    }

    /// Removes the record of this project, because its bundle was decided.
    ///
    /// # Errors
    /// [`Code::Io`] when it cannot be removed.
    pub fn forget_shown(&self, project: &[u8], decided: &str) -> Result<()> {
        if self.last_shown(project)?.is_none_or(|shown| shown != decided) {
            return Ok(());
        }
        let (shown, name) = self.record_of(project)?;
        shown.remove_tree(&name).map_err(|error| caused(Code::Io, &error))
    }

    fn record_of(&self, project: &[u8]) -> Result<(Dir, RelativePath)> {
        let shown = self.data.shown().map_err(|error| caused(Code::Io, &error))?;
        let name = RelativePath::new(ContentHash::of(project).to_hex());
        Ok((shown, name.map_err(|error| invalid(&error))?))
    }
}

fn invalid(error: &dyn std::error::Error) -> Problem {
    caused(Code::Io, error)
}
