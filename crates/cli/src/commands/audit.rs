//! `stockade audit`: lists, checks and exports the audit records. They are files of this user, so no
//! server is needed.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::AsFd as _;

use serde_json::Value;
use stockade_audit::{Decision, Phase, Record, Records, Report, api_activity, verify};
use stockade_bundle::data::DataDir;
use stockade_core::{Code, Problem};

use super::print::{notify, print, print_line, print_text};
use crate::args::audit::{Audit, AuditCommand, AuditExport, AuditFormat, AuditList, AuditVerify};
use crate::audit::{audit_problem, keys};
use crate::data_dir::{data_path, find_data_dir};
use crate::problem::{Failure, caused};
use crate::table::Table;

/// Lists, checks or exports records.
pub(super) fn run(arguments: &Audit) -> Result<u8, Failure> {
    match &arguments.what {
        AuditCommand::Ls(arguments) => list(arguments),
        AuditCommand::Verify(arguments) => check(arguments),
        AuditCommand::Export(arguments) => export(arguments),
    }
}

/// The records of the data directory, if there are any.
fn records() -> Result<Option<Records<File>>, Problem> {
    match find_data_dir(&data_path()?)? {
        Some(data) => Records::open(data.as_fd()).map_err(|error| audit_problem(&error)),
        None => Ok(None),
    }
}

fn list(arguments: &AuditList) -> Result<u8, Failure> {
    let mut last: VecDeque<Record> = VecDeque::new();
    for record in records()?.into_iter().flatten() {
        let record = record.map_err(|error| caused(Code::Io, &error))?;
        let is_refused = matches!(record.entry.decision, Decision::Refused | Decision::Failed);
        if arguments.refused && !is_refused {
            continue;
        }
        last.push_back(record);
        if last.len() > arguments.limit {
            last.pop_front();
        }
    }
    if arguments.common.json {
        print(&last)?;
        return Ok(0);
    }
    if last.is_empty() {
        notify("no audit records");
        return Ok(0);
    }
    let mut table =
        Table::new(["SEQ", "TIME", "DOOR", "OWNER", "KEY", "OPERATION", "DECISION", "WHAT"]);
    for record in &last {
        let entry = &record.entry;
        let what: Vec<_> = entry
            .details
            .iter()
            .filter(|(name, _)| name.as_str() != "of")
            .map(|(name, value)| format!("{name}={}", text(value)))
            .chain(entry.reason.as_ref().map(|reason| format!("[{}]", reason.code)))
            .collect();
        let decision = match entry.phase {
            Phase::Started => format!("{} (start)", name(&entry.decision)),
            Phase::Ended => name(&entry.decision),
        };
        let what: String = what.join(" ").chars().take(200).collect();
        table.row([
            record.seq.to_string(),
            format!("{:.0}", entry.time),
            name(&entry.actor.door),
            entry.actor.owner.as_ref().map(ToString::to_string).unwrap_or_default(),
            entry.actor.key_id.clone().unwrap_or_default(),
            entry.operation.clone(),
            decision,
            what,
        ]);
    }
    print_text(&table.text())?;
    Ok(0)
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

/// The name of a value, as in its JSON.
fn name(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

fn check(arguments: &AuditVerify) -> Result<u8, Failure> {
    let path = data_path()?;
    let Some(data) = find_data_dir(&path)? else {
        let message = format!("there is no data directory {}", path.display());
        return Err(Problem::new(Code::NotFound, message).into());
    };
    let report = verified(&data)?;
    if arguments.common.json {
        print(&report)?;
    } else {
        show(&report)?;
    }
    Ok(u8::from(!report.valid))
}

fn verified(data: &DataDir) -> Result<Report, Problem> {
    let path = data.real_path().map_err(|error| caused(Code::Io, &error))?;
    verify(data.as_fd(), &path, keys().as_ref()).map_err(|error| audit_problem(&error))
}

fn show(report: &Report) -> Result<(), Failure> {
    let Report { records, signed, .. } = report;
    for finding in &report.findings {
        let line = finding.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        print_text(&format!("{line}{}\n", finding.message))?;
    }
    if !report.valid {
        notify(&format!("the audit records are not intact: {} findings", report.findings.len()));
        return Ok(());
    }
    let signatures = match &report.public_key {
        Some(key) if signed == records => format!("all signed with the key {key}"),
        Some(key) => format!("{signed} of them signed with the key {key}"),
        None => "not signed, because this user has no key for them".to_owned(),
    };
    print_text(&format!("{records} audit records, {signatures}\n"))
}

fn export(arguments: &AuditExport) -> Result<u8, Failure> {
    for record in records()?.into_iter().flatten() {
        let record = record.map_err(|error| caused(Code::Io, &error))?;
        match arguments.format {
            AuditFormat::Ocsf => print_line(&api_activity(&record))?,
            AuditFormat::Json => print_line(&record)?,
        }
    }
    Ok(0)
}
