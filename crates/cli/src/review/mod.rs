//! What the commands that decide about bundles share: finding a bundle, ending
//! what a killed command began, and saying what a bundle holds.

pub(crate) mod output;
pub(crate) mod words;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use stockade_bundle::apply::{self, Outcome};
use stockade_bundle::beneath::Dir;
use stockade_bundle::data::DataDir;
use stockade_bundle::store::{Bundle, Store};
use stockade_bundle::{Entry, Manifest, RelativePath};
use stockade_core::{BundleLimits, Code, Problem};

use crate::problem::{caused, of_store};

/// The limits of reading: `--max-bundle` may have raised that of the content.
pub(crate) const READING: BundleLimits =
    BundleLimits { total_bytes: u64::MAX, ..BundleLimits::RUN };

/// The bundles of the data directory.
#[derive(Debug)]
pub(crate) struct Review {
    pub(crate) data: DataDir,
    pub(crate) store: Store,
}

impl Review {
    /// Opens the data directory, and ends what killed commands began.
    pub(crate) fn open() -> Result<Self, Problem> {
        let data = DataDir::open(&crate::run::data_path()?).map_err(|error| {
            let problem = caused(Code::Io, &error);
            match error.hint() {
                Some(hint) => problem.remedied_by(hint),
                None => problem,
            }
        })?;
        recover(&data)?;
        let store = Store::open(&data).map_err(|e| of_store(&e))?;
        Ok(Self { data, store })
    }

    /// The bundle that a name stands for.
    pub(crate) fn find(&self, name: &str) -> Result<Bundle, Problem> {
        self.store.find(name, &READING).map_err(|e| of_store(&e))
    }

    pub(crate) fn journals(&self) -> Result<Dir, Problem> {
        self.data.journals().map_err(|e| caused(Code::Io, &e))
    }
}

/// Ends applications that were killed, and tells on stderr what became of each.
#[expect(clippy::print_stderr, reason = "what is not data goes to stderr")]
pub(crate) fn recover(data: &DataDir) -> Result<(), Problem> {
    let journals = data.journals().map_err(|e| caused(Code::Io, &e))?;
    for recovered in apply::recover(&journals).map_err(|e| caused(Code::Io, &e))? {
        let project = recovered.project.display();
        match recovered.outcome {
            Outcome::NotBegun => {
                eprintln!("stockade: an interrupted apply had not changed {project} yet");
            }
            Outcome::Undone(left) => {
                eprintln!("stockade: an interrupted apply to {project} was undone");
                for left in left {
                    eprintln!("  {}", words::left(&left));
                }
            }
            Outcome::Finished => {
                eprintln!("stockade: an interrupted apply to {project} was complete");
            }
            Outcome::ProjectGone => eprintln!(
                "stockade: an apply to {project} was interrupted, and the project is not there; \
                 move it back, or apply to where it is now, to end it"
            ),
            Outcome::Failed(error) => {
                let problem = caused(Code::Io, &error);
                let cause = problem.cause.map(|cause| format!(": {cause}")).unwrap_or_default();
                eprintln!(
                    "stockade: an interrupted apply could not be ended: {}{cause}",
                    problem.message
                );
            }
        }
    }
    Ok(())
}

/// The paths of a project that arguments name: below its root, or absolute ones in it. Empty
/// when they name the root itself.
pub(crate) fn paths(manifest: &Manifest, given: &[OsString]) -> Result<Vec<RelativePath>, Problem> {
    let project = Path::new(std::ffi::OsStr::from_bytes(&manifest.project));
    let mut paths = Vec::new();
    for given in given {
        let below = Path::new(given).strip_prefix(project).unwrap_or_else(|_| Path::new(given));
        // `components` drops what does not matter: `./`, doubled and trailing slashes.
        let plain: std::path::PathBuf =
            below.components().filter(|part| *part != std::path::Component::CurDir).collect();
        if plain.as_os_str().is_empty() && !given.is_empty() {
            return Ok(Vec::new());
        }
        let path = RelativePath::new(plain.as_os_str().as_bytes()).map_err(|error| {
            Problem::new(
                Code::InvalidInput,
                format!("`{}` is no path in the project", given.to_string_lossy()),
            )
            .because(error.to_string())
            .remedied_by("name paths as `stockade diff --stat` does, below the project's root")
        })?;
        paths.push(path);
    }
    Ok(paths)
}

/// The entries that could still be applied.
pub(crate) fn pending(bundle: &Bundle) -> Result<Vec<&Entry>, Problem> {
    let state = bundle.state().map_err(|e| of_store(&e))?;
    Ok(bundle
        .manifest
        .entries
        .iter()
        .filter(|entry| entry.refused.is_none() && !state.applied.contains(&entry.path))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_below_the_project() {
        let manifest: Manifest = serde_json::from_value(serde_json::json!({
            "version": 1, "project": "/home/me/project", "createdAtMs": 0, "command": [],
            "exitCode": 0, "view": "overlay", "entries": []
        }))
        .unwrap();
        let named = |text: &str| {
            let paths = paths(&manifest, &[OsString::from(text)]).ok()?;
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
