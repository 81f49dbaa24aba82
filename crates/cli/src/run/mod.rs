//! `stockade run`, from the arguments to the command's end: one process with a
//! single thread, no daemon.

mod account;
mod ending;
mod environment;
mod image;
mod launch;
mod limits;
mod mounts;
mod network;
mod plan;
mod probe;
mod report;

use std::path::{Path, PathBuf};
use std::time::Instant;

use stockade_bundle::data::DataDir;
use stockade_bundle::project::Project;
use stockade_bundle::view;
use stockade_core::{Code, Problem};
use stockade_jail::{self as jail, Captured, Identity, Signals};

pub(crate) use ending::Conclusion;
pub(crate) use limits::{wall_refused, wall_remedy};
pub(crate) use network::allowed;
pub(crate) use probe::{ProbeRefused, probe};
pub(crate) use report::{Report, outcome};

use crate::args::Run;
use crate::egress::{Egress, Serving};
use crate::problem::caused;

/// Runs the command and decides its changes' fate.
pub(crate) fn run(arguments: &Run) -> Result<Report, Problem> {
    let begun = Instant::now();
    let started = view::coarse_now();
    let signals = Signals::hold().map_err(|e| caused(Code::LaunchFailed, &e))?;
    let current = std::env::current_dir().map_err(|e| {
        Problem::new(Code::Io, "cannot tell the current directory").because(e.to_string())
    })?;
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let project = Project::find(&current, home.as_deref()).map_err(project_refused)?;
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let caller = rustix::process::geteuid().as_raw();
    if let Some((_, listed)) = account::listed(&passwd, caller)
        && Some(&listed) != home.as_ref()
    {
        project.refuse_home(&listed).map_err(project_refused)?;
    }
    let data = open_data(&project)?;
    crate::review::recover(&data)?;
    let image = arguments.image.as_deref().map(|path| image::directory(path, &data)).transpose()?;
    let identity = identity()?;
    let account = account::choose(
        &identity,
        (project.stat.uid, project.stat.gid),
        std::env::var_os("HOME"),
        &passwd,
    );
    let policy = network::policy(arguments)?;
    let secrets = network::secrets(arguments, policy.as_ref())?;
    // It starts beside the jail.
    let mut egress = policy.clone().map(Egress::start).transpose()?;
    let bound: Vec<_> = secrets.iter().map(|secret| secret.binding.clone()).collect();
    let believed = match &mut egress {
        Some(egress) if !secrets.is_empty() => Some(egress.give(secrets)?),
        _ => None,
    };
    let around = plan::Surroundings {
        project: &project,
        data: data.path(),
        current: &current,
        account: &account,
        image: image.as_deref(),
        network: if policy.is_some() { jail::Network::Egress } else { jail::Network::Off },
        secrets: &bound,
        believed: believed.as_deref(),
    };
    let mut launched = launch::launch(arguments, &around, &data, identity, started, None)?;
    let egress = launched.serve(egress)?;
    let ended = launch::supervise(arguments, launched, signals, &data)?;
    let told = egress.map(Serving::end);
    let (conclusion, mut notes) =
        ending::conclude(arguments, &data, &project, ended.view, ended.ending)?;
    let network = policy.zip(told).map(|(policy, (heard, ended_early))| {
        notes.extend(ended_early);
        (policy, bound, heard)
    });
    Ok(Report {
        ending: ended.ending,
        exit_code: ending::exit_code(ended.ending),
        hint: hint(arguments, ended.ending),
        output: ended.output,
        error: ended.error,
        unwritten: ended.unwritten,
        conclusion,
        notes,
        isolation: ended.isolation,
        network,
        memory_peak_bytes: ended.memory_peak_bytes,
        out_of_memory_kills: ended.out_of_memory_kills,
        _teardown: ended.teardown,
        duration: begun.elapsed(),
    })
}

/// The identity of a jail for this caller.
pub(crate) fn identity() -> Result<Identity, Problem> {
    Identity::of_caller().map_err(|error| match &error {
        stockade_jail::identity::Error::HostRoot(_) => caused(Code::WallUnavailable, &error)
            .remedied_by("leave this user namespace, or enter it as a user that is not root"),
        _ => caused(Code::LaunchFailed, &error),
    })
}

/// The data directory, which must not lie in what the sandbox sees.
fn open_data(project: &Project) -> Result<DataDir, Problem> {
    let path = data_path()?;
    let data = DataDir::open(&path).map_err(|e| {
        let problem = caused(Code::Io, &e);
        match e.hint() {
            Some(hint) => problem.remedied_by(hint),
            None => problem,
        }
    })?;
    // Neither path may hide the other behind a link.
    let real = std::fs::canonicalize(data.path()).unwrap_or_else(|_| path.clone());
    if real.starts_with(&project.root) {
        return Err(Problem::new(
            Code::ProjectRefused,
            format!("the data directory {} lies in the project", path.display()),
        )
        .remedied_by("set STOCKADE_DATA_DIR to a directory outside the project"));
    }
    Ok(data)
}

/// Where views and bundles are kept: `$STOCKADE_DATA_DIR`, else `$XDG_DATA_HOME/stockade`, else
/// `~/.local/share/stockade`.
pub(crate) fn data_path() -> Result<PathBuf, Problem> {
    if let Some(path) = named_data_path()? {
        return Ok(path);
    }
    // What is not absolute is passed over (XDG Base Directory Specification).
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    named("XDG_DATA_HOME")
        .map(|base| base.join("stockade"))
        .or_else(|| named("HOME").map(|home| home.join(".local/share/stockade")))
        .ok_or_else(|| {
            Problem::new(Code::InvalidInput, "there is no place for Stockade's data")
                .because("neither STOCKADE_DATA_DIR, XDG_DATA_HOME nor HOME is an absolute path")
                .remedied_by("export STOCKADE_DATA_DIR=/var/lib/stockade")
        })
}

/// What `$STOCKADE_DATA_DIR` says, where it is set.
///
/// # Errors
/// [`Code::InvalidInput`] for a path that is not absolute: it would be another place in each
/// directory.
pub(crate) fn named_data_path() -> Result<Option<PathBuf>, Problem> {
    let named = std::env::var_os("STOCKADE_DATA_DIR").filter(|named| !named.is_empty());
    let Some(path) = named.map(PathBuf::from) else { return Ok(None) };
    if path.is_absolute() {
        return Ok(Some(path));
    }
    let message = format!("STOCKADE_DATA_DIR is {}, which is not an absolute path", path.display());
    let whole = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
    Err(Problem::new(Code::InvalidInput, message)
        .remedied_by(format!("export STOCKADE_DATA_DIR={}", whole.display())))
}

fn project_refused(error: stockade_bundle::project::Error) -> Problem {
    let problem = caused(Code::ProjectRefused, &error);
    match error.hint() {
        Some(hint) => problem.remedied_by(hint),
        None => problem,
    }
}

/// What a person can do about a command that was not found.
fn hint(arguments: &Run, ending: stockade_jail::Ending) -> Option<String> {
    let stockade_jail::Ending::NotRun(_) = ending else { return None };
    let name = arguments.command.first()?;
    if Path::new(name).components().count() > 1 {
        return None;
    }
    let hidden = plan::hidden_program(name, std::env::var_os("PATH").as_ref())?;
    let directory = hidden.parent()?.display().to_string();
    Some(format!(
        "{} is on the host, where the sandbox does not look; add --mount {directory}:{directory}:ro --env PATH={directory}:{}",
        hidden.display(),
        environment::PATH,
    ))
}

/// What was captured, as text.
pub(crate) fn lossy(captured: &Captured) -> String {
    String::from_utf8_lossy(&captured.bytes).into_owned()
}
