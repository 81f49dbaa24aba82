//! `stockade exec` and `stockade shell`: a command in a sandbox, with this program's streams.

use stockade_api::{CommandLine, Execute, GetSandbox};
use stockade_core::SandboxId;

use super::attach::{attach, set_terminal_kind, size};
use super::find;
use crate::args::sandbox::{Exec, Shell};
use crate::args::sandbox_flags::Pair;
use crate::commands::print::{notify, print, print_text};
use crate::problem::Failure;
use crate::remote::{self, Remote};
use crate::terminal;

/// Runs a command; the exit code is the command's.
pub(crate) fn run(arguments: Exec) -> Result<u8, Failure> {
    remote::with(arguments.server_mode, async |remote| {
        let mut execute = Execute::new(
            find(&remote, &arguments.id).await?,
            CommandLine::Program(arguments.command),
        );
        execute.environment =
            arguments.env.into_iter().map(|Pair(name, value)| (name, value)).collect();
        execute.working_directory = arguments.cwd;
        execute.uid = arguments.user;
        execute.timeout_seconds = arguments.timeout.map(|length| length.as_secs_f64());
        execute.output_limit_bytes = arguments.max_output;
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
        let code = attach(&remote, execute, arguments.tty).await?;
        if code != 0 {
            hint_denied(&remote, id).await;
        }
        Ok(code)
    })
}

/// If the network policy denied connections of a sandbox, prints how to list them: the command may
/// have failed because of that.
async fn hint_denied(remote: &Remote, id: SandboxId) {
    let request = GetSandbox { id: id.clone(), metrics: false };
    // The end of the command is reported in any case.
    let Ok(sandbox) = remote.sandboxes.get_status(remote.caller(), request).await else { return };
    if sandbox.network.is_some_and(|network| !network.refused.is_empty()) {
        notify(&format!("a connection was denied by the network policy: stockade show {id}"));
    }
}

/// Opens a shell: bash if it exists. The shell has a terminal if this program's input is one.
pub(crate) fn shell(arguments: Shell) -> Result<u8, Failure> {
    remote::with(arguments.server_mode, async |remote| {
        let line = "if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi";
        let id = find(&remote, &arguments.id).await?;
        let mut execute = Execute::new(id, CommandLine::Shell(line.to_owned()));
        execute.uid = arguments.user;
        attach(&remote, execute, terminal::is_on_input()).await
    })
}
