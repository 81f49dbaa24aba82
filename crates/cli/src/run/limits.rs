//! The limits of a run that are looked after from outside, and the words for a
//! wall or limit that this host cannot give.

use std::time::Duration;

use stockade_bundle::data::DataDir;
use stockade_core::{Code, Problem};
use stockade_jail::{Jail, Wall, Watch};

use crate::args::Run;

/// How often the disk is looked at.
const DISK_INTERVAL: Duration = Duration::from_millis(250);
/// How much of the disk a run always leaves free.
const RESERVED_BYTES: u64 = 512 << 20;

/// What is to be looked at while the command runs.
pub(super) fn watches(arguments: &Run, _jail: &Jail, data: &DataDir) -> Vec<Watch> {
    let mut watches = Vec::new();
    if arguments.disk.is_none()
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
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The problem of a wall that cannot be raised, with the way to raise it.
pub(crate) fn wall_refused(wall: Wall, step: &str, source: &std::io::Error) -> Problem {
    let problem = Problem::new(
        Code::WallUnavailable,
        format!("the wall `{wall}` cannot be raised on this host, so nothing was run"),
    )
    .because(format!("{step}: {source}"));
    match remedy(wall, source.raw_os_error()) {
        Some(remedy) => problem.remedied_by(remedy),
        None => problem.remedied_by("stockade doctor"),
    }
}

/// The command that lets this host raise a wall.
pub(crate) fn remedy(wall: Wall, _errno: Option<i32>) -> Option<&'static str> {
    match wall {
        Wall::User => Some(
            "sudo sysctl -w user.max_user_namespaces=65536 kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        Wall::Landlock => Some(
            "boot with `landlock` in the kernel's lsm= list, or go on without it: --best-effort landlock",
        ),
        _ => None,
    }
}
