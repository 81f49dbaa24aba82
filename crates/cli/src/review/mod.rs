//! The common part of the commands that decide about bundles: access to the bundles, through
//! the data directory's server if one runs, else through its files, or through a server at a URL that
//! has them; and completion of what a killed command started.

pub(crate) mod text;

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use stockade_api::{
    AppliedBundle, ApplyBundle, Bundle, BundleDetail, BundleList, Bytes, DiffBundle, Items, LATEST,
    ListBundles, ListedBundle, PathDiff, RejectBundle, RejectedBundle, ShowBundle,
};
use stockade_bundle::RelativePath;
use stockade_bundle::apply::{self, Outcome};
use stockade_bundle::data::DataDir;
use stockade_bundle::patch::Sides;
use stockade_bundle::project::Project;
use stockade_core::{Code, Problem};
use stockade_review::{Bundles, CurrentProject, Differences};

use crate::audit::Recording;
use crate::problem::{caused, short_id};
use crate::remote::chosen::chosen;
use crate::remote::{Connection, report_unreachable};

/// Access to the bundles of the data directory: through the running server, which also records the
/// decisions, else in this process. Both give the owner the same rights. If a server at a URL was
/// chosen, also access to those that are on its machine; a bundle of a run on that server is here, as
/// its project is.
#[derive(Debug)]
pub(crate) struct Review {
    here: Here,
    elsewhere: Option<Elsewhere>,
    current: CurrentProject,
}

#[derive(Debug)]
struct Here {
    files: Bundles,
    server: Option<Box<Connection>>,
}

#[derive(Debug)]
struct Elsewhere {
    server: Box<Connection>,
    url: String,
    /// The ids of its bundles that were listed.
    listed: RefCell<HashSet<String>>,
}

/// What has a bundle.
enum Holder<'r> {
    /// The files of the data directory.
    Files(&'r Bundles),
    /// The server of the data directory.
    Local(&'r Connection),
    /// The server at a URL.
    Elsewhere(&'r Connection, &'r str),
}

impl Review {
    /// Opens the data directory, and completes what killed commands started.
    pub(crate) fn open() -> Result<Self, Problem> {
        let mut review = Self::of_files()?;
        review.here.server = Connection::find()?.map(Box::new);
        review.elsewhere = match chosen() {
            None => None,
            Some(server) => Some(Elsewhere {
                server: Box::new(Connection::at_url(server)?),
                url: server.url.to_string(),
                listed: RefCell::default(),
            }),
        };
        Ok(review)
    }

    /// The same without any server, for a process that must not start a thread.
    pub(crate) fn of_files() -> Result<Self, Problem> {
        let current = current_project()?;
        let files = Bundles::open(&crate::data_dir::data_path()?)?;
        recover(files.data())?;
        Ok(Self { here: Here { files, server: None }, elsewhere: None, current })
    }

    /// The bundles of the data directory as files.
    pub(crate) const fn files(&self) -> &Bundles {
        &self.here.files
    }

    const fn holder_here(&self) -> Holder<'_> {
        match &self.here.server {
            Some(server) => Holder::Local(server),
            None => Holder::Files(&self.here.files),
        }
    }

    /// What has the bundle of this name. A name that is known here is not looked for elsewhere: ids
    /// are hashes of contents.
    fn holder(&self, name: &str) -> Holder<'_> {
        let is_unknown = |found: Option<Problem>| {
            found.is_some_and(|problem| problem.code == Code::BundleNotFound)
        };
        match &self.elsewhere {
            Some(elsewhere)
                if is_unknown(self.here.files.id(name).err())
                    && is_unknown(self.here.files.reject_target(name).err()) =>
            {
                Holder::Elsewhere(&elsewhere.server, &elsewhere.url)
            }
            _ => self.holder_here(),
        }
    }

    /// The server at a URL that a listed bundle is on, if it is not here.
    pub(crate) fn server_of(&self, bundle: &Bundle) -> Option<&str> {
        let elsewhere = self.elsewhere.as_ref()?;
        elsewhere.listed.borrow().contains(&bundle.id).then_some(elsewhere.url.as_str())
    }

    /// The bundles that wait for a decision, of all projects. Those that waited too long are deleted
    /// and reported.
    pub(crate) fn list(&self, request: ListBundles) -> Result<BundleList, Problem> {
        let mut list = self.list_here(request.clone())?;
        let Some(elsewhere) = &self.elsewhere else { return Ok(list) };
        let found = list_of(&elsewhere.server, request)?;
        let BundleList { bundles, views, expired, unreachable_servers } = found;
        report_unreachable("bundles", &unreachable_servers);
        let ids = bundles.iter().filter_map(|listed| match listed {
            ListedBundle::Bundle(bundle) => Some(bundle.id.clone()),
            ListedBundle::Unreadable { .. } => None,
        });
        elsewhere.listed.borrow_mut().extend(ids);
        report_expired(&expired);
        list.bundles.extend(bundles);
        list.views.extend(views);
        list.expired.extend(expired);
        Ok(list)
    }

    /// The same without those of a server at a URL.
    pub(crate) fn list_here(&self, request: ListBundles) -> Result<BundleList, Problem> {
        let list = match self.holder_here() {
            Holder::Files(files) => files.list(&request)?,
            Holder::Local(server) | Holder::Elsewhere(server, _) => list_of(server, request)?,
        };
        report_expired(&list.expired);
        report_unreachable("bundles", &list.unreachable_servers);
        Ok(list)
    }

    /// Whether a bundle is one of the current project.
    pub(crate) fn is_current(&self, bundle: &Bundle) -> bool {
        // A path of another machine means something else here.
        self.server_of(bundle).is_none() && self.current.has_bytes(&bundle.project.0)
    }

    /// The name of a bundle for a request: the id of the newest one of the current project if it is
    /// `latest`.
    pub(crate) fn resolve(&self, name: &str) -> Result<String, Problem> {
        match name {
            LATEST => Ok(self.latest()?.id),
            name => Ok(name.to_owned()),
        }
    }

    /// The newest bundle of the current project. The changes of killed runs become bundles only if
    /// there is no other: they are newer than what the user has in mind.
    pub(crate) fn latest(&self) -> Result<Bundle, Problem> {
        let stored = ListBundles { stored_only: true, ..ListBundles::default() };
        self.newest(stored).or_else(|_| self.newest(ListBundles::default()))
    }

    fn newest(&self, request: ListBundles) -> Result<Bundle, Problem> {
        let listed = self.list_here(request)?.bundles.into_iter();
        let mut bundles = listed.filter_map(|listed| match listed {
            ListedBundle::Bundle(bundle) => Some(bundle),
            ListedBundle::Unreadable { .. } => None,
        });
        let mut others = Vec::new();
        let found = bundles.by_ref().find_map(|bundle| {
            if self.is_current(&bundle) {
                return Some(bundle);
            }
            others.push(bundle);
            None
        });
        found.ok_or_else(|| {
            let place = match self.current.root() {
                Some(root) => format!("there are no bundles of the project {}", root.display()),
                None => "there are no bundles: this directory is in no project".to_owned(),
            };
            let problem = Problem::new(Code::BundleNotFound, place);
            if others.is_empty() {
                return problem.remedied_by("stockade run -- CMD");
            }
            let mut cause = format!(
                "`latest` is a bundle of the current project; {} of other projects can be named by \
                 their ids",
                others.len()
            );
            let is_gone = |bundle: &&Bundle| {
                let project = Path::new(std::ffi::OsStr::from_bytes(&bundle.project.0));
                matches!(project.try_exists(), Ok(false))
            };
            if let Some(left) = others.iter().find(is_gone) {
                let (old, id) = (text::host_path(&left.project), short_id(&left.id));
                cause += &format!(
                    "; {old} no longer exists, and if it was moved here, apply its changes with \
                     `stockade apply {id} --project .`"
                );
            }
            problem.because(cause).remedied_by("stockade bundles --all")
        })
    }

    /// The newest bundle of the current project, for a decision. It is refused if another one was
    /// shown last: that is the one that the user has seen.
    pub(crate) fn latest_as_shown(&self) -> Result<Bundle, Problem> {
        let latest = self.latest()?;
        match self.here.files.last_shown(&latest.project.0)? {
            Some(shown) if shown != latest.id => {
                let (new, old) = (short_id(&latest.id), short_id(&shown));
                let message =
                    format!("`latest` is now {new}, but the bundle that was shown last is {old}");
                Err(Problem::new(Code::Conflict, message)
                    .because(format!("{new} was created by {}", text::command(&latest.command)))
                    .remedied_by(format!("stockade diff {new}")))
            }
            _ => Ok(latest),
        }
    }

    /// The same as [`Self::resolve`], for a decision; see [`Self::latest_as_shown`].
    pub(crate) fn resolve_as_shown(&self, name: &str) -> Result<String, Problem> {
        match name {
            LATEST => Ok(self.latest_as_shown()?.id),
            name => Ok(name.to_owned()),
        }
    }

    /// Records that a bundle was shown. A decision about another one by `latest` is refused then.
    pub(crate) fn record_shown(&self, bundle: &Bundle) {
        if self.elsewhere.is_none() || self.here.files.id(&bundle.id).is_ok() {
            // Without a record, the decision is refused only if an older one differs.
            let _ = self.here.files.record_shown(&bundle.project.0, &bundle.id);
        }
    }

    /// A bundle and its changes.
    pub(crate) fn show(&self, request: ShowBundle) -> Result<BundleDetail, Problem> {
        match self.holder(&request.id) {
            Holder::Files(files) => files.show(&request),
            Holder::Local(server) | Holder::Elsewhere(server, _) => server
                .call(async |remote| remote.sandboxes.show_bundle(remote.caller(), request).await),
        }
    }

    /// The lines that differ in exactly these paths.
    pub(crate) fn differences(&self, request: DiffBundle) -> Result<Diffs<'_>, Problem> {
        if request.paths.is_empty() {
            return Ok(Diffs::None);
        }
        Ok(match self.holder(&request.id) {
            Holder::Files(files) => Diffs::Files(Box::new(files.differences(&request)?)),
            Holder::Local(server) | Holder::Elsewhere(server, _) => {
                let items = server.call(async |remote| {
                    remote.sandboxes.diff_bundle(remote.caller(), request).await
                });
                Diffs::Server(server, items?)
            }
        })
    }

    /// The old and the new content of a path that a bundle changes.
    pub(crate) fn contents(&self, id: &str, path: &RelativePath) -> Result<Sides, Problem> {
        match self.holder(id) {
            Holder::Files(_) | Holder::Local(_) => self.here.files.contents(id, path),
            Holder::Elsewhere(_, url) => {
                let message = format!("this bundle is on {url}");
                Err(Problem::new(Code::Unsupported, message)
                    .because("a program here needs whole files, and the server sends differences")
                    .remedied_by(format!("stockade diff {id}")))
            }
        }
    }

    /// Applies a bundle: to its project here, or if it is on a server at a URL, to that on its machine.
    pub(crate) fn apply(&self, request: ApplyBundle) -> Result<AppliedBundle, Problem> {
        match self.holder(&request.id) {
            Holder::Files(files) => {
                let details = vec![
                    ("id", request.id.as_str().into()),
                    ("paths", request.paths.iter().map(text::path).collect::<Vec<_>>().into()),
                    ("allowExecuted", request.allow_executed.into()),
                ];
                Recording::around(files.data(), "apply", false, details, || {
                    let mut progress = Progress::new();
                    let applied = files.apply_at_once(&request, &mut |step| progress.observe(step));
                    progress.finish();
                    applied
                })
            }
            Holder::Elsewhere(_, url) if request.project.is_some() => {
                let message = "`--project` is a directory of this machine";
                Err(Problem::new(Code::InvalidInput, message)
                    .because(format!("the bundle {} is of a project on {url}", request.id))
                    .remedied_by("omit --project, or copy the files with `stockade cp ID:PATH .`"))
            }
            Holder::Local(server) | Holder::Elsewhere(server, _) => server.call(async |remote| {
                remote.sandboxes.apply_bundle(&remote.idempotent(), request).await
            }),
        }
    }

    /// Deletes a bundle.
    pub(crate) fn reject(&self, request: RejectBundle) -> Result<RejectedBundle, Problem> {
        match self.holder(&request.id) {
            Holder::Files(files) => {
                let details = vec![("id", request.id.as_str().into())];
                Recording::around(files.data(), "reject", true, details, || {
                    files.reject_at_once(&request.id)
                })
            }
            Holder::Local(server) | Holder::Elsewhere(server, _) => server.call(async |remote| {
                remote.sandboxes.reject_bundle(&remote.idempotent(), request).await
            }),
        }
    }
}

/// The bundles of a server.
fn list_of(server: &Connection, request: ListBundles) -> Result<BundleList, Problem> {
    server.call(async |remote| remote.sandboxes.bundles(remote.caller(), request).await)
}

/// Reports bundles that were deleted because they waited too long.
fn report_expired(expired: &[Bundle]) {
    for expired in expired {
        let days = stockade_review::MAX_AGE.as_secs() / (24 * 60 * 60);
        let shown = text::bundle(expired);
        eprint_line!("stockade: deleted after {days} days without a decision: {shown}");
    }
}

/// The project that contains the current directory.
pub(crate) fn current_project() -> Result<CurrentProject, Problem> {
    let current = std::env::current_dir().map_err(|error| {
        Problem::new(Code::Io, "cannot determine the current directory").because(error.to_string())
    })?;
    Ok(CurrentProject::of(&current))
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

/// The project in a directory, or in the current one, for a change of its files.
pub(crate) fn project_at(directory: Option<&Path>) -> Result<Project, Problem> {
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
    Files(Box<Differences>),
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

/// A path from the command line, for a server with another working directory.
pub(crate) fn absolute(path: &Path) -> Result<Bytes, Problem> {
    let path = std::path::absolute(path);
    let path = path.map_err(|error| caused(Code::ProjectRefused, &error))?;
    Ok(Bytes(path.as_os_str().as_bytes().to_vec()))
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
