//! The commits of a bundle: finding the files that a command has left, the record that they were taken, and
//! the messages for commits that cannot be.

use std::path::PathBuf;

use stockade_api::Result;
use stockade_bundle::commits::{Error, Harvest, ObjectId};
use stockade_bundle::decisions::Action;
use stockade_bundle::project::Project;
use stockade_bundle::store::Bundle;
use stockade_core::{Code, Problem};

use crate::bundles::{Bundles, project_path};
use crate::problem::{caused, short_id, store_problem};

/// The commits of a bundle, not read yet.
#[derive(Debug)]
pub struct StoredCommits {
    /// The bundle, which is locked.
    pub bundle: Bundle,
    /// Its project.
    pub project: Project,
    /// The commit that the command started with.
    pub base: Option<ObjectId>,
    /// The object files.
    pub harvest: Harvest,
    /// The path of their directory.
    pub path: PathBuf,
}

impl Bundles {
    /// The commits of a bundle.
    ///
    /// # Errors
    /// [`Code::BundleNotFound`]; [`Code::NotFound`] for a bundle without commits;
    /// [`Code::ProjectRefused`].
    pub fn commits(&self, name: &str) -> Result<StoredCommits> {
        let bundle = self.find(name)?;
        bundle.lock().map_err(|error| store_problem(&error))?;
        let project = Project::open(project_path(&bundle), None)
            .map_err(|error| caused(Code::ProjectRefused, &error))?;
        let harvest = bundle.harvest().map_err(|error| commits_problem(&error, bundle.id()))?;
        // Of a persistent sandbox the commit at the start is not known: its commits must follow one
        // that the project has now.
        let base = bundle.manifest.base_ref.as_ref().or(project.base_ref.as_ref());
        let base = base.and_then(|hex| ObjectId::from_hex(hex.as_bytes()));
        let path = self.data().path().join("bundles").join(bundle.id()).join("git/objects");
        Ok(StoredCommits { bundle, project, base, harvest, path })
    }

    /// Records that commits were taken to a branch, which change so many paths.
    ///
    /// # Errors
    /// [`Code::Io`].
    pub fn record_commits(&self, stored: &StoredCommits, paths: usize) -> Result<()> {
        let recorded = stored.bundle.record(self.data(), Action::Commits, paths);
        recorded.map_err(|error| store_problem(&error))
    }
}

/// The problem for commits that cannot be taken.
pub fn commits_problem(error: &Error, bundle: &str) -> Problem {
    let id = short_id(bundle);
    let code = match error {
        Error::None => Code::NotFound,
        Error::Stream(_) | Error::Object { .. } => Code::BundleInvalid,
        Error::Unrelated(_) | Error::Refused { .. } => Code::PathRefused,
        Error::TooLarge => Code::BundleTooLarge,
        Error::Name(_) => Code::InvalidInput,
        Error::Exists(_) => Code::Conflict,
        Error::Unsupported(_) => Code::Unsupported,
        Error::NoRepository(_) => Code::ProjectRefused,
        Error::Read(_) | Error::Io { .. } => Code::Io,
    };
    let problem = caused(code, error);
    match error {
        Error::None => problem.remedied_by(format!("stockade diff {id}")),
        Error::Refused { .. } | Error::Unrelated(_) => problem
            .because(
                "commits are taken all or none, and only on top of what the command started with",
            )
            .remedied_by(format!("stockade diff {id}")),
        Error::Name(_) | Error::Exists(_) => {
            problem.remedied_by(format!("stockade apply {id} --commits --branch stockade/{id}-2"))
        }
        _ => problem,
    }
}
