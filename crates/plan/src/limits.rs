//! The limits of a sandbox: what enforces each, and which are watched because nothing enforces
//! them.

use stockade_core::sandbox::{BestEffort, LimitName};
use stockade_core::{Enforcement, LimitReport, SandboxSpec};
use stockade_jail::cgroup::{self, Group, Limit, Limits, ParentGroup, Refusal, Unavailable};
use stockade_jail::watch;

use crate::error::Error;

/// The default limit on processes and threads of a sandbox.
pub const PROCESSES: u64 = 4096;

/// How the limit on the disk is enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    /// The disk use of the layers is watched.
    Layers,
    /// The layers are in a memory file system of that size, which is volatile; without a limit the
    /// free space of the data directory's disk is watched.
    Memory,
}

/// Where control groups are created.
#[derive(Debug, Clone, Copy)]
pub enum Groups<'a> {
    /// Below the group of this process, for one jail.
    Own,
    /// Where a process creates those of all its jails, which can be paused too.
    Parent(&'a ParentGroup),
}

impl Groups<'_> {
    fn create(self, name: &str, limits: &Limits) -> Result<Group, Unavailable> {
        match self {
            Self::Own => Group::create(name, limits),
            Self::Parent(parent) => parent.create(name, limits),
        }
    }
}

/// The limits of a sandbox, as far as they can be enforced.
#[derive(Debug)]
pub struct EnforcedLimits {
    /// The control groups that enforce them.
    pub group: Group,
    /// How each is enforced.
    pub reports: Vec<LimitReport>,
}

/// Limits that are watched, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WatchedLimits {
    /// The memory limit of all processes together.
    pub memory_bytes: Option<u64>,
    /// The limit on the disk use of the layers.
    pub disk_bytes: Option<u64>,
}

impl WatchedLimits {
    /// Which of a sandbox's limits have to be watched.
    pub fn new(spec: &SandboxSpec, reports: &[LimitReport]) -> Self {
        let watched = |limit: LimitName, value: Option<u64>| {
            let is_it = |report: &LimitReport| {
                report.name == limit.as_str() && report.enforcement == Enforcement::Watched
            };
            value.filter(|_| reports.iter().any(is_it))
        };
        Self {
            memory_bytes: watched(LimitName::Memory, spec.limits.memory_bytes),
            disk_bytes: watched(LimitName::Disk, spec.limits.disk_bytes),
        }
    }
}

/// Creates the control groups of a sandbox, and refuses limits that cannot be enforced unless they
/// were left to best effort.
///
/// # Errors
/// [`Error::ZeroLimit`] and [`Error::Limit`].
pub fn enforce(
    groups: Groups<'_>,
    spec: &SandboxSpec,
    disk: Disk,
) -> Result<EnforcedLimits, Error> {
    let requested = &spec.limits;
    for (limit, value) in [
        (LimitName::Memory, requested.memory_bytes),
        (LimitName::Cpus, requested.cpu_millis),
        (LimitName::Processes, requested.processes),
        (LimitName::Disk, requested.disk_bytes),
    ] {
        if value == Some(0) {
            return Err(Error::ZeroLimit(limit));
        }
    }
    let cgroup_limits = Limits {
        memory_bytes: requested.memory_bytes,
        cpu_millis: requested.cpu_millis,
        // The user namespace enforces this limit itself, for each user. Where processes can read their
        // limits, a group shows it, and enforces it for all users together.
        pids: requested.processes.filter(|_| matches!(groups, Groups::Parent(_))),
    };
    let by_rlimit = "rlimit of the user namespace, for each user";
    let (group, refusals) = create_groups(groups, cgroup_limits);
    let by = group
        .enforcer(Limit::Pids)
        .map_or_else(|| by_rlimit.to_owned(), |group| format!("{group}, and {by_rlimit}"));
    let mut reports = vec![report(LimitName::Processes, Enforcement::Enforced, &by)];
    reports.extend(disk_report(disk, requested.disk_bytes.is_some()));
    let each = [
        (Limit::Memory, LimitName::Memory, cgroup_limits.memory_bytes),
        (Limit::Cpus, LimitName::Cpus, cgroup_limits.cpu_millis),
    ];
    for (limit, name, wanted) in each {
        if wanted.is_none() {
            continue;
        }
        let by = match refusals.iter().find(|refusal| refusal.limit == limit) {
            None => {
                let by = group.enforcer(limit).unwrap_or("control group");
                reports.push(report(name, Enforcement::Enforced, by));
                continue;
            }
            Some(refusal) if !spec.best_effort.contains(&BestEffort::from(name)) => {
                let (reason, remedy) = (refusal.reason.clone(), refusal.remedy.clone());
                return Err(Error::Limit { limit: name, reason, remedy });
            }
            Some(refusal) => &refusal.reason,
        };
        let watched = limit == Limit::Memory && watch::memory_of_tree(own_process()).is_ok();
        let enforcement = if watched { Enforcement::Watched } else { Enforcement::Refused };
        reports.push(report(name, enforcement, by));
    }
    Ok(EnforcedLimits { group, reports })
}

fn disk_report(disk: Disk, is_limited: bool) -> Option<LimitReport> {
    let (enforcement, by) = match (disk, is_limited) {
        (Disk::Memory, true) => (Enforcement::Enforced, "file system in memory, which is volatile"),
        (Disk::Memory, false) => {
            (Enforcement::Watched, "the free space of the data directory's disk")
        }
        (Disk::Layers, true) => (Enforcement::Watched, "the disk usage of its layers"),
        (Disk::Layers, false) => return None,
    };
    Some(report(LimitName::Disk, enforcement, by))
}

/// Groups for as many of the limits as can be enforced, and the refusals of the others.
fn create_groups(groups: Groups<'_>, requested: Limits) -> (Group, Vec<Refusal>) {
    let name = cgroup::fresh_name();
    let refusals = match groups.create(&name, &requested) {
        Ok(group) => return (group, Vec::new()),
        Err(unavailable) => unavailable.refusals,
    };
    let enforceable = |limit, value: Option<u64>| {
        value.filter(|_| refusals.iter().all(|refusal| refusal.limit != limit))
    };
    let rest = Limits {
        memory_bytes: enforceable(Limit::Memory, requested.memory_bytes),
        cpu_millis: enforceable(Limit::Cpus, requested.cpu_millis),
        pids: enforceable(Limit::Pids, requested.pids),
    };
    match groups.create(&name, &rest) {
        Ok(group) => (group, refusals),
        Err(unavailable) => (Group::default(), [refusals, unavailable.refusals].concat()),
    }
}

fn own_process() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

fn report(limit: LimitName, enforcement: Enforcement, by: &str) -> LimitReport {
    LimitReport { name: limit.as_str().into(), enforcement, by: by.to_owned() }
}

#[cfg(test)]
mod tests {
    use stockade_core::sandbox;

    use super::*;

    fn spec(limits: sandbox::Limits, best_effort: &[BestEffort]) -> SandboxSpec {
        SandboxSpec {
            limits,
            best_effort: best_effort.iter().copied().collect(),
            ..SandboxSpec::default()
        }
    }

    #[test]
    fn every_limit_is_held_watched_or_refused() {
        let limits = sandbox::Limits {
            memory_bytes: Some(64 << 20),
            cpu_millis: Some(500),
            processes: Some(10),
            disk_bytes: Some(1 << 30),
            shm_bytes: None,
        };
        let parent = ParentGroup::prepare();
        let spec = self::spec(limits, &[BestEffort::Memory, BestEffort::Cpus]);
        let granted = enforce(Groups::Parent(&parent), &spec, Disk::Layers).unwrap();
        let names: Vec<_> = granted.reports.iter().map(|report| &*report.name).collect();
        assert_eq!(names, ["pids", "disk", "memory", "cpus"]);
        let watched = WatchedLimits::new(&spec, &granted.reports);
        assert_eq!(watched.disk_bytes, Some(1 << 30));
        let memory = granted.reports[2].enforcement;
        assert_eq!(watched.memory_bytes.is_some(), memory == Enforcement::Watched);
        let strict = self::spec(limits, &[]);
        match enforce(Groups::Parent(&parent), &strict, Disk::Layers) {
            Ok(granted) => {
                let enforced = granted.reports[2..].iter().map(|report| report.enforcement);
                assert!(
                    enforced.into_iter().all(|enforcement| enforcement == Enforcement::Enforced)
                );
            }
            Err(Error::Limit { limit, reason, remedy }) => {
                assert_eq!(limit, LimitName::Memory);
                assert!(!reason.is_empty() && !remedy.text_for("true").is_empty());
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_is_no_limit() {
        let limits = sandbox::Limits { processes: Some(0), ..sandbox::Limits::default() };
        let refused = enforce(Groups::Own, &spec(limits, &[]), Disk::Layers).unwrap_err();
        assert!(matches!(refused, Error::ZeroLimit(LimitName::Processes)));
    }
}
