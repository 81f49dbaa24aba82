//! The status of a sandbox, as it is known here.

use std::time::Duration;

use stockade_core::ending::Ending;
use stockade_core::{Enforcement, ExecId, Isolation, Level, LimitReport};
use stockade_runtime::{EndCause, ExecStatus, State, Status};
use stockade_runtime_remote::now_ms;

use crate::record::{ExecRecord, Record};

pub(crate) fn mark_lease(record: Record) -> Record {
    match record.lease_until_ms {
        Some(until) if until <= now_ms() => mark_ended(record, EndCause::LeaseExpired),
        _ => record,
    }
}

pub(crate) fn mark_ended(mut record: Record, cause: EndCause) -> Record {
    let reason = match cause {
        EndCause::LeaseExpired => "its lease expired",
        EndCause::Requested => "a client requested it",
        EndCause::HostRestarted | EndCause::ProcessesLost => "its processes were lost",
    };
    record.ended.get_or_insert_with(|| (cause, reason.to_owned()));
    record
}

pub(crate) fn status(record: &Record) -> Status {
    let state = match (&record.ended, &record.remote) {
        (Some(_), _) => State::Ended,
        (None, None) => State::Creating,
        (None, Some(_)) => State::Running,
    };
    let left = record.lease_until_ms.filter(|_| record.ended.is_none());
    let exec = |(id, exec): (&ExecId, &ExecRecord)| ExecStatus {
        id: id.clone(),
        ending: exec.ending.clone().or_else(|| {
            record.ended.as_ref().map(|_| exec.cause.clone().unwrap_or(Ending::SandboxEnded))
        }),
        written: exec.written,
    };
    let limit = |(name, _): &(String, bool)| LimitReport {
        name: name.clone().into(),
        enforcement: Enforcement::Refused,
        by: "the server".to_owned(),
    };
    Status {
        id: record.id.clone(),
        state,
        reason: record.ended.as_ref().map(|(_, reason)| reason.clone()),
        end_cause: record.ended.as_ref().map(|(cause, _)| *cause),
        labels: record.labels.clone(),
        created_at_ms: record.created_at_ms,
        lease_left: left.map(|until| Duration::from_millis(until.saturating_sub(now_ms()))),
        isolation: Isolation {
            level: Level::Reduced,
            walls: Vec::new(),
            limits: record.limits.iter().map(limit).collect(),
            reasons: vec!["the server holds the sandbox, and does not say how".to_owned()],
        },
        execs: record.execs.iter().map(exec).collect(),
    }
}
