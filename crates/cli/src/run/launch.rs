//! Making the view, launching the jail on it, and staying until the command has
//! ended. Where no overlay can be had, a plain copy takes its place and the
//! answer says so.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use stockade_bundle::beneath::Timestamp;
use stockade_bundle::data::DataDir;
use stockade_bundle::manifest::ViewKind;
use stockade_bundle::view::{self, Ownership, View};
use stockade_core::{Code, Isolation, Problem};
use stockade_jail::{
    self as jail, Captured, Ending, Identity, Jail, Payload, Signals, Sink, Supervision, Task,
    Teardown, Wall,
};

use super::plan::{self, Shown, Surroundings};
use super::{limits, report};
use crate::args::Run;
use crate::egress::{Egress, Serving};
use crate::problem::caused;
use crate::terminal::Raw;

/// How long a command that was asked to end may take.
const GRACE: Duration = Duration::from_secs(10);
/// How much of each stream a JSON answer carries.
const CAPTURE_BYTES: usize = 5 << 20;

/// A running jail and its view.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) jail: Jail,
    pub(super) view: View,
    pub(super) isolation: Isolation,
    /// A bound on memory that is only looked at, in bytes.
    watched_memory: Option<u64>,
}

/// What is left when the command has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) ending: Ending,
    pub(super) output: Captured,
    pub(super) error: Captured,
    /// Why not all that the command wrote could be passed on.
    pub(super) unwritten: Option<std::io::Error>,
    pub(super) memory_peak_bytes: Option<u64>,
    pub(super) out_of_memory_kills: u64,
    pub(super) teardown: Teardown,
    pub(super) view: View,
    pub(super) isolation: Isolation,
}

impl Launched {
    /// Hands the jail's listeners to its way out, where it is to have one.
    pub(super) fn serve(&mut self, egress: Option<Egress>) -> Result<Option<Serving>, Problem> {
        match (egress, self.jail.listeners.take()) {
            (Some(egress), Some(listeners)) => egress.serve(&listeners).map(Some),
            _ => Ok(None),
        }
    }
}

/// Makes a view and launches the jail on it.
pub(super) fn launch(
    arguments: &Run,
    around: &Surroundings<'_>,
    data: &DataDir,
    identity: Identity,
    started: Timestamp,
    payload: Option<Payload>,
) -> Result<Launched, Refused> {
    let function = match &payload {
        Some(Payload::Function(function)) => Some(*function),
        _ => None,
    };
    let again = || function.map(Payload::Function);
    match attempt(arguments, around, data, identity, started, (ViewKind::Overlay, payload)) {
        Err(Attempt::NoOverlay(reason)) => {
            if arguments.disk.is_some() {
                return Err(Problem::new(
                    Code::LimitUnavailable,
                    "--disk needs an overlay, which cannot be had here",
                )
                .because(reason)
                .remedied_by("leave --disk out: the project is then copied")
                .into());
            }
            let identity = super::identity()?;
            let mut launched =
                attempt(arguments, around, data, identity, started, (ViewKind::Copy, again()))
                    .map_err(Attempt::into_refused)?;
            launched
                .isolation
                .reasons
                .push(format!("the project was copied, for no overlay can be had: {reason}"));
            Ok(launched)
        }
        other => other.map_err(Attempt::into_refused),
    }
}

/// Why there is no jail.
#[derive(Debug)]
pub(super) struct Refused {
    /// The wall that could not be raised, where it was one.
    pub(super) wall: Option<Wall>,
    /// What is wrong.
    pub(super) problem: Problem,
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self { wall: None, problem }
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        refused.problem
    }
}

enum Attempt {
    /// There can be no overlay here, for this reason.
    NoOverlay(String),
    Failed(Refused),
}

impl Attempt {
    fn into_refused(self) -> Refused {
        match self {
            Self::Failed(refused) => refused,
            Self::NoOverlay(reason) => Refused {
                wall: Some(Wall::View),
                problem: Problem::new(Code::WallUnavailable, "the wall `view` cannot be raised")
                    .because(reason),
            },
        }
    }
}

impl From<Problem> for Attempt {
    fn from(problem: Problem) -> Self {
        Self::Failed(problem.into())
    }
}

fn attempt(
    arguments: &Run,
    around: &Surroundings<'_>,
    data: &DataDir,
    identity: Identity,
    started: Timestamp,
    (kind, payload): (ViewKind, Option<Payload>),
) -> Result<Launched, Attempt> {
    let limits::Held { group, reports, watched_memory } = limits::hold(arguments)?;
    let ownership =
        identity.range().map(|range| Ownership { host_start: range.start, count: range.count });
    let words: Vec<_> =
        arguments.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let view = View::create(data, around.project, kind, ownership, &words, started)
        .map_err(|e| view_failed(&e))?;
    let place = data.path().join("views").join(view.id());
    let shown = match (kind, arguments.disk) {
        (ViewKind::Overlay, None) => Shown::Overlay(place),
        (ViewKind::Overlay, Some(size_bytes)) => Shown::InMemory(size_bytes),
        (ViewKind::Copy, _) => Shown::Copy(place.join("copy")),
    };
    let seen = view.record().started;
    let launched = plan::spec(
        arguments,
        around,
        identity,
        &shown,
        (seen.seconds, seen.nanoseconds),
        view.lock().try_clone_to_owned().map_err(|e| caused(Code::Io, &e))?,
    )
    .map_err(Attempt::from)
    .and_then(|mut spec| {
        spec.cgroup = group;
        if let (Some(payload), Task::Once { command, .. }) = (payload, &mut spec.task) {
            command.payload = payload;
        }
        jail::launch(spec).map_err(|e| refused(&e, around))
    });
    match launched {
        Ok(jail) => {
            let isolation = report::isolation(&jail, reports);
            Ok(Launched { jail, view, isolation, watched_memory })
        }
        Err(failure) => {
            // Nothing has run, so nothing is lost with it.
            let _ = view.remove();
            Err(failure)
        }
    }
}

fn view_failed(error: &view::Error) -> Problem {
    caused(Code::Io, error)
}

/// Tells a jail that cannot have an overlay from one that cannot be had at all.
fn refused(error: &jail::Error, around: &Surroundings<'_>) -> Attempt {
    let problem = caused(Code::LaunchFailed, error);
    let reason = || {
        let cause = problem.cause.clone().unwrap_or_default();
        format!("{}: {cause}", problem.message)
    };
    match error {
        jail::Error::MapOwners { path, .. } if *path == around.project.root => {
            Attempt::NoOverlay(reason())
        }
        jail::Error::Wall { wall: Wall::View, .. } => Attempt::NoOverlay(reason()),
        jail::Error::Wall { wall, step, source } => {
            let problem = limits::wall_refused(*wall, step, source);
            Attempt::Failed(Refused { wall: Some(*wall), problem })
        }
        jail::Error::Namespaces(source) => {
            let problem = limits::wall_refused(Wall::User, "make new namespaces", source);
            Attempt::Failed(Refused { wall: Some(Wall::User), problem })
        }
        jail::Error::OutOfMemory => limits::no_room(error).into(),
        _ => problem.into(),
    }
}

/// Relays the command's streams until it has ended.
pub(super) fn supervise(
    arguments: &Run,
    launched: Launched,
    signals: Signals,
    data: &DataDir,
) -> Result<Ended, Problem> {
    let Launched { mut jail, mut view, isolation, watched_memory } = launched;
    // The command has just been started.
    jail.close_with_mounts(view.tidy());
    let io = |e: std::io::Error| {
        Problem::new(Code::Io, "cannot take hold of the standard streams").because(e.to_string())
    };
    let raw = if arguments.tty { Raw::enter().map_err(io)? } else { None };
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
        timeout: arguments.timeout,
        output_limit_bytes: arguments.max_output,
        grace: GRACE,
        terminal: raw.as_ref().map(Raw::descriptor).transpose().map_err(io)?,
        watches: limits::watches(arguments, watched_memory, &jail, data),
    };
    let outcome = jail::supervise(jail, supervision, signals);
    drop(raw);
    match outcome {
        Ok(outcome) => Ok(Ended {
            ending: outcome.ending,
            output: outcome.output,
            error: outcome.error,
            unwritten: outcome.unwritten,
            memory_peak_bytes: outcome.memory_peak_bytes,
            out_of_memory_kills: outcome.out_of_memory_kills,
            teardown: outcome.teardown,
            view,
            isolation,
        }),
        Err(error) => {
            let problem = match &error {
                jail::Error::Wall { wall, step, source } => {
                    // The command has not run: its view holds nothing.
                    let _ = view.remove();
                    limits::wall_refused(*wall, step, source)
                }
                _ => caused(Code::LaunchFailed, &error),
            };
            Err(problem)
        }
    }
}
