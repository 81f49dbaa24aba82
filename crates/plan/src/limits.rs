//! The limits of a sandbox: what enforces each, and which are watched because nothing enforces
//! them.

use stockade_core::sandbox::{BestEffort, LimitName};
use stockade_core::{Enforcement, LimitReport, SandboxSpec};
use stockade_jail::cgroup::{self, Group, Limit, Limits, Place, Refusal, Unavailable};
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
    At(&'a Place),
}

impl Groups<'_> {
    fn create(self, name: &str, limits: &Limits) -> Result<Group, Unavailable> {
        match self {
            Self::Own => Group::create(name, limits),
            Self::At(place) => place.create(name, limits),
        }
    }
}

/// The limits of a sandbox, as far as they can be enforced.
#[derive(Debug)]
pub struct Granted {
    /// The control groups that enforce them.
    pub group: Group,
    /// How each is enforced.
    pub reports: Vec<LimitReport>,
}

/// Limits that are watched, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Watched {
    /// The memory limit of all processes together.
    pub memory_bytes: Option<u64>,
    /// The limit on the disk use of the layers.
    pub disk_bytes: Option<u64>,
}

impl Watched {
    /// Which of a sandbox's limits have to be watched.
    pub fn of(spec: &SandboxSpec, reports: &[LimitReport]) -> Self {
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
/// [`Error::NothingLeft`] and [`Error::Limit`].
pub fn grant(groups: Groups<'_>, spec: &SandboxSpec, disk: Disk) -> Result<Granted, Error> {
    let requested = &spec.limits;
    for (limit, value) in [
        (LimitName::Memory, requested.memory_bytes),
        (LimitName::Cpus, requested.cpu_millis),
        (LimitName::Processes, requested.processes),
        (LimitName::Disk, requested.disk_bytes),
    ] {
        if value == Some(0) {
            return Err(Error::NothingLeft(limit));
        }
    }
    let wanted = Limits {
        memory_bytes: requested.memory_bytes,
        cpu_millis: requested.cpu_millis,
        // The user namespace enforces the limit on processes itself.
        pids: None,
    };
    let by_rlimit = "rlimit of the user namespace, for each user";
    let mut reports = vec![report(LimitName::Processes, Enforcement::Enforced, by_rlimit)];
    reports.extend(of_disk(disk, requested.disk_bytes.is_some()));
    let (group, refusals) = grouped(groups, wanted);
    let each = [
        (Limit::Memory, LimitName::Memory, wanted.memory_bytes),
        (Limit::Cpus, LimitName::Cpus, wanted.cpu_millis),
    ];
    for (limit, name, wanted) in each {
        if wanted.is_none() {
            continue;
        }
        let by = match refusals.iter().find(|refusal| refusal.limit == limit) {
            None => {
                let by = group.held_by(limit).unwrap_or("control group");
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
    Ok(Granted { group, reports })
}

fn of_disk(disk: Disk, is_limited: bool) -> Option<LimitReport> {
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
fn grouped(groups: Groups<'_>, wanted: Limits) -> (Group, Vec<Refusal>) {
    let name = cgroup::fresh_name();
    let refusals = match groups.create(&name, &wanted) {
        Ok(group) => return (group, Vec::new()),
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
        };
        let place = Place::settle();
        let spec = self::spec(limits, &[BestEffort::Memory, BestEffort::Cpus]);
        let granted = grant(Groups::At(&place), &spec, Disk::Layers).unwrap();
        let names: Vec<_> = granted.reports.iter().map(|report| &*report.name).collect();
        assert_eq!(names, ["pids", "disk", "memory", "cpus"]);
        let watched = Watched::of(&spec, &granted.reports);
        assert_eq!(watched.disk_bytes, Some(1 << 30));
        let memory = granted.reports[2].enforcement;
        assert_eq!(watched.memory_bytes.is_some(), memory == Enforcement::Watched);
        let strict = self::spec(limits, &[]);
        match grant(Groups::At(&place), &strict, Disk::Layers) {
            Ok(granted) => {
                let held = granted.reports[2..].iter().map(|report| report.enforcement);
                assert!(held.into_iter().all(|held| held == Enforcement::Enforced));
            }
            Err(Error::Limit { limit, reason, remedy }) => {
                assert_eq!(limit, LimitName::Memory);
                assert!(!reason.is_empty() && !remedy.of("true").is_empty());
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_is_no_limit() {
        let limits = sandbox::Limits { processes: Some(0), ..sandbox::Limits::default() };
        let refused = grant(Groups::Own, &spec(limits, &[]), Disk::Layers).unwrap_err();
        assert!(matches!(refused, Error::NothingLeft(LimitName::Processes)));
    }
}
