//! `stockade exec` and `stockade shell`: a command in a sandbox, with this program's streams.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use stockade_api::{CommandLine, Execute, GetSandbox, NetworkStatus};
use stockade_core::network::DeniedConnection;
use stockade_core::{SandboxId, Ttl};

use super::attach::{attach, set_terminal_kind, size};
use super::{absolute, find, secret};
use crate::args::sandbox::{Exec, Shell};
use crate::args::sandbox_flags::{UserArgument, VariableFlags};
use crate::commands::print::{escaped, notify, print, print_text};
use crate::problem::Failure;
use crate::remote::{self, Remote};
use crate::request::no_limit;
use crate::secrets;
use crate::stored_secrets;
use crate::terminal;
use crate::variables;

/// Runs a command; the exit code is the command's.
pub(crate) fn run(arguments: Exec) -> Result<u8, Failure> {
    let secrets = arguments.secrets;
    let set = variables::read(&arguments.variables)?;
    secrets::refuse_set_twice(&secrets.secret, |name| set.contains_key(name))?;
    let values = secrets::read(&secrets.secret)?;
    let mappings = stored_secrets::mappings(&arguments.secret_env)?;
    remote::with(arguments.server_mode, async |remote| {
        let id = find(&remote, &arguments.id).await?;
        if !values.is_empty() {
            secret::bind_and_give(&remote, &id, &secrets, values).await?;
        }
        let mut execute = Execute::new(id, command_line(arguments.command));
        execute.secrets = mappings;
        set_place(&remote, &mut execute, &arguments.variables, arguments.cwd, arguments.user)
            .await?;
        // `none` also overrides the time limit that the sandbox has for its commands.
        let timeout = arguments.timeout.map(|limit| limit.0.unwrap_or(Ttl::MAX));
        execute.timeout_seconds = timeout.map(|length| length.as_secs_f64());
        execute.output_limit_bytes = arguments.max_output.map(no_limit);
        if arguments.detach {
            let sandbox = execute.sandbox_id.clone();
            execute.input = arguments.interactive;
            execute.terminal = arguments.tty.then(size);
            if arguments.tty {
                set_terminal_kind(&mut execute);
            }
            let started = remote.sandboxes.execute_stream(&remote.idempotent(), execute).await?;
            if arguments.json {
                print(&started)?;
            } else {
                let name = format!("{sandbox}/{}", started.workflow_id.short());
                print_text(&format!("{name}\n"))?;
                notify(&format!(
                    "the command is running; follow its output: stockade logs {name} -f"
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
        let before = network_status(&remote, &id).await;
        let code = attach(&remote, execute, arguments.tty).await?;
        if let Some(before) = before.filter(|_| code != 0)
            && let Some(after) = network_status(&remote, &id).await
        {
            report_network(&id, &before, &after);
        }
        Ok(code)
    })
}

/// The command line of these words, which need not be UTF-8.
pub(super) fn command_line(words: Vec<OsString>) -> CommandLine {
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

/// How many denied connections of a command are printed.
const PRINTED: usize = 8;

/// The network of a sandbox; `None` if it has none, or its status cannot be read: the command runs in
/// any case.
async fn network_status(remote: &Remote, id: &SandboxId) -> Option<NetworkStatus> {
    let request = GetSandbox { id: id.clone(), metrics: false };
    let sandbox = remote.sandboxes.get_status(remote.caller(), request).await.ok()?;
    sandbox.network
}

/// Prints what the policy denied and what secrets lacked during a command: it may have failed because
/// of that.
fn report_network(id: &SandboxId, before: &NetworkStatus, after: &NetworkStatus) {
    if let Some(command) = secret::command_for_missing(id, &after.secrets) {
        notify(&format!("the values of secrets are missing; give them again: {command}"));
    }
    report_denied(id, &before.refused, &after.refused);
    if after.misdirected.iter().any(|sent| !before.misdirected.contains(sent)) {
        notify(&format!("the placeholder of a secret was sent elsewhere: stockade show {id}"));
    }
}

/// Prints the connections that were denied during a command: it may have failed because of that.
fn report_denied(id: &SandboxId, before: &[DeniedConnection], after: &[DeniedConnection]) {
    let new: Vec<_> = after.iter().filter(|denied| is_new(denied, before)).collect();
    for denied in new.iter().take(PRINTED) {
        let message = escaped(&denied.message);
        notify(&format!("a connection was refused by the network policy: {message}"));
        if let Some(host) = denied.allow.as_ref().and_then(|flag| flag.strip_prefix("--allow ")) {
            notify(&format!("allow it: stockade allow {id} {}", escaped(host)));
        }
    }
    if new.len() > PRINTED {
        let more = new.len() - PRINTED;
        notify(&format!("{more} more kinds of connections were refused: stockade show {id}"));
    }
}

/// Whether a connection was denied more often than before.
fn is_new(denied: &DeniedConnection, before: &[DeniedConnection]) -> bool {
    let same = |known: &&DeniedConnection| {
        (&known.host, known.port, known.reason, &known.message)
            == (&denied.host, denied.port, denied.reason, &denied.message)
    };
    before.iter().find(same).is_none_or(|known| denied.times > known.times)
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
