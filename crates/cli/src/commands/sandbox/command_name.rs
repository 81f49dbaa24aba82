//! Names of commands in sandboxes: `ID/COMMAND`, as `stockade ps` prints them.

use stockade_api::{CommandInfo, CommandLine, ListCommands, OperationStatus};
use stockade_core::{Code, Problem};
use stockade_review::messages::shell_quote;

use super::find;
use crate::problem::Failure;
use crate::remote::Remote;

/// Whether a text is an operation's id in full.
pub(super) fn is_operation(name: &str) -> bool {
    let is_hash = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    match name.strip_prefix("key-") {
        Some(hash) => hash.len() == 40 && is_hash(hash),
        None => name.len() == 32 && is_hash(name),
    }
}

/// The name of a command.
pub(super) fn name(command: &CommandInfo) -> String {
    format!("{}/{}", command.sandbox_id, command.id)
}

/// A command line as one text.
pub(super) fn line(command: &CommandLine) -> String {
    match command {
        CommandLine::Shell(line) => line.clone(),
        CommandLine::Program(words) => quoted(words.iter().map(String::as_bytes)),
        CommandLine::Words(words) => quoted(words.iter().map(|word| word.0.as_slice())),
    }
}

fn quoted<'w>(words: impl Iterator<Item = &'w [u8]>) -> String {
    words.map(shell_quote).collect::<Vec<_>>().join(" ")
}

/// Finds a command by its name, its operation's id, or the id of a sandbox in which no other
/// command runs.
pub(super) async fn find_command(remote: &Remote, name: &str) -> Result<CommandInfo, Failure> {
    if let Some((sandbox, command)) = name.split_once('/') {
        let id = find(remote, sandbox).await?;
        let hint = format!("stockade ps --all {id}");
        let request = ListCommands { sandbox_id: Some(id), ended: true };
        let known = remote.sandboxes.commands(remote.caller(), request).await?.commands;
        return Ok(select(&known, command, &hint)?);
    }
    let request = ListCommands { sandbox_id: None, ended: true };
    let known = remote.sandboxes.commands(remote.caller(), request).await?.commands;
    let missing = match select(&known, name, "stockade ps --all") {
        Err(problem) if problem.code == Code::NotFound => problem,
        found => return Ok(found?),
    };
    let Ok(id) = find(remote, name).await else { return Err(missing.into()) };
    let mut running = known
        .into_iter()
        .filter(|command| command.sandbox_id == id && command.status == OperationStatus::Running);
    match (running.next(), running.next()) {
        (Some(command), None) => Ok(command),
        (None, _) => {
            let message = format!("no command runs in the sandbox {id}");
            Err(Problem::new(Code::NotFound, message)
                .remedied_by(format!("stockade ps --all {id}"))
                .into())
        }
        _ => {
            let message = format!("several commands run in the sandbox {id}");
            Err(Problem::new(Code::InvalidInput, message)
                .because("the name of one of them is needed")
                .remedied_by(format!("stockade ps {id}"))
                .into())
        }
    }
}

/// The command with this id, or the only one whose id starts with it; `latest` is the newest.
fn select(known: &[CommandInfo], id: &str, hint: &str) -> Result<CommandInfo, Problem> {
    let not_found =
        || Problem::new(Code::NotFound, format!("there is no command {id}")).remedied_by(hint);
    let is_exact = |command: &&CommandInfo| command.workflow_id.0 == id;
    if let Some(exact) = known.iter().find(is_exact) {
        return Ok(exact.clone());
    }
    if id == "latest" {
        return known.first().cloned().ok_or_else(not_found);
    }
    if id.is_empty() {
        return Err(not_found());
    }
    let starts = |command: &&CommandInfo| {
        command.id.starts_with(id) || (id.len() > 4 && command.workflow_id.0.starts_with(id))
    };
    let found: Vec<_> = known.iter().filter(starts).collect();
    match found.as_slice() {
        [] => Err(not_found()),
        [one] => Ok((*one).clone()),
        several => {
            let names: Vec<_> = several.iter().map(|command| name(command)).collect();
            let message = format!("{id} is the prefix of several commands: {}", names.join(", "));
            Err(Problem::new(Code::InvalidInput, message).remedied_by(hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn command(id: &str, workflow: &str) -> CommandInfo {
        serde_json::from_value(json!({
            "id": id, "workflowId": workflow, "sandboxId": "g", "command": ["x"],
            "status": "running", "detached": true, "terminal": false, "input": false,
            "createdAt": "2026-01-01T00:00:00Z",
        }))
        .unwrap()
    }

    #[test]
    fn a_command_is_found_by_each_of_its_ids_and_never_by_two() {
        let known = [command("abcd0000", "key-abcd0000ff"), command("abce0000", "key-abce0000ff")];
        let found = |id: &str| select(&known, id, "hint").map(|command| command.id);
        assert_eq!(found("abcd0000").unwrap(), "abcd0000");
        assert_eq!(found("abce").unwrap(), "abce0000");
        assert_eq!(found("key-abcd0000ff").unwrap(), "abcd0000");
        assert_eq!(found("key-abcd0").unwrap(), "abcd0000");
        assert_eq!(found("latest").unwrap(), "abcd0000");
        assert_eq!(found("abc").unwrap_err().code, Code::InvalidInput);
        assert_eq!(found("key-").unwrap_err().code, Code::NotFound);
        assert_eq!(found("").unwrap_err().code, Code::NotFound);
        assert_eq!(found("x").unwrap_err().code, Code::NotFound);
    }

    #[test]
    fn operations_are_told_from_sandboxes() {
        assert!(is_operation("key-0123456789abcdef0123456789abcdef01234567"));
        assert!(is_operation("0199a0b0c0d0700080000000f00dcafe"));
        for other in
            ["key-0123", "key", "g", "abcdefabcdef", "key-0123456789ABCDEF0123456789abcdef01234567"]
        {
            assert!(!is_operation(other), "{other}");
        }
    }

    #[test]
    fn lines_can_be_pasted() {
        let words = ["sh", "-c", "it's", ""].map(str::to_owned).to_vec();
        assert_eq!(line(&CommandLine::Program(words)), r"sh -c 'it'\''s' ''");
    }
}
