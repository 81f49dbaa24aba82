//! The common part of the commands that decide about bundles: access to the bundles, through
//! the data directory's server if one runs, else through its files, and completion of what a
//! killed command started.

pub(crate) mod text;

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use stockade_api::{
    AppliedBundle, ApplyBundle, BundleDetail, BundleList, Bytes, DiffBundle, Items, ListBundles,
    PathDiff, RejectBundle, RejectedBundle, ShowBundle,
};
use stockade_bundle::apply::{self, Outcome};
use stockade_bundle::data::DataDir;
use stockade_bundle::project::Project;
use stockade_core::{Code, Problem};
use stockade_review::{Bundles, Differences};

use crate::problem::caused;
use crate::remote::Connection;

/// Access to the bundles of the data directory. Both variants give the owner the same rights; a
/// server also records the decisions.
#[derive(Debug)]
pub(crate) enum Review {
    /// Through the running server.
    Server(Box<Connection>),
    /// In this process.
    Files(Box<Bundles>),
}

impl Review {
    /// Opens the data directory, and completes what killed commands started.
    pub(crate) fn open() -> Result<Self, Problem> {
        let files = Bundles::open(&crate::data_dir::data_path()?)?;
        recover(files.data())?;
        Ok(match Connection::find()? {
            Some(server) => Self::Server(Box::new(server)),
            None => Self::Files(Box::new(files)),
        })
    }

    /// The bundles that wait for a decision.
    pub(crate) fn list(&self, request: ListBundles) -> Result<BundleList, Problem> {
        match self {
            Self::Files(files) => files.list(&request),
            Self::Server(server) => {
                server.call(async |remote| remote.sandboxes.bundles(remote.caller(), request).await)
            }
        }
    }

    /// A bundle and its changes.
    pub(crate) fn show(&self, request: ShowBundle) -> Result<BundleDetail, Problem> {
        match self {
            Self::Files(files) => files.show(&request),
            Self::Server(server) => server
                .call(async |remote| remote.sandboxes.show_bundle(remote.caller(), request).await),
        }
    }

    /// The lines that differ in exactly these paths.
    pub(crate) fn differences(&self, request: DiffBundle) -> Result<Diffs<'_>, Problem> {
        if request.paths.is_empty() {
            return Ok(Diffs::None);
        }
        Ok(match self {
            Self::Files(files) => Diffs::Files(files.differences(&request)?),
            Self::Server(server) => {
                let items = server.call(async |remote| {
                    remote.sandboxes.diff_bundle(remote.caller(), request).await
                });
                Diffs::Server(server, items?)
            }
        })
    }

    /// Applies a bundle.
    pub(crate) fn apply(&self, request: ApplyBundle) -> Result<AppliedBundle, Problem> {
        match self {
            Self::Files(files) => {
                let mut progress = Progress::new();
                let applied = files.apply_at_once(&request, &mut |step| progress.observe(step));
                progress.finish();
                applied
            }
            Self::Server(server) => server.call(async |remote| {
                remote.sandboxes.apply_bundle(&remote.idempotent(), request).await
            }),
        }
    }

    /// Deletes a bundle.
    pub(crate) fn reject(&self, request: RejectBundle) -> Result<RejectedBundle, Problem> {
        match self {
            Self::Files(files) => files.reject_at_once(&request.id),
            Self::Server(server) => server.call(async |remote| {
                remote.sandboxes.reject_bundle(&remote.idempotent(), request).await
            }),
        }
    }
}

/// A line on a terminal that shows how far a long apply operation is.
struct Progress {
    is_terminal: bool,
    is_shown: bool,
}

impl Progress {
    /// After so many paths the line changes; fewer paths in all have none.
    const PATHS: usize = 500;

    fn new() -> Self {
        let is_terminal = rustix::termios::isatty(std::io::stderr());
        Self { is_terminal, is_shown: false }
    }

    fn observe(&mut self, step: apply::Step) {
        let (what, count) = match step {
            apply::Step::Staged(count) => ("written", count),
            apply::Step::Swapped(count) => ("applied", count),
            apply::Step::Discarded(count) => ("replaced files removed", count),
            _ => return,
        };
        if self.is_terminal && count % Self::PATHS == 0 {
            self.is_shown = true;
            // Without a terminal there is nothing to report.
            let _ = write!(std::io::stderr(), "\r\u{1b}[Kstockade: {count} {what}");
        }
    }

    fn finish(&self) {
        if self.is_shown {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
    }
}

/// The project in a directory, or in the current one.
pub(crate) fn current_project(directory: Option<&Path>) -> Result<Project, Problem> {
    let path = std::path::absolute(directory.unwrap_or_else(|| Path::new(".")))
        .and_then(std::fs::canonicalize);
    let path = path.map_err(|error| caused(Code::ProjectRefused, &error))?;
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
    Project::find(&path, home.as_deref()).map_err(|error| caused(Code::ProjectRefused, &error))
}

/// Diffs, one after another; each is computed or fetched when the iterator reaches it.
#[derive(Debug)]
pub(crate) enum Diffs<'r> {
    /// No path was requested.
    None,
    Files(Differences),
    Server(&'r Connection, Items<PathDiff>),
}

impl Iterator for Diffs<'_> {
    type Item = Result<PathDiff, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::None => None,
            Self::Files(differences) => differences.next(),
            Self::Server(server, items) => server.call(async |_| items.next().await),
        }
    }
}

/// Converts paths from arguments.
pub(crate) fn paths(given: &[OsString]) -> Vec<Bytes> {
    given.iter().map(|path| Bytes(path.as_bytes().to_vec())).collect()
}

/// Completes apply operations that were killed, and reports the result of each on stderr.
pub(crate) fn recover(data: &DataDir) -> Result<(), Problem> {
    let journals = data.journals().map_err(|e| caused(Code::Io, &e))?;
    for recovered in apply::recover(&journals, data).map_err(|e| caused(Code::Io, &e))? {
        let project = recovered.project.display();
        match recovered.outcome {
            Outcome::NotStarted => {
                eprint_line!("stockade: an interrupted apply had not changed {project} yet");
            }
            Outcome::Undone(left) => {
                eprint_line!("stockade: an interrupted apply to {project} was undone");
                for left in left {
                    eprint_line!("  {}", text::not_restored(&left));
                }
            }
            Outcome::Finished => {
                eprint_line!("stockade: an interrupted apply to {project} was already complete");
            }
            Outcome::ProjectMissing => eprint_line!(
                "stockade: an apply to {project} was interrupted, and the project no longer exists there; move it back, or apply to its new location, to complete it"
            ),
            Outcome::Failed(error) => {
                let problem = caused(Code::Io, &error);
                let cause = problem.cause.map(|cause| format!(": {cause}")).unwrap_or_default();
                eprint_line!(
                    "stockade: an interrupted apply could not be completed: {}{cause}",
                    problem.message
                );
            }
        }
    }
    Ok(())
}
