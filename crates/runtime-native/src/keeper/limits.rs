//! Changes of the limits of a running sandbox: of its control groups, of what is watched, and of the
//! commands that init starts from then on.

use stockade_core::sandbox::{LimitChange, LimitName, Limits};
use stockade_core::{Enforcement, LimitReport};
use stockade_jail::cgroup::{self, ChangeRefused, Limit};
use stockade_jail::control::{CommandLimits, Request};
use stockade_plan::limits::{PROCESSES, WatchedLimits};

use super::context::Context;
use super::jail::Jail;
use super::sandbox::Sandbox;
use crate::wire::Failure;

impl Sandbox {
    /// Changes limits, all or none. The limits of a container are those of its engine, which has changed
    /// them.
    pub(super) fn change_limits(
        &mut self,
        context: &mut Context,
        change: &LimitChange,
    ) -> Result<(), Failure> {
        if let Some((limit, _)) = change.each().find(|(_, value)| *value == 0) {
            return Err(Failure::Invalid(format!("the limit `{limit}` must not be 0")));
        }
        let (state, is_container) = (self.state(), self.record.is_container);
        let before = self.record.spec.limits;
        let after = before.with(change);
        let jail = self.jail().ok_or(Failure::WrongState(state))?;
        let old_reports = jail.record.isolation.limits.clone();
        let old_values = enforced(jail, &before, &LimitChange::of(&before));
        if !is_container {
            let new_values = check(jail, &after, change)?;
            jail.group.change(&old_values, &new_values).map_err(|error| refused(&error))?;
            report_new(jail, &new_values, None);
        } else {
            let values = cgroup::Limits {
                memory_bytes: change.memory_bytes,
                cpu_millis: change.cpu_millis,
                pids: None,
            };
            report_new(jail, &values, Some(BY_ENGINE));
        }
        self.record.groups = self.jail().map(|jail| jail.group.to_record()).unwrap_or_default();
        self.record.spec.limits = after;
        if let Err(failure) = self.write_record() {
            // The next keeper would know only the old limits.
            self.record.spec.limits = before;
            if let Some(jail) = self.jail() {
                let _ = jail.group.change(&cgroup::Limits::default(), &old_values);
                jail.record.isolation.limits = old_reports;
            }
            return Err(failure);
        }
        let reports = self.jail().map(|jail| jail.record.isolation.limits.clone());
        self.watched = WatchedLimits::new(&self.record.spec, &reports.unwrap_or_default());
        if !is_container {
            self.send(context, Request::Limits(of_commands(&after)), Vec::new());
        }
        Ok(())
    }
}

/// The limits with which init starts commands.
fn of_commands(limits: &Limits) -> CommandLimits {
    let processors = limits.cpu_millis.and_then(|millis| u32::try_from(millis.div_ceil(1000)).ok());
    CommandLimits { processes: limits.processes.unwrap_or(PROCESSES), processors }
}

/// The new values for the control groups, if every change is possible by its kind.
fn check(jail: &Jail, after: &Limits, change: &LimitChange) -> Result<cgroup::Limits, Failure> {
    let impossible = |limit, reason: String| Failure::Limit {
        limit,
        reason,
        remedy: ANOTHER_SANDBOX.to_owned(),
    };
    for (limit, _) in change.each() {
        if !jail.record.takes_limits {
            let reason = "an older version of Stockade has started the sandbox".to_owned();
            let remedy = "stop and start the sandbox".to_owned();
            return Err(Failure::Limit { limit, reason, remedy });
        }
        if let Some(LimitReport { enforcement: Enforcement::Refused, by, .. }) = report(jail, limit)
        {
            return Err(impossible(limit, by.clone()));
        }
    }
    Ok(enforced(jail, after, change))
}

/// The values of the limits in a change that control groups enforce, or will.
fn enforced(jail: &Jail, values: &Limits, change: &LimitChange) -> cgroup::Limits {
    let is_watched = |limit| {
        report(jail, limit).is_some_and(|report| report.enforcement == Enforcement::Watched)
    };
    cgroup::Limits {
        memory_bytes: change
            .memory_bytes
            .and(values.memory_bytes)
            .filter(|_| !is_watched(LimitName::Memory)),
        cpu_millis: change.cpu_millis.and(values.cpu_millis),
        // The limit of each process holds in any case.
        pids: change.processes.and(values.processes).filter(|_| jail.group.can_limit(Limit::Pids)),
    }
}

fn report(jail: &Jail, limit: LimitName) -> Option<&LimitReport> {
    jail.record.isolation.limits.iter().find(|report| report.name == limit.as_str())
}

/// Reports the limits that the sandbox did not have before, and what enforces them if that is no control
/// group.
fn report_new(jail: &mut Jail, values: &cgroup::Limits, by: Option<&str>) {
    let Jail { group, record, .. } = jail;
    let reports = &mut record.isolation.limits;
    for (limit, name, value) in [
        (Limit::Memory, LimitName::Memory, values.memory_bytes),
        (Limit::Cpus, LimitName::Cpus, values.cpu_millis),
    ] {
        if value.is_some() && reports.iter().all(|report| report.name != name.as_str()) {
            reports.push(LimitReport {
                name: name.as_str().into(),
                enforcement: Enforcement::Enforced,
                by: by.or_else(|| group.enforcer(limit)).unwrap_or("control group").to_owned(),
            });
        }
    }
}

/// What enforces the limits of a container.
const BY_ENGINE: &str = "the engine of the container";
/// The remedy for a limit that cannot be changed.
const ANOTHER_SANDBOX: &str = "create another sandbox with that limit";

fn refused(error: &ChangeRefused) -> Failure {
    let limit = match error.limit() {
        Limit::Memory => LimitName::Memory,
        Limit::Cpus => LimitName::Cpus,
        Limit::Pids => LimitName::Processes,
    };
    let (reason, remedy) = match error {
        ChangeRefused::Absent(_) => (error.to_string(), ANOTHER_SANDBOX),
        ChangeRefused::NotGiven { source, .. } => (format!("{error}: {source}"), ANOTHER_SANDBOX),
        ChangeRefused::InUse { .. } => {
            (error.to_string(), "choose a larger limit, or end commands that use memory")
        }
        ChangeRefused::Kernel { source, .. } => {
            (format!("{error}: {source}"), "choose a value within the limit of the parent group")
        }
    };
    Failure::Limit { limit, reason, remedy: remedy.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_commands_start_on_as_many_processors_as_the_limit_needs() {
        let limits = |cpu_millis| Limits { cpu_millis, ..Limits::default() };
        let processors = |cpu_millis| of_commands(&limits(cpu_millis)).processors;
        assert_eq!([Some(500), Some(1000), Some(1001)].map(processors), [1, 1, 2].map(Some));
        assert_eq!(of_commands(&limits(None)), CommandLimits { processes: 4096, processors: None });
    }

    #[test]
    fn a_refused_change_names_the_limit_and_what_helps() {
        let in_use = refused(&ChangeRefused::InUse { used: 9, limit: 5 });
        let Failure::Limit { limit: LimitName::Memory, reason, remedy } = in_use else {
            panic!("{in_use:?}");
        };
        assert!(reason.contains("9 bytes") && remedy.contains("larger"), "{reason}: {remedy}");
        let absent = refused(&ChangeRefused::Absent(Limit::Cpus));
        assert!(matches!(absent, Failure::Limit { limit: LimitName::Cpus, .. }), "{absent:?}");
    }
}
