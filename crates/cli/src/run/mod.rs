//! `stockade run`, from the arguments to the command's end: one process with a single thread,
//! no daemon.

mod ending;
mod environment;
mod hidden;
mod kept;
mod launch;
mod limits;
mod missing_program;
mod network;
mod probe;
mod report;
mod ssh_agent;

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;
use stockade_audit::redact;
use stockade_bundle::data::DataDir;
use stockade_bundle::project::Project;
use stockade_bundle::view;
use stockade_core::access::Rules;
use stockade_core::caller::outside_user;
use stockade_core::ending::Step;
use stockade_core::network::Policy;
use stockade_core::sandbox::{HostMount, Root, Workspace};
use stockade_core::{BundleLimits, Code, Ending, Problem, SandboxSpec};
use stockade_jail::{Captured, Identity, Signals};
use stockade_plan::HostPaths;

pub(crate) use ending::{Conclusion, conclude};
pub use limits::wall_problem;
pub(crate) use limits::wall_remedy;
pub(crate) use probe::{ProbeError, probe};
pub(crate) use report::Report;
pub(crate) use ssh_agent::Signatures;

use crate::args::sandbox_flags::Network as NetworkFlag;
use crate::args::{Run, View};
use crate::audit::Recording;
use crate::base;
use crate::data_dir::{data_path, open_data_dir};
use crate::devcontainer::DevContainer;
use crate::egress::{Egress, RunningEgress};
use crate::images;
use crate::learned_policy;
use crate::many_ids;
use crate::problem::caused;
use crate::profile;
use crate::registry;
use crate::request::{SandboxRequest, no_limit, refuse_own_loopback};

/// The signal for a file in memory that has no room left.
const SIGBUS: i32 = 7;

/// Runs the command, and stores, applies or discards its changes.
pub(crate) fn run(arguments: &Run) -> Result<Report, Problem> {
    let mut recording = None;
    let done = run_recorded(arguments, &mut recording);
    match (recording, &done) {
        (Some(recording), Ok(report)) => recording.end(report.audit_details(), None),
        (Some(recording), Err(problem)) => recording.end(Vec::new(), Some(problem)),
        (None, Err(problem)) => Recording::refused("run", command_detail(arguments), problem),
        (None, Ok(_)) => {}
    }
    done
}

fn run_recorded(arguments: &Run, recording: &mut Option<Recording>) -> Result<Report, Problem> {
    let start_time = Instant::now();
    let started = view::coarse_now();
    let signals = Signals::block().map_err(|e| caused(Code::LaunchFailed, &e))?;
    let current = std::env::current_dir().map_err(|e| {
        Problem::new(Code::Io, "cannot determine the current directory").because(e.to_string())
    })?;
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let project = self::project(arguments, &current, home.as_deref())?;
    let data = data_of(&project)?;
    let chosen = profile::choose(arguments.sandbox.profile.as_deref(), Some(&project), &data)?;
    let container = arguments.sandbox.devcontainer.as_deref();
    let container =
        container.map(|name| DevContainer::trusted(&project, name, &data)).transpose()?;
    let mut arguments = Cow::Borrowed(arguments);
    if let Some(profile) = &chosen.profile {
        let inside = container.as_ref().map_or(&project.root, |container| &container.inside);
        profile.apply_to_run(arguments.to_mut(), inside)?;
        if !arguments.json {
            eprint_line!("stockade: {}", profile.line());
        }
    }
    if let Some(container) = &container {
        container.apply_to_run(arguments.to_mut(), &project)?;
    }
    let arguments = arguments.as_ref();
    *recording = Some(Recording::start(&data, "run", false, audit_details(&project, arguments))?);
    let missing_ids = many_ids::enter_for(&arguments.sandbox, &current)?;
    let project = match outside_user() {
        // Its owner has another id in the namespace.
        Some(_) => Project::open(&project.root, home.as_deref()).map_err(project_problem)?,
        None => project,
    };
    let kept = kept::IgnoredStore::open(arguments, &project, &data)?;
    let identity = identity()?;
    registry::ensure_root(&data, &arguments.sandbox, &current, arguments.json)?;
    let requested = request(arguments, &project, &current, &data)?;
    let one_id = matches!(identity, Identity::Own { .. });
    let (requested, image) = images::complete(requested, &data, one_id.then_some(&missing_ids))?;
    let start = image.as_ref().map(|image| &image.start);
    let signals = match start {
        Some(start) => signals.stopping_with(start.stop_signal),
        None => signals,
    };
    let command = images::command(start, arguments.entrypoint.as_deref(), &arguments.command)?;
    let spec = &requested;
    let learned = network::learned_file(arguments)?;
    // Before anything else is started: the first time this takes long.
    let base = base::of_run(spec, &data)?;
    let secrets = network::secrets(arguments, spec)?;
    let agent = ssh_agent::read(arguments)?;
    // The egress process starts in parallel with the jail.
    let upstream = network::upstream(arguments, spec)?;
    let reads_requests = spec.network.as_ref().is_some_and(Policy::has_request_rules);
    let start = |policy| Egress::start(policy, upstream, learned.is_some());
    let mut egress = spec.network.clone().map(start).transpose()?;
    let bound: Vec<_> = secrets.iter().map(|secret| secret.binding.clone()).collect();
    let (authorities, unreadable) = match &mut egress {
        Some(egress) => network::authorities(egress, secrets, reads_requests)?,
        None => (None, Vec::new()),
    };
    let wanted = launch::LaunchSpec {
        project: &project,
        spec,
        command: &command,
        base: base.as_ref(),
        image: image.as_ref().map(|image| &image.image),
        tty: arguments.tty,
        copied: arguments.view == View::Copy,
        kept: kept.as_ref(),
        secrets: &bound,
        authorities: authorities.as_deref(),
        has_ssh_agent: agent.is_some(),
    };
    let mut launched =
        launch::launch(&wanted, limits::own_limits(arguments), &data, identity, started, None)?;
    let egress = launched.serve(egress)?;
    let agent = match (agent, launched.ssh_agent.take()) {
        (Some(agent), Some(listener)) => Some(agent.serve(listener)?),
        _ => None,
    };
    let ended = launch::supervise((arguments, &project), launched, signals, &data)?;
    let signatures = agent.map(|mut agent| {
        agent.end();
        Signatures::of(agent.records())
    });
    let reported = egress.map(RunningEgress::end);
    let (conclusion, more_notes) = ending::conclude(
        arguments,
        &data,
        &project,
        &spec.access,
        (ended.view, ended.ownership, kept.as_ref()),
        (&ended.ending, &ended.baseline),
    )?;
    let mut notes = chosen.notes;
    notes.extend(image.iter().flat_map(|image| image.notes.iter().cloned()));
    notes.extend(more_notes);
    notes.extend(unreadable);
    let shown = hidden::Shown::new(spec, home.as_deref());
    notes.extend(shown.note(&arguments.command, &ended.ending));
    let policy = spec.network.clone();
    if let (Some(path), Some((traffic, _))) = (&learned, &reported) {
        let wider = learned_policy::write(path, &traffic.opened, &bound)?;
        notes.push(format!(
            "the policy that the command would have needed is in {}",
            path.display()
        ));
        notes.extend(wider);
        if traffic.refusals.lost() > 0 {
            notes.push("it may lack hosts and requests: there were too many at once".to_owned());
        }
    }
    let network = policy.zip(reported).map(|(policy, (traffic, ended_early))| {
        notes.extend(ended_early);
        (policy, bound, traffic.refusals)
    });
    Ok(Report {
        hint: hint(arguments, &ended.ending, &project, home.as_deref())
            .or_else(|| shown.hint(&arguments.command, &ended.ending))
            .or_else(|| ending_hint(arguments, &ended.ending))
            .or_else(|| socket_hint(spec, one_id, &ended.ending)),
        exit_code: ended.ending.process_exit_code(),
        ending: ended.ending,
        output: ended.output,
        error: ended.error,
        write_error: ended.write_error,
        conclusion,
        image: image.map(|image| image.image),
        profile: chosen.profile.map(|profile| profile.to_json()),
        notes,
        isolation: ended.isolation,
        network,
        wanted: ended.wanted,
        memory_peak_bytes: ended.memory_peak_bytes,
        out_of_memory_kills: ended.out_of_memory_kills,
        refused_calls: ended.refused_calls,
        signatures,
        _teardown: ended.teardown,
        duration: start_time.elapsed(),
    })
}

/// The project of a run.
pub(crate) fn project(
    arguments: &Run,
    current: &Path,
    home: Option<&Path>,
) -> Result<Project, Problem> {
    let start = arguments.start.as_deref().unwrap_or(current);
    let project = Project::find(start, home).map_err(project_problem)?;
    if let (Some(own), Some(_)) = (&arguments.start, &arguments.inside)
        && project.root != *own
    {
        // Another user may have made a directory above it a project.
        let message = format!("the directory {} is part of a project", own.display());
        return Err(Problem::new(Code::ProjectRefused, message)
            .because(format!("{} has a .git", project.root.display()))
            .remedied_by("export TMPDIR=$HOME"));
    }
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let caller = rustix::process::geteuid().as_raw();
    if let Some(listed) = passwd_home(&passwd, caller)
        && Some(listed.as_path()) != home
    {
        project.refuse_home(&listed).map_err(project_problem)?;
    }
    Ok(project)
}

/// The data directory for a run in a project. What killed commands started is completed first.
pub(crate) fn data_of(project: &Project) -> Result<DataDir, Problem> {
    let data = open_data()?;
    refuse_own_data(project, &data)?;
    crate::review::recover(&data)?;
    Ok(data)
}

/// The limits of the bundle of a run.
pub(crate) fn bundle_limits(arguments: &Run) -> BundleLimits {
    stockade_review::limits(arguments.max_bundle.map(no_limit), arguments.max_paths)
}

/// What an audit record says about a run.
pub(crate) fn audit_details(project: &Project, arguments: &Run) -> Vec<(&'static str, Value)> {
    let text = |list: &[OsString]| {
        list.iter().map(|item| item.to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let secrets = arguments.secrets.secret.iter().map(ToString::to_string);
    let hosts = arguments.sandbox.allow.iter().map(ToString::to_string);
    let lists: [(_, Vec<String>); 3] = [
        ("allow", hosts.collect()),
        ("secrets", secrets.collect()),
        ("mounts", text(&arguments.sandbox.mount)),
    ];
    let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
    let mut details = command_detail(arguments);
    details.push(("project", project.root.to_string_lossy().into()));
    details.extend(lists.map(|(name, list)| (name, Value::from(list))));
    details
}

fn command_detail(arguments: &Run) -> Vec<(&'static str, Value)> {
    let words: Vec<_> = arguments.command.iter().map(|word| word.to_string_lossy()).collect();
    vec![("command", redact::command(words.iter().map(AsRef::as_ref)).into())]
}

/// The request of a run: an ordinary sandbox, with the project as its workspace.
pub(crate) fn request(
    arguments: &Run,
    project: &Project,
    current: &Path,
    data: &DataDir,
) -> Result<SandboxSpec, Problem> {
    let inside = arguments.inside.clone().unwrap_or_else(|| project.root.clone());
    let workspace = Workspace { host: project.root.clone(), inside };
    let mut requested =
        SandboxRequest::read(&arguments.sandbox, Some(&workspace), Some(&project.root), current)?;
    if let (Some(NetworkFlag::Learn), Some(network)) =
        (arguments.sandbox.net, &mut requested.network)
    {
        // A secret is bound only to a host that a rule names, and none can be named beside `learn`.
        network.allow.extend(arguments.secrets.secret.iter().map(|secret| secret.host.clone()));
    }
    let owner = many_ids::owner();
    refuse_own_loopback(&arguments.sandbox.allow)?;
    let root = match requested.root {
        Root::Directory(path) => Root::Directory(
            stockade_plan::image::directory(&path, data.path())
                .map_err(|error| image_problem(&error))?,
        ),
        other => other,
    };
    images::refuse_ambiguous(arguments.sandbox.image.as_deref(), &root, data)?;
    let access = Rules::from_values(requested.access_rules).map_err(|error| {
        Problem::new(Code::RuleInvalid, format!("access rule {} is invalid", error.index))
            .because(error.reason)
    })?;
    Ok(SandboxSpec {
        root,
        private_base: requested.private_base,
        remote_workspace: None,
        server: None,
        workspace: Some(workspace),
        mounts: requested.mounts,
        exact_paths: false,
        volumes: requested.volumes.iter().map(|volume| volume.of(&owner)).collect(),
        caches: requested.caches.iter().map(|cache| cache.of(&owner)).collect(),
        environment: requested.environment,
        user: requested.user,
        groups: Vec::new(),
        sudo: false,
        working_directory: requested.working_directory,
        limits: requested.limits,
        best_effort: requested.best_effort,
        access,
        network: requested.network.map(|network| network.policy()).transpose()?,
        // The agent of a run is served by this process.
        ssh_agent: false,
        labels: requested.labels,
        lease: None,
    })
}

fn image_problem(error: &stockade_plan::image::Error) -> Problem {
    use stockade_plan::image::Error;
    match error {
        Error::HostPath(refused) => limits::plan_problem(refused),
        Error::Write { .. } => caused(Code::Io, error),
        _ => caused(Code::InvalidInput, error),
    }
}

/// The identity of a jail for this caller.
pub(crate) fn identity() -> Result<Identity, Problem> {
    Identity::for_caller().map_err(|error| match &error {
        stockade_jail::identity::Error::HostRoot(_) => caused(Code::WallUnavailable, &error)
            .remedied_by("leave this user namespace, or enter it as a user other than root"),
        _ => caused(Code::LaunchFailed, &error),
    })
}

fn open_data() -> Result<DataDir, Problem> {
    open_data_dir(&data_path()?)
}

/// Refuses a project that contains the data directory, or lies in it.
fn refuse_own_data(project: &Project, data: &DataDir) -> Result<(), Problem> {
    let shown = HostPaths::new(data.path()).and_then(|paths| paths.open(&project.root));
    match shown {
        Ok(_) => Ok(()),
        Err(stockade_plan::Error::OwnData(_)) => Err(Problem::new(
            Code::ProjectRefused,
            format!(
                "of the data directory {} and the project {}, one contains the other",
                data.path().display(),
                project.root.display()
            ),
        )
        .remedied_by("set STOCKADE_DATA_DIR to a directory outside the project")),
        Err(other) => Err(limits::plan_problem(&other)),
    }
}

fn project_problem(error: stockade_bundle::project::Error) -> Problem {
    let problem = caused(Code::ProjectRefused, &error);
    match error.hint() {
        Some(hint) => problem.remedied_by(hint),
        None => problem,
    }
}

/// What the user can do about a command that was not found.
fn hint(
    arguments: &Run,
    ending: &Ending,
    project: &Project,
    home: Option<&Path>,
) -> Option<String> {
    let Ending::NotRun { step: Step::RunProgram, .. } = ending else { return None };
    let name = arguments.command.first()?;
    let path = missing_program::search_path();
    missing_program::hint(
        name,
        &missing_program::Host { path: &path, home, project: &project.root },
    )
}

/// What the user can do about a command that ended for a reason that its sandbox has.
fn ending_hint(arguments: &Run, ending: &Ending) -> Option<String> {
    let words: Vec<_> = arguments.command.iter().take(2).map(|word| word.as_os_str()).collect();
    if *ending == Ending::Exited(0) {
        return None;
    }
    match words.first().and_then(|word| word.to_str()) {
        Some("setarch") => {
            return Some("a sandbox keeps the randomization of addresses; omit setarch".to_owned());
        }
        Some("chrt") => {
            return Some("a sandbox has no real-time scheduling; omit chrt".to_owned());
        }
        _ => {}
    }
    matches!(ending, Ending::Signaled(SIGBUS)).then(|| {
        "the command ended with SIGBUS; if it uses /dev/shm, choose a larger --shm, such as --shm 1G"
            .to_owned()
    })
}

/// What root can do about a program behind a mounted socket that checks who connects: a sandbox of root
/// has users of its own on the host.
fn socket_hint(spec: &SandboxSpec, one_id: bool, ending: &Ending) -> Option<String> {
    if one_id || *ending == Ending::Exited(0) {
        return None;
    }
    let is_socket = |mount: &&HostMount| {
        std::fs::metadata(&mount.host).is_ok_and(|found| found.file_type().is_socket())
    };
    let socket = spec.mounts.iter().find(is_socket)?.host.display();
    Some(format!(
        "what listens at {socket} sees a user of the sandbox's own, not root; an ssh-agent refuses that; \
         run this as the user of the agent, or relay it: socat UNIX-LISTEN:{socket}.relay,fork,mode=666 \
         UNIX-CONNECT:{socket}, and mount {socket}.relay"
    ))
}

/// The home directory that `passwd(5)` lists for a user id.
fn passwd_home(passwd: &str, user: u32) -> Option<PathBuf> {
    passwd.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        let is_it = fields.get(2)?.parse() == Ok(user);
        is_it.then(|| fields.get(5).map(PathBuf::from))?
    })
}

/// The captured output, as text.
pub(crate) fn lossy(captured: &Captured) -> String {
    String::from_utf8_lossy(&captured.bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_listed_for_its_user() {
        let passwd =
            "root:x:0:0:root:/root:/bin/bash\nann:x:1000:1000:,,,:/home/ann:/bin/sh\nbad\n";
        assert_eq!(passwd_home(passwd, 1000), Some("/home/ann".into()));
        assert_eq!(passwd_home(passwd, 7), None);
    }
}
