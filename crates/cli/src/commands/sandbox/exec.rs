//! `stockade exec` and `stockade shell`: a command in a sandbox, with this program's streams.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use stockade_api::{CommandLine, Execute, GetSandbox};
use stockade_core::SandboxId;

use super::attach::attach;
use super::{absolute, find, secret};
use crate::args::sandbox::{Exec, Shell};
use crate::args::sandbox_flags::{UserArgument, VariableFlags};
use crate::commands::print::{notify, print, print_text};
use crate::problem::Failure;
use crate::remote::{self, Remote};
use crate::request::no_limit;
use crate::secrets;
use crate::terminal;
use crate::variables;

/// Runs a command; the exit code is the command's.
pub(crate) fn run(arguments: Exec) -> Result<u8, Failure> {
    let secrets = arguments.secrets;
    let set = variables::read(&arguments.variables)?;
    secrets::refuse_set_twice(&secrets.secret, |name| set.contains_key(name))?;
    let values = secrets::read(&secrets.secret)?;
    remote::with(arguments.server_mode, async |remote| {
        let id = find(&remote, &arguments.id).await?;
        if !values.is_empty() {
            secret::bind_and_give(&remote, &id, &secrets, values).await?;
        }
        let mut execute = Execute::new(id, command_line(arguments.command));
        set_place(&remote, &mut execute, &arguments.variables, arguments.cwd, arguments.user)
            .await?;
        let timeout = arguments.timeout.and_then(|limit| limit.0);
        execute.timeout_seconds = timeout.map(|length| length.as_secs_f64());
        execute.output_limit_bytes = arguments.max_output.map(no_limit);
        if arguments.detach {
            let started = remote.sandboxes.execute_stream(&remote.idempotent(), execute).await?;
            if arguments.json {
                print(&started)?;
            } else {
                print_text(&format!("{}\n", started.workflow_id))?;
                notify(&format!(
                    "the command is running; follow its output: stockade logs {} -f",
                    started.workflow_id
                ));
            }
            return Ok(0);
        }
        if arguments.json {
            let executed = remote.sandboxes.execute(&remote.idempotent(), execute).await?;
            print(&executed)?;
            return Ok(executed.end.ending.process_exit_code(executed.end.exit_code));
        }
        let id = execute.sandbox_id.clone();
        let code = attach(&remote, execute, arguments.tty).await?;
        if code != 0 {
            hint_denied(&remote, id).await;
        }
        Ok(code)
    })
}

/// The command line of these words, which need not be UTF-8.
fn command_line(words: Vec<OsString>) -> CommandLine {
    let text = words.iter().map(|word| word.to_str().map(str::to_owned)).collect();
    match text {
        Some(text) => CommandLine::Program(text),
        None => CommandLine::Words(words.into_iter().map(|word| word.into_vec().into()).collect()),
    }
}

/// Sets the variables, the directory and the ids of a command.
async fn set_place(
    remote: &Remote,
    execute: &mut Execute,
    variables: &VariableFlags,
    cwd: Option<OsString>,
    user: Option<UserArgument>,
) -> Result<(), Failure> {
    execute.environment = variables::read(variables)?;
    if let Some(path) = cwd {
        let uid = user.map(|id| id.user);
        let path = absolute(remote, &execute.sandbox_id, uid, path.into_vec()).await?;
        execute.working_directory = Some(path.into());
    }
    execute.uid = user.map(|id| id.user);
    execute.gid = user.map(|id| id.group);
    Ok(())
}

/// If the network policy denied connections of a sandbox, prints how to list them: the command may
/// have failed because of that.
async fn hint_denied(remote: &Remote, id: SandboxId) {
    let request = GetSandbox { id: id.clone(), metrics: false };
    // The end of the command is reported in any case.
    let Ok(sandbox) = remote.sandboxes.get_status(remote.caller(), request).await else { return };
    let Some(network) = sandbox.network else { return };
    if let Some(command) = secret::command_for_missing(&id, &network.secrets) {
        notify(&format!("the values of secrets are missing; give them again: {command}"));
    }
    if !network.refused.is_empty() {
        notify(&format!("a connection was denied by the network policy: stockade show {id}"));
    } else if !network.misdirected.is_empty() {
        notify(&format!("the placeholder of a secret was sent elsewhere: stockade show {id}"));
    }
}

/// Opens a shell: bash if it exists. The shell has a terminal if this program's input is one.
pub(crate) fn shell(arguments: Shell) -> Result<u8, Failure> {
    remote::with(arguments.server_mode, async |remote| {
        let line = "if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi";
        let id = find(&remote, &arguments.id).await?;
        let mut execute = Execute::new(id, CommandLine::Shell(line.to_owned()));
        set_place(&remote, &mut execute, &arguments.variables, arguments.cwd, arguments.user)
            .await?;
        attach(&remote, execute, terminal::is_on_input()).await
    })
}
