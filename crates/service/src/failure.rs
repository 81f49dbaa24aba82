//! The conversion of failures to problems, and the recorded form of problems.

use serde_json::json;
use stockade_bundle::workspace::Error as WorkspaceError;
use stockade_core::access;
use stockade_core::lifecycle::InvalidTransition;
use stockade_core::{Code, ExecId, Problem, SandboxId, State};
use stockade_durable::Failure;
use stockade_review::problem::FREE_SPACE_REMEDY;
use stockade_runtime::Error;

pub(crate) use stockade_review::problem::caused;

/// The recorded form of a problem. [`to_problem`] is the inverse.
pub(crate) fn to_failure(problem: Problem) -> Failure {
    let retryable = problem.retryable;
    let mut failure = Failure::new(problem.code.as_str(), problem.message.clone());
    failure.retryable = retryable;
    failure.with_details(json!(problem))
}

/// The problem of a recorded failure.
pub(crate) fn to_problem(failure: &Failure) -> Problem {
    serde_json::from_value(failure.details.clone()).unwrap_or_else(|_| {
        // The engine's own codes for its refusals.
        let code = match failure.code.as_str() {
            "conflict" => Code::Conflict,
            "cancelled" => Code::Cancelled,
            "timed_out" => Code::TimedOut,
            "storage_full" => return storage_full().because(failure.message.clone()),
            _ => Code::Io,
        };
        Problem::new(code, failure.message.clone()).because(failure.code.clone())
    })
}

/// The problem for an error of the engine or its store.
pub(crate) fn store_problem(error: stockade_durable::Error) -> Problem {
    use stockade_durable::Error as Durable;
    match error {
        Durable::Failed(failure) => to_problem(&failure),
        Durable::Cancelled { .. } => Problem::new(Code::Cancelled, "the operation was cancelled"),
        Durable::Conflict { .. } => Problem::new(
            Code::Conflict,
            "the same request was made with other parameters, or the state changed meanwhile",
        )
        .because(error.to_string()),
        Durable::ShuttingDown | Durable::Interrupted { .. } | Durable::LeaseLost { .. } => {
            caused(Code::Unreachable, &error)
                .remedied_by("query the operation by its id once the server is running again")
        }
        Durable::NewerDatabase { .. }
        | Durable::ForeignDatabase { .. }
        | Durable::CorruptDatabase { .. } => caused(Code::DatabaseInvalid, &error),
        Durable::StorageFull => storage_full().because(error.to_string()),
        error => caused(Code::Io, &error),
    }
}

/// The problem of an error of a workspace.
pub(crate) fn workspace_problem(error: &WorkspaceError) -> Problem {
    let code = match error {
        WorkspaceError::NotFound(_) | WorkspaceError::NoCommit { .. } => Code::NotFound,
        WorkspaceError::Exists(_) | WorkspaceError::Changed(_) => Code::Conflict,
        WorkspaceError::Name(_) | WorkspaceError::InTheWay(_) => Code::InvalidInput,
        WorkspaceError::TooMany => Code::QuotaExceeded,
        WorkspaceError::Io(source)
            if matches!(
                source.kind(),
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
            ) =>
        {
            Code::StorageFull
        }
        WorkspaceError::Damaged { .. } | WorkspaceError::Data(_) | WorkspaceError::Io(_) => {
            Code::Io
        }
    };
    let problem = caused(code, error);
    match error {
        WorkspaceError::NotFound(name) => {
            problem.remedied_by(format!("stockade workspace create {name}"))
        }
        WorkspaceError::NoCommit { workspace, .. } => {
            problem.remedied_by(format!("stockade workspace log {workspace}"))
        }
        _ => problem,
    }
}

/// The problem for an error of a runtime.
pub(crate) fn runtime_problem(error: &Error) -> Problem {
    let problem = |code| caused(code, error);
    match error {
        Error::NoSandbox(_) => problem(Code::InvalidState),
        Error::NoExec { .. } | Error::NoSnapshot(_) => problem(Code::NotFound),
        Error::Image(_) => problem(Code::ImageInvalid),
        Error::Conflict(_) => problem(Code::Conflict),
        Error::WrongState { .. } => problem(Code::InvalidState),
        Error::Unsupported { remedy, .. } => {
            with_remedy(problem(Code::Unsupported), remedy.as_ref())
        }
        Error::Limit { limit, reason, remedy } => {
            Problem::limit_unavailable(limit.as_str(), reason).remedied_by(remedy)
        }
        Error::Exceeded { remedy, .. } => with_remedy(problem(Code::DiskExceeded), Some(remedy)),
        Error::Wall { .. } => problem(Code::WallUnavailable)
            .remedied_by("run `stockade doctor` to see what this host supports"),
        Error::PathRefused(_) => problem(Code::PathRefused),
        Error::Invalid(_) | Error::Host { .. } => problem(Code::InvalidInput),
        // The text is the whole cause: a keeper sends no error numbers.
        Error::Exhausted(what) if is_no_space(what) => {
            problem(Code::StorageFull).remedied_by(FREE_SPACE_REMEDY)
        }
        Error::Exhausted(_) => problem(Code::LaunchFailed),
        Error::File { source, .. } if is_about_path(source) => problem(Code::PathInvalid),
        Error::File { source, .. } => match source.kind() {
            std::io::ErrorKind::NotFound => problem(Code::FileNotFound),
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                problem(Code::AccessDenied)
            }
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                problem(Code::StorageFull).remedied_by(FREE_SPACE_REMEDY)
            }
            std::io::ErrorKind::IsADirectory
            | std::io::ErrorKind::NotADirectory
            | std::io::ErrorKind::DirectoryNotEmpty
            | std::io::ErrorKind::AlreadyExists
            | std::io::ErrorKind::CrossesDevices
            | std::io::ErrorKind::ResourceBusy
            | std::io::ErrorKind::ExecutableFileBusy
            | std::io::ErrorKind::Unsupported
            | std::io::ErrorKind::InvalidInput => problem(Code::InvalidInput),
            _ => problem(Code::Io),
        },
        Error::Connect { .. } => problem(Code::Unreachable),
        Error::OutcomeUnknown(_) => problem(Code::OutcomeUnknown),
        Error::Unavailable { remedy, .. } => with_remedy(problem(Code::Unreachable), Some(remedy)),
        Error::NoImage { remedy, .. } => with_remedy(problem(Code::ImageNotFound), Some(remedy)),
        Error::Unreachable { .. } | Error::Deadline(_) => problem(Code::Unreachable),
    }
}

/// Whether the kernel refused a path itself: links that lead in a circle, a name that is too long, or a
/// special file that does not read or write.
fn is_about_path(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let found = Errno::from_io_error(error);
    found.is_some_and(|errno| {
        [Errno::LOOP, Errno::NAMETOOLONG, Errno::NXIO, Errno::NODEV, Errno::SPIPE].contains(&errno)
    })
}

/// The problem for a state that does not allow an operation.
pub(crate) fn state_problem(id: &SandboxId, refused: &InvalidTransition) -> Problem {
    match refused {
        InvalidTransition::Terminated { .. } => {
            Problem::new(Code::SandboxTerminated, format!("the sandbox {id} is terminated"))
                .because(refused.to_string())
                .remedied_by("stockade create")
        }
        InvalidTransition::State { state, .. } => {
            let remedy = match state {
                State::Paused => "resume",
                State::Stopped | State::New => "start",
                _ => "show",
            };
            Problem::new(
                Code::InvalidState,
                format!("the state of the sandbox {id} does not permit this operation"),
            )
            .because(refused.to_string())
            .remedied_by(format!("stockade {remedy} {id}"))
        }
    }
}

/// The problem for a path that access rules refuse or that is malformed.
pub(crate) fn access_problem(error: &access::Error) -> Problem {
    let code = match error {
        access::Error::Denied { .. } => Code::AccessDenied,
        access::Error::Unreadable(_) => Code::RuleInvalid,
        _ => Code::PathInvalid,
    };
    Problem::new(code, error.to_string())
}

/// The problem for an invalid path.
pub(crate) fn path_problem(error: &Error) -> Problem {
    Problem::new(Code::PathInvalid, error.to_string())
}

/// The problem for a sandbox that does not exist, or is not the caller's.
pub(crate) fn no_sandbox(id: &SandboxId) -> Problem {
    Problem::new(Code::NotFound, format!("there is no sandbox {id}")).remedied_by("stockade ls")
}

/// The problem for an invalid argument.
pub(crate) fn invalid(message: impl Into<String>) -> Problem {
    Problem::new(Code::InvalidInput, message)
}

/// The prefix of the exec ids of commands whose output is not recorded.
const UNRECORDED: &str = "u-";

/// The exec id of a step, from the step's own key.
pub(crate) fn exec_id(key: &str) -> Result<ExecId, Problem> {
    exec_id_with("x-", key)
}

/// The exec id of a step whose output is not recorded. The reaper recognizes it.
pub(crate) fn unrecorded_exec_id(key: &str) -> Result<ExecId, Problem> {
    exec_id_with(UNRECORDED, key)
}

/// Whether the output of a command is not recorded, and is read from its sandbox.
pub(crate) fn is_unrecorded(id: &ExecId) -> bool {
    id.as_str().starts_with(UNRECORDED)
}

fn exec_id_with(prefix: &str, key: &str) -> Result<ExecId, Problem> {
    let hash = blake3::hash(key.as_bytes()).to_hex();
    ExecId::new(format!("{prefix}{}", &hash[..24])).map_err(|error| invalid(error.to_string()))
}

/// Whether an operating system's message means that a disk or quota is full.
fn is_no_space(text: &str) -> bool {
    ["No space left on device", "Disk quota exceeded"].iter().any(|known| text.contains(known))
}

/// The problem for a full disk.
fn storage_full() -> Problem {
    Problem::new(Code::StorageFull, "there is no disk space to record the operation")
        .remedied_by(FREE_SPACE_REMEDY)
}

fn with_remedy(problem: Problem, remedy: Option<&String>) -> Problem {
    match remedy {
        Some(remedy) => problem.remedied_by(remedy.clone()),
        None => problem,
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;

    use stockade_core::SnapshotId;
    use stockade_core::sandbox::LimitName;
    use stockade_durable::{Error as Durable, WorkflowId};
    use stockade_runtime::{Capability, State};
    use stockade_test_support::assert_snapshot;

    use super::{Error, ExecId, Problem, SandboxId, runtime_problem, store_problem};

    fn io_error(kind: io::ErrorKind) -> io::Error {
        kind.into()
    }

    fn assert_problems(path: &str, problems: &[Problem]) {
        assert_snapshot(path, &serde_json::to_string_pretty(problems).unwrap());
    }

    #[test]
    fn the_problems_of_runtimes_match_their_snapshots() {
        let id = || SandboxId::new("box").unwrap();
        let file =
            |kind| Error::File { operation: "read", path: "/a".to_owned(), source: io_error(kind) };
        let refused = || io_error(io::ErrorKind::ConnectionRefused);
        let errors = [
            Error::NoSandbox(id()),
            Error::NoExec { sandbox: id(), exec: ExecId::new("command").unwrap() },
            Error::NoSnapshot(SnapshotId::new("clean").unwrap()),
            Error::Conflict("the sandbox box".to_owned()),
            Error::WrongState { id: id(), state: State::Paused, operation: "run a command" },
            Error::Unsupported {
                capability: Capability::Users,
                reason: "the keeper does not run as root".to_owned(),
                remedy: Some("sudo stockade serve".to_owned()),
            },
            Error::Limit {
                limit: LimitName::Memory,
                reason: "there is no control group for it".to_owned(),
                remedy: "sudo stockade serve".to_owned(),
            },
            Error::Exceeded {
                limit: LimitName::Disk,
                reason: "its files have 2 MiB".to_owned(),
                remedy: "remove files of the sandbox".to_owned(),
            },
            Error::Wall { wall: "landlock".to_owned(), reason: "the kernel lacks it".to_owned() },
            Error::PathRefused("/a contains Stockade's own data".to_owned()),
            Error::Invalid("the id is too long".to_owned()),
            Error::Exhausted("there are too many processes".to_owned()),
            file(io::ErrorKind::NotFound),
            file(io::ErrorKind::PermissionDenied),
            file(io::ErrorKind::IsADirectory),
            file(io::ErrorKind::Other),
            Error::Connect { target: "port 80".to_owned(), source: refused() },
            Error::Host { path: "/a".to_owned(), source: io_error(io::ErrorKind::NotFound) },
            Error::OutcomeUnknown("the command".to_owned()),
            Error::Unreachable { what: "the keeper".to_owned(), source: refused() },
            Error::Deadline("start a sandbox"),
        ];
        let problems: Vec<_> = errors.iter().map(runtime_problem).collect();
        assert_problems("errors/runtimes", &problems);
    }

    #[test]
    fn the_problems_of_the_database_match_their_snapshots() {
        let id = || WorkflowId::new("key-1").unwrap();
        let path = || PathBuf::from("/data/stockade.db");
        let errors = [
            Durable::Cancelled { id: id(), timed_out: false },
            Durable::AttemptsExceeded { id: id() },
            Durable::Interrupted { id: id(), why: "the server exits".to_owned() },
            Durable::LeaseLost { id: id(), status: None },
            Durable::Conflict { what: "the sandbox box exists".to_owned() },
            Durable::NotFound { id: id() },
            Durable::ShuttingDown,
            Durable::Closed,
            Durable::StorageFull,
            Durable::Storage { message: "disk I/O error".to_owned() },
            Durable::Locked { path: path(), holder: Some(42) },
            Durable::NewerDatabase { path: path(), found: 9, known: 7 },
            Durable::ForeignDatabase { path: path(), why: "file is not a database".to_owned() },
            Durable::CorruptDatabase { path: path(), detail: "a page is missing".to_owned() },
        ];
        let problems: Vec<_> = errors.into_iter().map(store_problem).collect();
        assert_problems("errors/database", &problems);
    }
}
