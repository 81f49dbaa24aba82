//! The limits of a sandbox: what holds each, and what is looked at where nothing does.

use std::time::Duration;

use stockade_core::sandbox::LimitName;
use stockade_core::{Enforcement, LimitReport, SandboxSpec};
use stockade_jail::cgroup::{self, Group, Limit, Limits, Place, Refusal};
use stockade_jail::watch;

use crate::native::wire::Failure;

/// How long until memory is looked at again after a sandbox has used too much.
pub(super) const MEMORY_INTERVAL: Duration = Duration::from_millis(100);
/// How often the disk is looked at, at most.
pub(super) const DISK_INTERVAL: Duration = Duration::from_millis(250);
/// How often it is while it holds too much.
pub(super) const EXCESS_INTERVAL: Duration = Duration::from_millis(20);

/// Who asks for limits, in remedies: the keeper lives in the control group that it was started in. One
/// that lives already ends a minute after its last sandbox.
pub(super) const STARTER: &str = "stockade serve";

/// The limits of a sandbox, as far as they can be held.
#[derive(Debug)]
pub(super) struct Granted {
    /// The control groups that hold them.
    pub(super) group: Group,
    /// How each is held.
    pub(super) reports: Vec<LimitReport>,
}

/// Limits that are looked at, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Watched {
    /// How much memory all processes together may use.
    pub(super) memory_bytes: Option<u64>,
    /// How much the layers may take on disk.
    pub(super) disk_bytes: Option<u64>,
}

impl Watched {
    /// What of a sandbox's limits has to be looked at.
    pub(super) fn of(spec: &SandboxSpec, reports: &[LimitReport]) -> Self {
        let watched = |limit: LimitName, value: Option<u64>| {
            let is_it = |report: &LimitReport| {
                report.name == name(limit) && report.enforcement == Enforcement::Watched
            };
            value.filter(|_| reports.iter().any(is_it))
        };
        Self {
            memory_bytes: watched(LimitName::Memory, spec.limits.memory_bytes),
            disk_bytes: watched(LimitName::Disk, spec.limits.disk_bytes),
        }
    }
}

/// Makes the control groups of a sandbox, and refuses what cannot be held unless it was left to
/// best effort.
pub(super) fn grant(place: &Place, spec: &SandboxSpec) -> Result<Granted, Failure> {
    let asked = &spec.limits;
    let values = [asked.memory_bytes, asked.cpu_millis, asked.processes, asked.disk_bytes];
    if values.contains(&Some(0)) {
        return Err(Failure::Invalid("a limit of 0 leaves nothing to run".to_owned()));
    }
    let wanted = Limits {
        memory_bytes: asked.memory_bytes,
        cpu_millis: asked.cpu_millis,
        // The user namespace counts processes itself.
        pids: None,
    };
    let by_rlimit = "rlimit of the user namespace, for each user";
    let mut reports = vec![report(LimitName::Processes, Enforcement::Enforced, by_rlimit)];
    if asked.disk_bytes.is_some() {
        let what = "what its layers take on disk";
        reports.push(report(LimitName::Disk, Enforcement::Watched, what));
    }
    let (group, refusals) = grouped(place, wanted);
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
            Some(refusal) if !spec.best_effort.contains(&name) => {
                let (reason, remedy) = (refusal.reason.clone(), refusal.remedy.of(STARTER));
                return Err(Failure::Limit { limit: name, reason, remedy });
            }
            Some(refusal) => &refusal.reason,
        };
        let watched = limit == Limit::Memory && watch::memory_of_tree(own_process()).is_ok();
        let enforcement = if watched { Enforcement::Watched } else { Enforcement::Refused };
        reports.push(report(name, enforcement, by));
    }
    Ok(Granted { group, reports })
}

/// Groups for as many of the limits as can be held, and the others' refusals.
fn grouped(place: &Place, wanted: Limits) -> (Group, Vec<Refusal>) {
    let name = cgroup::fresh_name();
    let refusals = match place.create(&name, &wanted) {
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
    match place.create(&name, &rest) {
        Ok(group) => (group, refusals),
        Err(unavailable) => (Group::default(), [refusals, unavailable.refusals].concat()),
    }
}

fn own_process() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

fn report(limit: LimitName, enforcement: Enforcement, by: &str) -> LimitReport {
    LimitReport { name: name(limit).into(), enforcement, by: by.to_owned() }
}

/// The name of a limit in reports.
const fn name(limit: LimitName) -> &'static str {
    match limit {
        LimitName::Processes => "pids",
        other => other.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use stockade_core::sandbox;

    use super::*;

    fn spec(limits: sandbox::Limits, best_effort: &[LimitName]) -> SandboxSpec {
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
        let spec = self::spec(limits, &[LimitName::Memory, LimitName::Cpus]);
        let granted = grant(&place, &spec).unwrap();
        let names: Vec<_> = granted.reports.iter().map(|report| &*report.name).collect();
        assert_eq!(names, ["pids", "disk", "memory", "cpus"]);
        let watched = Watched::of(&spec, &granted.reports);
        assert_eq!(watched.disk_bytes, Some(1 << 30));
        let memory = granted.reports[2].enforcement;
        assert_eq!(watched.memory_bytes.is_some(), memory == Enforcement::Watched);
        let strict = self::spec(limits, &[]);
        match grant(&place, &strict) {
            Ok(granted) => {
                let held = granted.reports[2..].iter().map(|report| report.enforcement);
                assert!(held.into_iter().all(|held| held == Enforcement::Enforced));
            }
            Err(Failure::Limit { limit, reason, remedy }) => {
                assert_eq!(limit, LimitName::Memory);
                assert!(!reason.is_empty() && !remedy.is_empty());
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_is_no_limit() {
        let limits = sandbox::Limits { processes: Some(0), ..sandbox::Limits::default() };
        let refused = grant(&Place::settle(), &spec(limits, &[])).unwrap_err();
        assert!(matches!(refused, Failure::Invalid(_)));
    }
}
