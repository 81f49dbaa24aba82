//! The limits of a run that are looked after from outside, and the words for a
//! wall or limit that this host cannot give.

use std::time::Duration;

use stockade_bundle::data::DataDir;
use stockade_core::{Code, Enforcement, LimitReport, Problem};
use stockade_jail::cgroup::{self, Group, Limit, Limits, Refusal};
use stockade_jail::{self as jail, Jail, Wall, Watch, watch};

use crate::args::{BestEffort, Run};

/// How often memory is looked at where no control group holds it.
const MEMORY_INTERVAL: Duration = Duration::from_millis(20);
/// How often the disk is looked at.
const DISK_INTERVAL: Duration = Duration::from_millis(250);
/// How much of the disk a run always leaves free.
const RESERVED_BYTES: u64 = 512 << 20;

/// The command of this process, as it is typed in a shell.
fn own_command() -> String {
    let words = std::env::args_os().skip(1).map(|word| quoted(&word.to_string_lossy()));
    std::iter::once("stockade".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-+=./:,@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The limits of a run: the control groups that hold them, and how each is held.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) group: Option<Group>,
    pub(super) reports: Vec<LimitReport>,
    /// A bound on memory that is only looked at, in bytes.
    pub(super) watched_memory: Option<u64>,
}

/// Makes the control groups that were asked for, and refuses what cannot be held unless
/// `--best-effort` names it.
pub(super) fn hold(arguments: &Run) -> Result<Held, Problem> {
    let wanted = Limits {
        memory_bytes: arguments.memory,
        cpu_millis: arguments.cpus,
        // The user namespace counts processes itself.
        pids: None,
    };
    let report = |name: &'static str, enforcement, by: &str| LimitReport {
        name: name.into(),
        enforcement,
        by: by.to_owned(),
    };
    let mut reports = vec![report("pids", Enforcement::Enforced, "rlimit of the user namespace")];
    reports.push(if arguments.disk.is_some() {
        report("disk", Enforcement::Enforced, "file system in memory, which is volatile")
    } else {
        report("disk", Enforcement::Watched, "the free space of the data directory's disk")
    });
    if arguments.timeout.is_some() {
        reports.push(report("timeout", Enforcement::Enforced, "stockade"));
    }
    if arguments.max_output.is_some() {
        reports.push(report("output", Enforcement::Enforced, "stockade"));
    }
    if wanted == Limits::default() {
        return Ok(Held { group: None, reports, watched_memory: None });
    }
    let (group, refusals) = grouped(wanted)?;
    let mut watched_memory = None;
    for (limit, name, best_effort, wanted) in [
        (Limit::Memory, "memory", BestEffort::Memory, wanted.memory_bytes),
        (Limit::Cpus, "cpus", BestEffort::Cpus, wanted.cpu_millis),
    ] {
        let Some(wanted) = wanted else { continue };
        match refusals.iter().find(|refusal| refusal.limit == limit) {
            None => {
                let by = group.as_ref().and_then(|group| group.held_by(limit));
                reports.push(report(name, Enforcement::Enforced, by.unwrap_or("control group")));
            }
            Some(refusal) if !arguments.best_effort.contains(&best_effort) => {
                return Err(refused(refusal));
            }
            Some(refusal) if limit == Limit::Memory => {
                watched_memory = Some(wanted);
                reports.push(report(name, Enforcement::Watched, &refusal.reason));
            }
            Some(refusal) => reports.push(report(name, Enforcement::Refused, &refusal.reason)),
        }
    }
    Ok(Held { group, reports, watched_memory })
}

/// A group for as many of the limits as can be held, and the others' refusals.
fn grouped(wanted: Limits) -> Result<(Option<Group>, Vec<Refusal>), Problem> {
    let name = cgroup::fresh_name();
    let refusals = match Group::create(&name, &wanted) {
        Ok(group) => return Ok((Some(group), Vec::new())),
        Err(unavailable) => unavailable.refusals,
    };
    let kept = |limit, value: Option<u64>| {
        value.filter(|_| refusals.iter().all(|refusal| refusal.limit != limit))
    };
    let rest = Limits {
        memory_bytes: kept(Limit::Memory, wanted.memory_bytes),
        cpu_millis: kept(Limit::Cpus, wanted.cpu_millis),
        pids: None,
    };
    if rest == Limits::default() {
        return Ok((None, refusals));
    }
    match Group::create(&name, &rest) {
        Ok(group) => Ok((Some(group), refusals)),
        Err(unavailable) => Ok((None, [refusals, unavailable.refusals].concat())),
    }
}

fn refused(refusal: &Refusal) -> Problem {
    let name = refusal.limit.name();
    Problem::new(
        Code::LimitUnavailable,
        format!(
            "the limit `{name}` cannot be held on this host, so nothing was run (--best-effort {name} \
             runs without it)"
        ),
    )
    .because(&refusal.reason)
    .remedied_by(refusal.remedy.of(&own_command()))
}

/// The problem of a memory limit that is held, and in which no command can be started.
pub(super) fn no_room(error: &jail::Error) -> Problem {
    Problem::new(
        Code::LimitUnavailable,
        "the limit `memory` is too small to start a sandbox, so nothing was run",
    )
    .because(error.to_string())
    .remedied_by("choose a larger --memory: 8M is enough for a small program")
}

/// What is to be looked at while the command runs.
pub(super) fn watches(
    arguments: &Run,
    memory_bytes: Option<u64>,
    jail: &Jail,
    data: &DataDir,
) -> Vec<Watch> {
    let mut watches = Vec::new();
    if let Some(limit) = memory_bytes {
        let init = jail.init_process;
        watches.push(Watch {
            limit: "memory",
            interval: MEMORY_INTERVAL,
            exceeded: Box::new(move || watch::uses_more_than(init, limit).unwrap_or(false)),
        });
    }
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
    if stat.f_files > 0 && stat.f_favail == 0 {
        return Some(0);
    }
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The problem of a wall that cannot be raised, with the way to raise it.
pub(crate) fn wall_refused(wall: Wall, step: &str, source: &std::io::Error) -> Problem {
    let problem = Problem::new(
        Code::WallUnavailable,
        format!("the wall `{wall}` cannot be raised on this host, so nothing was run"),
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

/// The command that lets this host raise a wall.
pub(crate) fn wall_remedy(wall: Wall) -> Option<&'static str> {
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

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_are_quoted_where_a_shell_would_split_or_expand_them() {
        for plain in ["run", "--memory", "64M", "a=b", "/usr/bin/env", "HOST:80"] {
            assert_eq!(quoted(plain), plain);
        }
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("$HOME;`id`"), "'$HOME;`id`'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
