//! The status of a sandbox, as it is known here.

use std::time::Duration;

use stockade_core::ending::Ending;
use stockade_core::{Enforcement, ExecId, Isolation, Level, LimitReport};
use stockade_runtime::{ExecStatus, State, Status};
use stockade_runtime_remote::now_ms;

use crate::record::{ExecRecord, Record};

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
    let limit = |name: &String| LimitReport {
        name: name.clone().into(),
        enforcement: Enforcement::Refused,
        by: "Codeplane".to_owned(),
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
            reasons: vec![
                "Codeplane holds the workspace, and does not say how".to_owned(),
                "the workspace reaches the network".to_owned(),
            ],
        },
        execs: record.execs.iter().map(exec).collect(),
    }
}
