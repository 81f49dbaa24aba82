//! Creating the view, launching the jail on it, and supervising the command until it has ended.
//! If overlays are not available, a plain copy is used instead, and the report says so.

use std::ffi::{CString, OsString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stockade_bundle::baseline::Baseline;
use stockade_bundle::beneath::Timestamp;
use stockade_bundle::data::DataDir;
use stockade_bundle::manifest::ViewKind;
use stockade_bundle::project::{Git, Project};
use stockade_bundle::view::{self, HardLinks, Ownership, View, ViewPurpose};
use stockade_core::network::WantedHosts;
use stockade_core::network::binding::Binding;
use stockade_core::sandbox::{SSH_AGENT, SSH_AGENT_VARIABLE};
use stockade_core::{Code, Ending, Isolation, LimitReport, Problem, SandboxSpec};
use stockade_image::Image;
use stockade_jail::{
    self as jail, Captured, Identity, Jail, JailSpec, Payload, Signals, Sink, Streams, Supervision,
    Teardown, Wall,
};
use stockade_plan::limits::{Disk, EnforcedLimits, Groups, WatchedLimits, enforce};
use stockade_plan::private_base::Base;
use stockade_plan::{
    self as plan, AuthorityFiles, HostPaths, JailStatus, OneShotInput, Users,
    owners::{self, Survey},
};

use super::kept::IgnoredStore;
use super::network::placeholders;
use super::{environment, limits, ssh_agent};
use crate::args::Run;
use crate::egress::{Egress, RunningEgress};
use crate::network_stub::NetworkStub;
use crate::problem::caused;
use crate::terminal::{self, RawMode};

/// Why there is no overlay where none was wanted.
const COPY_REQUESTED: &str = "--view copy was given";
/// How long a command may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(10);
/// How many bytes of each stream, from its end, a JSON report contains; as for `exec`.
const CAPTURE_BYTES: usize = 1 << 20;

/// A running jail and its view.
#[derive(Debug)]
pub(super) struct RunningJail {
    pub(super) jail: Jail,
    pub(super) view: View,
    pub(super) isolation: Isolation,
    /// The socket of its ssh agent.
    pub(super) ssh_agent: Option<UnixListener>,
    /// The ids of the host that the files in the view have.
    ownership: Option<Ownership>,
    /// The limits that are watched.
    watched: WatchedLimits,
}

/// What remains when the command has ended.
#[derive(Debug)]
pub(super) struct Finished {
    /// What the project had at the start.
    pub(super) baseline: Baseline,
    pub(super) ending: Ending,
    pub(super) output: Captured,
    pub(super) error: Captured,
    /// Why not all of the command's output could be written.
    pub(super) write_error: Option<std::io::Error>,
    pub(super) memory_peak_bytes: Option<u64>,
    pub(super) out_of_memory_kills: u64,
    /// The names of the system calls that its programs made and that were refused.
    pub(super) refused_calls: Vec<&'static str>,
    pub(super) teardown: Teardown,
    pub(super) view: View,
    pub(super) ownership: Option<Ownership>,
    pub(super) isolation: Isolation,
    /// The hosts that were asked for without network access.
    pub(super) wanted: WantedHosts,
}

impl RunningJail {
    /// Passes the jail's listeners to the egress process, if there is one.
    pub(super) fn serve(
        &mut self,
        egress: Option<Egress>,
    ) -> Result<Option<RunningEgress>, Problem> {
        match (egress, self.jail.listeners.take()) {
            (Some(egress), Some(listeners)) => egress.serve(&listeners).map(Some),
            _ => Ok(None),
        }
    }
}

/// What to launch.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaunchSpec<'a> {
    pub(super) project: &'a Project,
    /// The request, with the project as its workspace.
    pub(super) spec: &'a SandboxSpec,
    pub(super) command: &'a [OsString],
    /// The image of the store that is its root, if one is.
    pub(super) image: Option<&'a Image>,
    /// The copy of the system directories, if the request wants one.
    pub(super) base: Option<&'a Base>,
    /// Whether the command has a terminal.
    pub(super) tty: bool,
    /// Whether the project is copied instead of shown through an overlay.
    pub(super) copied: bool,
    /// What earlier runs have kept, if this one uses it.
    pub(super) kept: Option<&'a IgnoredStore>,
    /// The secrets that the egress proxy inserts into requests.
    pub(super) secrets: &'a [Binding],
    /// The certificates (PEM) that programs must trust, if they differ from the system's.
    pub(super) authorities: Option<&'a str>,
    /// Whether it has an ssh agent.
    pub(super) has_ssh_agent: bool,
}

/// Creates a view and launches the jail on it. `reports` are the limits that are enforced
/// elsewhere.
pub(super) fn launch(
    wanted: &LaunchSpec<'_>,
    reports: Vec<LimitReport>,
    data: &DataDir,
    identity: Identity,
    started: Timestamp,
    payload: Option<Payload>,
) -> Result<RunningJail, LaunchError> {
    let function = match &payload {
        Some(Payload::Function(function)) => Some(*function),
        _ => None,
    };
    let again = || function.map(Payload::Function);
    let first = match wanted.copied {
        true => Err(AttemptError::NoOverlay(COPY_REQUESTED.to_owned())),
        false => match survey(&identity, wanted.project) {
            Survey { unrepresentable: Some(path), .. } => {
                Err(AttemptError::NoOverlay(owners::reason(&path, &identity)))
            }
            Survey { hard_links, .. } => {
                attempt(wanted, data, identity, started, (Some(hard_links), payload))
            }
        },
    };
    match first {
        Err(AttemptError::NoOverlay(reason)) => {
            if wanted.spec.limits.disk_bytes.is_some() {
                return Err(Problem::new(
                    Code::LimitUnavailable,
                    "--disk needs an overlay, which this host cannot mount here",
                )
                .because(reason)
                .remedied_by("omit --disk: the project is then copied")
                .into());
            }
            if wanted.kept.is_some() {
                return Err(Problem::new(
                    Code::WallUnavailable,
                    "--keep-ignored needs an overlay, which this host cannot mount here",
                )
                .because(reason)
                .remedied_by("omit --keep-ignored: the project is then copied")
                .into());
            }
            let identity = super::identity()?;
            let mut launched = attempt(wanted, data, identity, started, (None, again()))
                .map_err(AttemptError::into_launch_error)?;
            launched.isolation.limits.extend(reports);
            if wanted.copied {
                return Ok(launched);
            }
            launched
                .isolation
                .reasons
                .push(format!("the project was copied, because no overlay is available: {reason}"));
            Ok(launched)
        }
        other => {
            let mut launched = other.map_err(AttemptError::into_launch_error)?;
            launched.isolation.limits.extend(reports);
            Ok(launched)
        }
    }
}

/// What is particular about the files of a project and its git directory.
fn survey(identity: &Identity, project: &Project) -> Survey {
    let own = owners::survey(identity, &project.root, owners::ENTRIES_OF_A_RUN);
    match &project.git {
        Git::Worktree { common_dir, .. } if own.unrepresentable.is_none() => {
            let outside = owners::survey(identity, common_dir, owners::ENTRIES_OF_A_RUN);
            Survey { unrepresentable: outside.unrepresentable, ..own }
        }
        _ => own,
    }
}

/// Why there is no jail.
#[derive(Debug)]
pub(super) struct LaunchError {
    /// The wall that is unavailable, if that is the reason.
    pub(super) wall: Option<Wall>,
    /// The problem.
    pub(super) problem: Problem,
}

impl From<Problem> for LaunchError {
    fn from(problem: Problem) -> Self {
        Self { wall: None, problem }
    }
}

impl From<LaunchError> for Problem {
    fn from(refused: LaunchError) -> Self {
        refused.problem
    }
}

enum AttemptError {
    /// Overlays are not available here, for this reason.
    NoOverlay(String),
    Failed(LaunchError),
}

impl AttemptError {
    fn into_launch_error(self) -> LaunchError {
        match self {
            Self::Failed(refused) => refused,
            Self::NoOverlay(reason) => LaunchError {
                wall: Some(Wall::View),
                problem: Problem::new(Code::WallUnavailable, "the wall `view` is not available")
                    .because(reason),
            },
        }
    }
}

impl From<Problem> for AttemptError {
    fn from(problem: Problem) -> Self {
        Self::Failed(problem.into())
    }
}

fn attempt(
    wanted: &LaunchSpec<'_>,
    data: &DataDir,
    identity: Identity,
    started: Timestamp,
    // What an overlay has from the start; a copy has everything.
    (overlay, payload): (Option<HardLinks>, Option<Payload>),
) -> Result<RunningJail, AttemptError> {
    let kind = if overlay.is_some() { ViewKind::Overlay } else { ViewKind::Copy };
    let spec = wanted.spec;
    let refused = |error: plan::Error| AttemptError::from(limits::plan_problem(&error));
    let paths = || HostPaths::new(data.path());
    let mut request =
        plan::Request::check(spec, &spec.root, Users::for_identity(&identity), &paths)
            .map_err(refused)?;
    // A payload is a test of the walls, which asks for nothing.
    if payload.is_none() {
        request.add_stub();
    }
    let EnforcedLimits { group, reports } =
        enforce(Groups::Own, spec, Disk::Memory).map_err(refused)?;
    let watched = WatchedLimits::new(spec, &reports);
    let ownership =
        identity.range().map(|range| Ownership { host_start: range.start, count: range.count });
    let words: Vec<_> =
        wanted.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let image = wanted.image.map(|image| image.digest.to_string());
    let about = ViewPurpose { command: words, labels: spec.labels.clone(), image };
    let mut view = View::create(data, wanted.project, kind, ownership, about, started)
        .map_err(|e| view_problem(&e))?;
    // A layer in memory is made by the jail.
    if let Some(links) = overlay.filter(|_| spec.limits.disk_bytes.is_none())
        && let Err(problem) = place(wanted, links, &mut view, ownership)
    {
        // Nothing has run in it.
        let _ = view.remove();
        return Err(problem.into());
    }
    let path = data.path().join("views").join(view.id());
    let shown = match (kind, spec.limits.disk_bytes) {
        (ViewKind::Overlay, None) => plan::View::Overlay(path.clone()),
        (ViewKind::Overlay, Some(size_bytes)) => plan::View::InMemory(size_bytes),
        (ViewKind::Copy, _) => plan::View::Copy(path.join("copy")),
    };
    let authorities = wanted.authorities.map(|text| AuthorityFiles { text, directory: &path });
    let agent = wanted.has_ssh_agent.then(|| ssh_agent::socket(&path)).transpose()?;
    let launched =
        jail_spec(wanted, request, identity, (&shown, &view, authorities), payload, data)
            .map_err(AttemptError::from)
            .and_then(|mut jail_spec| {
                jail_spec.cgroup = (spec.limits.memory_bytes.or(spec.limits.cpu_millis))
                    .is_some()
                    .then_some(group);
                jail::launch(jail_spec).map_err(|e| self::launch_error(&e, wanted.project))
            });
    if let Some(authorities) = authorities {
        authorities.remove();
    }
    if agent.is_some() {
        ssh_agent::remove_socket(&path);
    }
    match launched {
        Ok(jail) => {
            let standing = JailStatus {
                landlock: jail.landlock,
                proc_missing: jail.proc_missing,
                has_network: jail.listeners.is_some(),
                has_access_rules: !spec.access.is_empty(),
            };
            let isolation = plan::isolation(standing, reports);
            Ok(RunningJail { jail, view, isolation, ownership, ssh_agent: agent, watched })
        }
        Err(failure) => {
            // Nothing has run in the view, so no changes are lost.
            let _ = view.remove();
            Err(failure)
        }
    }
}

/// Puts into the layer of a view what it has from the start.
fn place(
    wanted: &LaunchSpec<'_>,
    mut links: HardLinks,
    view: &mut View,
    ownership: Option<Ownership>,
) -> Result<(), Problem> {
    let project = wanted.project;
    if let Some(kept) = wanted.kept {
        links.exclude(&kept.place(view, project, ownership)?);
    }
    view.place_hard_links(&links, project, ownership, owners::HARD_LINKS_OF_A_RUN)
        .map_err(|error| view_problem(&error))
}

fn jail_spec(
    wanted: &LaunchSpec<'_>,
    request: plan::Request,
    identity: Identity,
    (shown, view, authorities): (&plan::View, &View, Option<AuthorityFiles<'_>>),
    payload: Option<Payload>,
    data: &DataDir,
) -> Result<JailSpec, Problem> {
    let text = |bytes: &[u8], what: &str| {
        CString::new(bytes)
            .map_err(|_| Problem::new(Code::InvalidInput, format!("{what} contains a NUL byte")))
    };
    let payload = match payload {
        Some(payload) => payload,
        None => Payload::Program(
            wanted
                .command
                .iter()
                .map(|word| text(word.as_bytes(), "an argument"))
                .collect::<Result<_, _>>()?,
        ),
    };
    let placeholders: Vec<_> = placeholders(wanted.secrets).collect();
    let mut variables = request.one_shot_variables(wanted.authorities.is_some());
    let path = data.path().join("views").join(view.id());
    let agent = wanted.has_ssh_agent.then(|| ssh_agent::path(&path));
    if agent.is_some() {
        variables.push((SSH_AGENT_VARIABLE, SSH_AGENT.to_owned()));
    }
    let environment = environment::build(
        std::env::vars_os(),
        &variables,
        &placeholders,
        wanted.spec,
        request.own(),
    )?;
    let directory = wanted.spec.working_directory.as_deref().unwrap_or_else(|| Path::new("/"));
    let seen = view.record().started;
    data.etc().map_err(|error| caused(Code::Io, &error))?;
    let etc = data.path().join("etc");
    let once = OneShotInput {
        etc: &etc,
        base: wanted.base,
        git: wanted.project.git_configuration(),
        identity,
        view: shown,
        payload,
        environment,
        working_directory: text(directory.as_os_str().as_bytes(), "the directory")?,
        streams: match wanted.tty {
            true => Streams::Terminal(terminal::window_size()),
            false => Streams::Pipes,
        },
        umask: umask(),
        not_before: Some((seen.seconds, seen.nanoseconds)),
        authorities,
        ssh_agent: agent.as_deref(),
        group: None,
        lock: view.lock().try_clone_to_owned().map_err(|e| caused(Code::Io, &e))?,
    };
    request.one_shot_jail(once).map_err(|error| limits::plan_problem(&error))
}

/// The permission bits that new files of this process do not get. Reading them sets them, which
/// affects no other thread: there is none.
fn umask() -> u32 {
    let own = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    rustix::process::umask(own);
    own.as_raw_mode()
}

fn view_problem(error: &view::Error) -> Problem {
    caused(Code::Io, error)
}

/// Distinguishes a jail that cannot have an overlay from one that cannot be created at all.
fn launch_error(error: &jail::Error, project: &Project) -> AttemptError {
    let problem = caused(Code::LaunchFailed, error);
    let reason = || {
        let cause = problem.cause.clone().unwrap_or_default();
        format!("{}: {cause}", problem.message)
    };
    match error {
        jail::Error::MapOwners { path, .. } if *path == project.root => {
            AttemptError::NoOverlay(reason())
        }
        jail::Error::Wall { wall: Wall::View, .. } => AttemptError::NoOverlay(reason()),
        jail::Error::Wall { wall, step, source } => {
            let problem = limits::wall_problem(*wall, step, source);
            AttemptError::Failed(LaunchError { wall: Some(*wall), problem })
        }
        jail::Error::Namespaces(source) => {
            let problem = limits::wall_problem(Wall::User, "create namespaces", source);
            AttemptError::Failed(LaunchError { wall: Some(Wall::User), problem })
        }
        jail::Error::OutOfMemory => limits::memory_too_small(error).into(),
        _ => problem.into(),
    }
}

/// Relays the command's streams until it has ended.
pub(super) fn supervise(
    (arguments, project): (&Run, &Project),
    launched: RunningJail,
    signals: Signals,
    data: &DataDir,
) -> Result<Finished, Problem> {
    let RunningJail { mut jail, mut view, isolation, ownership, watched, .. } = launched;
    let stub = NetworkStub::default();
    // The command has just been started, so removing old directories does not delay it.
    jail.close_with_mounts(view.tidy());
    let io = |e: std::io::Error| {
        Problem::new(Code::Io, "cannot use the standard streams").because(e.to_string())
    };
    let raw = if arguments.tty { RawMode::enter().map_err(io)? } else { None };
    let own = |descriptor: std::os::fd::BorrowedFd<'_>| -> Result<OwnedFd, Problem> {
        descriptor.try_clone_to_owned().map_err(io)
    };
    let (output, error) = if arguments.json {
        (Sink::Capture(CAPTURE_BYTES), Sink::Capture(CAPTURE_BYTES))
    } else {
        (
            Sink::Descriptor(own(std::io::stdout().as_fd())?),
            Sink::Descriptor(own(std::io::stderr().as_fd())?),
        )
    };
    if let Some(upper) = &jail.upper {
        view.replace_upper(own(upper.as_fd())?);
    }
    let supervision = Supervision {
        input: Some(own(std::io::stdin().as_fd())?),
        output,
        error,
        timeout: arguments.timeout.and_then(|limit| limit.0),
        output_limit_bytes: arguments.sandbox.max_output.and_then(|limit| limit.0),
        grace: GRACE,
        after_input: arguments.after_input,
        terminal: raw.as_ref().map(RawMode::descriptor).transpose().map_err(io)?,
        watches: limits::watches(arguments, watched, &jail, data),
        first_request: jail.stub.take().map(|listeners| stub.start_at(listeners)),
    };
    let (is_over, started) = (AtomicBool::new(false), view.record().started);
    let (outcome, baseline) = std::thread::scope(|scope| {
        // The command has just been started.
        let baseline = scope.spawn(|| Baseline::read(project, started, &is_over));
        let outcome = jail::supervise(jail, supervision, signals);
        is_over.store(true, Ordering::Relaxed);
        (outcome, baseline.join().unwrap_or_default())
    });
    drop(raw);
    match outcome {
        Ok(outcome) => Ok(Finished {
            ending: plan::ending::of_jail(outcome.ending),
            output: outcome.output,
            error: outcome.error,
            write_error: outcome.unwritten,
            memory_peak_bytes: outcome.memory_peak_bytes,
            out_of_memory_kills: outcome.out_of_memory_kills,
            refused_calls: outcome.refused_calls.names(),
            teardown: outcome.teardown,
            view,
            ownership,
            baseline,
            isolation,
            wanted: stub.end(),
        }),
        Err(error) => {
            let problem = match &error {
                jail::Error::Wall { wall, step, source } => {
                    // The command has not run, so its view contains nothing.
                    let _ = view.remove();
                    limits::wall_problem(*wall, step, source)
                }
                _ => caused(Code::LaunchFailed, &error),
            };
            Err(problem)
        }
    }
}
