//! `stockade ps` and `stockade wait`: the commands in sandboxes, and their ends.

use std::time::Duration;

use stockade_api::{CommandInfo, Ending, ListCommands, OperationStatus};
use stockade_core::ending::KILLED;
use stockade_core::{Code, Problem};

use super::command_name::{find_command, line, name};
use super::find;
use crate::args::live::{Ps, Wait};
use crate::commands::print::{escaped, notify, print, print_text};
use crate::problem::Failure;
use crate::remote::{self, Remote};

/// How many characters of a command line are printed.
const LINE_LENGTH: usize = 80;

/// Prints the list.
pub(crate) fn run(arguments: Ps) -> Result<u8, Failure> {
    let list = remote::with(arguments.server_mode, async |remote| {
        let sandbox_id = match &arguments.id {
            None => None,
            Some(id) => Some(find(&remote, id).await?),
        };
        let request = ListCommands { sandbox_id, ended: arguments.all };
        Ok(remote.sandboxes.commands(remote.caller(), request).await?)
    })?;
    if arguments.json {
        print(&list)?;
    } else if arguments.quiet {
        let names = list.commands.iter().map(|command| format!("{}\n", name(command)));
        print_text(&names.collect::<String>())?;
    } else if list.commands.is_empty() {
        notify(match arguments.all {
            true => "no commands; start one: stockade exec --detach ID -- COMMAND",
            false => "no commands are running; list those that have ended: stockade ps --all",
        });
    } else {
        print_text(&table(&list.commands))?;
    }
    if list.more && !arguments.json {
        notify("older commands are not listed; name a sandbox");
    }
    Ok(0)
}

fn table(commands: &[CommandInfo]) -> String {
    let row = |command: &CommandInfo| {
        [
            name(command),
            state(command),
            format!("{:.0}", command.created_at),
            shortened(&escaped(&line(&command.command))),
        ]
    };
    let head = ["ID", "STATE", "CREATED", "COMMAND"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(commands.iter().map(row)).collect();
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<_> = (0..4).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// The state of a command, with its exit code when it has ended.
fn state(command: &CommandInfo) -> String {
    let code = command.exit_code.map(|code| format!(" ({code})")).unwrap_or_default();
    let word = match (command.status, command.ending) {
        (OperationStatus::Waiting, _) => "waiting",
        (OperationStatus::Running, _) => "running",
        (OperationStatus::Cancelled, _) | (_, Some(Ending::Killed)) => "killed",
        (_, Some(Ending::TimedOut)) => "timed out",
        (OperationStatus::Succeeded, _) => "exited",
        (OperationStatus::Failed, _) => "failed",
    };
    format!("{word}{code}")
}

fn shortened(line: &str) -> String {
    match line.char_indices().nth(LINE_LENGTH) {
        None => line.to_owned(),
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}

/// Waits for the end of commands. The exit code is that of the last one that is named.
pub(crate) fn wait(arguments: Wait) -> Result<u8, Failure> {
    let (ended, failure) = remote::with(arguments.server_mode, async |remote| {
        let all = wait_for_all(&remote, &arguments.commands);
        match arguments.timeout {
            None => all.await,
            Some(timeout) => match tokio::time::timeout(timeout, all).await {
                Ok(ended) => ended,
                Err(_) => Err(timed_out(timeout).into()),
            },
        }
    })?;
    if arguments.json {
        print(&serde_json::json!({ "commands": ended }))?;
    }
    match failure {
        Some(failure) => Err(failure),
        None => Ok(ended.last().map_or(0, exit_code)),
    }
}

fn timed_out(timeout: Duration) -> Problem {
    Problem::new(Code::TimedOut, format!("the command has not ended within {timeout:?}"))
        .because("it continues")
        .remedied_by("stockade ps")
}

/// The ended commands, and the failure of the last one that failed.
async fn wait_for_all(
    remote: &Remote,
    names: &[String],
) -> Result<(Vec<CommandInfo>, Option<Failure>), Failure> {
    let mut found = Vec::new();
    for name in names {
        found.push(find_command(remote, name).await?);
    }
    let (mut ended, mut failure) = (Vec::new(), None);
    for command in found {
        let id = command.workflow_id.clone();
        let record = loop {
            let record = remote.sandboxes.wait_operation(remote.caller(), id.clone()).await?;
            if !matches!(record.status, OperationStatus::Waiting | OperationStatus::Running) {
                break record;
            }
        };
        let end: Option<stockade_api::OutputEnd> =
            record.result.and_then(|result| serde_json::from_value(result).ok());
        failure =
            record.error.filter(|_| record.status == OperationStatus::Failed).map(Failure::from);
        ended.push(CommandInfo {
            status: record.status,
            ending: end.as_ref().map(|end| end.ending),
            exit_code: end.and_then(|end| end.exit_code),
            ..command
        });
    }
    Ok((ended, failure))
}

/// The exit code of a program that reports a command's end as its own.
fn exit_code(command: &CommandInfo) -> u8 {
    match (command.status, command.ending) {
        (OperationStatus::Cancelled, None) => KILLED,
        (_, ending) => ending.unwrap_or(Ending::Unknown).process_exit_code(command.exit_code),
    }
}
