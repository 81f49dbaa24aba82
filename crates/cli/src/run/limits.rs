//! The limits of a run that are watched from outside, and the messages for a wall or limit that
//! is not available on this host.

use std::time::Duration;

use stockade_bundle::data::DataDir;
use stockade_core::{Code, Enforcement, LimitReport, Problem};
use stockade_jail::{self as jail, Jail, Wall, Watch, watch};
use stockade_plan::limits::WatchedLimits;

use crate::args::Run;
use crate::problem::caused;
use crate::shell::shell_word;

/// How often memory is measured if no control group enforces the limit.
const MEMORY_INTERVAL: Duration = Duration::from_millis(20);
/// How often the disk is measured.
const DISK_INTERVAL: Duration = Duration::from_millis(250);
/// How much of the disk a run always leaves free.
const RESERVED_BYTES: u64 = 512 << 20;

/// The command of this process, as typed in a shell.
fn own_command() -> String {
    let words = std::env::args_os().skip(1).map(|word| shell_word(&word.to_string_lossy()));
    std::iter::once("stockade".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// The limits of a run that Stockade itself enforces.
pub(super) fn own_limits(arguments: &Run) -> Vec<LimitReport> {
    let report = |name: &'static str| LimitReport {
        name: name.into(),
        enforcement: Enforcement::Enforced,
        by: "stockade".to_owned(),
    };
    let timeout = arguments.timeout.and_then(|limit| limit.0).map(|_| report("timeout"));
    let output = arguments.sandbox.max_output.and_then(|limit| limit.0);
    timeout.into_iter().chain(output.map(|_| report("output"))).collect()
}

/// The problem of a request that cannot be planned.
pub(super) fn plan_problem(error: &stockade_plan::Error) -> Problem {
    plan_problem_of(error, &own_command())
}

/// The same for the command that made the request.
fn plan_problem_of(error: &stockade_plan::Error, command: &str) -> Problem {
    use stockade_plan::Error;
    match error {
        Error::OwnData(_) | Error::Link(_) | Error::HostRoot => caused(Code::PathRefused, error),
        Error::HostSocket { socket, .. } => caused(Code::PathRefused, error).remedied_by(format!(
            "mount the directory with `:ro`, or the socket by its own name too: --mount {0}:{0}",
            socket.display()
        )),
        Error::Limit { limit, reason, remedy } => {
            Problem::limit_unavailable(limit.as_str(), reason).remedied_by(remedy.text_for(command))
        }
        Error::OneUser(_) => {
            caused(Code::Unsupported, error).remedied_by(format!("sudo {command}"))
        }
        Error::Exhausted { .. } => caused(Code::LaunchFailed, error),
        Error::Volume(volume) => stockade_volume::problem::problem(volume),
        Error::NoImage(_) | Error::ImageName(_) | Error::Image(_) | Error::ImageProcess(_) => {
            crate::images::problem(error)
        }
        Error::Base(error) => crate::base::problem(error),
        Error::HostRootFiles(_) => caused(Code::InvalidInput, error).remedied_by(
            "use `--image` with an image of the store or a tar archive, or omit `--private-base`",
        ),
        _ => caused(Code::InvalidInput, error),
    }
}

/// The problem of a memory limit that is enforced, but too small to start a command.
pub(super) fn memory_too_small(error: &jail::Error) -> Problem {
    Problem::new(
        Code::LimitUnavailable,
        "the limit `memory` is too small to start a sandbox, so nothing was run",
    )
    .because(error.to_string())
    .remedied_by("choose a larger --memory: 8M is enough for a small program")
}

/// What must be watched while the command runs.
pub(super) fn watches(
    arguments: &Run,
    watched: WatchedLimits,
    jail: &Jail,
    data: &DataDir,
) -> Vec<Watch> {
    let mut watches = Vec::new();
    if let Some(limit) = watched.memory_bytes {
        let init = jail.init_process;
        watches.push(Watch {
            limit: "memory",
            interval: MEMORY_INTERVAL,
            exceeded: Box::new(move || watch::uses_more_than(init, limit).unwrap_or(false)),
        });
    }
    if arguments.sandbox.disk.is_none()
        && let Some(free) = free_bytes(data)
    {
        let reserved = RESERVED_BYTES.min(free / 2);
        let path = data.path().to_owned();
        watches.push(Watch {
            limit: "disk",
            interval: DISK_INTERVAL,
            exceeded: Box::new(move || free_at(&path).is_some_and(|free| free < reserved)),
        });
    }
    watches
}

fn free_bytes(data: &DataDir) -> Option<u64> {
    free_at(data.path())
}

fn free_at(path: &std::path::Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    if stat.f_files > 0 && stat.f_favail == 0 {
        return Some(0);
    }
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The problem of a wall that is unavailable, with a remedy.
pub fn wall_problem(wall: Wall, step: &str, source: &std::io::Error) -> Problem {
    let problem = Problem::new(
        Code::WallUnavailable,
        format!("the wall `{wall}` is not available on this host, so nothing was run"),
    )
    .because(format!("{step}: {source}"));
    let remedy = match wall {
        Wall::Network => jail::network::remedy(step),
        _ => wall_remedy(wall),
    };
    match remedy {
        Some(remedy) => problem.remedied_by(remedy),
        None => problem.remedied_by("stockade doctor"),
    }
}

/// The command that makes a wall available on this host.
pub(crate) fn wall_remedy(wall: Wall) -> Option<&'static str> {
    match wall {
        Wall::User => Some(
            "sudo sysctl -w user.max_user_namespaces=65536 kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        Wall::Landlock => Some(
            "boot with `landlock` in the kernel's lsm= list, or continue without it: --best-effort landlock",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use jail::cgroup::Remedy;
    use stockade_core::sandbox::{LimitName, User};
    use stockade_plan::Error;

    use super::*;

    #[test]
    fn the_problems_of_walls_and_limits_match_their_snapshots() {
        let denied = || std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let mut problems: Vec<_> =
            Wall::ALL.iter().map(|wall| wall_problem(*wall, "start", &denied())).collect();
        let user = User { user: 1000, group: 1000 };
        let errors = [
            Error::OwnData("/data".into()),
            Error::HostRoot,
            Error::HostPath { path: "/a".into(), source: denied() },
            Error::NotDirectory("/a".into()),
            Error::NoImage("debian".to_owned()),
            Error::NotAbsolute("a/../b".into()),
            Error::Reserved("/proc".into()),
            Error::MissingInWorkspace("/project/a".into()),
            Error::Variable("A=B".to_owned()),
            Error::ZeroLimit(LimitName::Memory),
            Error::Limit {
                limit: LimitName::Memory,
                reason: "no control group hierarchy here has the `memory` controller".to_owned(),
                remedy: Remedy::Wrapper("systemd-run --user --scope".to_owned()),
            },
            Error::OneUser(user),
            Error::UserTooLarge { user, limit: 65_536 },
            Error::Exhausted { what: "cannot create a file".to_owned(), source: denied() },
        ];
        problems.extend(errors.iter().map(|error| plan_problem_of(error, "stockade run -- true")));
        problems.push(memory_too_small(&jail::Error::OutOfMemory));
        let text = serde_json::to_string_pretty(&problems).unwrap();
        stockade_test_support::assert_snapshot("errors/launch", &text);
    }
}
