//! `stockade logs`: the output of a detached command, unchanged.

use std::io::Write as _;

use stockade_api::{OperationId, OutputChunk, ReadOutput};
use stockade_core::{Code, Problem};

use super::attach;
use super::command_name::{find_command, is_operation};
use crate::args::sandbox::Logs;
use crate::commands::print::{notify, print_bytes, print_line};
use crate::commands::workflow::events::{EventFilter, print_events};
use crate::commands::workflow::holder::{self, RunName};
use crate::problem::Failure;

/// Prints it; with `--follow` the exit code is the command's.
pub(crate) fn run(arguments: Logs) -> Result<u8, Failure> {
    holder::with_run(arguments.server_mode, RunName::Exact(&arguments.operation), async |remote| {
        let Logs { follow, json, .. } = arguments;
        let task = arguments.task.as_deref();
        let wanted = EventFilter { from: 0, follow, console: true, kind: None, task, json };
        if print_events(&remote, &arguments.operation, wanted).await? {
            return Ok(0);
        }
        if let Some(task) = task {
            let message = format!("there is no workflow run {}", arguments.operation);
            let why = format!("only runs have tasks, such as {task}");
            return Err(Problem::new(Code::NotFound, message).because(why).into());
        }
        let workflow_id = match is_operation(&arguments.operation) {
            true => OperationId(arguments.operation.clone()),
            false => find_command(&remote, &arguments.operation).await?.workflow_id,
        };
        let mut request =
            ReadOutput { workflow_id, from: 0, follow: arguments.follow, from_sandbox: false };
        let mut output = remote.sandboxes.read_output(remote.caller(), request.clone()).await?;
        let (mut code, mut asked_again_at) = (0, None);
        while let Some(item) = output.next().await {
            let item = match item {
                Ok(item) => item,
                // The server has ended. The next server has the remaining output.
                Err(gone)
                    if gone.code == Code::Unreachable && asked_again_at != Some(request.from) =>
                {
                    asked_again_at = Some(request.from);
                    output = remote.sandboxes.read_output(remote.caller(), request.clone()).await?;
                    continue;
                }
                Err(problem) => return Err(problem.into()),
            };
            request.from = item.sequence + 1;
            if let OutputChunk::Exit(end) = &item.chunk
                && arguments.follow
            {
                code = end.ending.process_exit_code(end.exit_code);
            }
            if arguments.json {
                print_line(&item)?;
                continue;
            }
            match item.chunk {
                OutputChunk::Stdout { data } => print_bytes(&data.0)?,
                // If stderr has no reader, the failure cannot be reported.
                OutputChunk::Stderr { data } => drop(std::io::stderr().write_all(&data.0)),
                OutputChunk::Truncated { bytes } => {
                    notify(&format!("{bytes} bytes of the output were not stored"));
                }
                OutputChunk::Exit(end) => {
                    attach::report_failure(&end);
                    let code = end.ending.process_exit_code(end.exit_code);
                    attach::report_refused_calls(&end, code);
                }
            }
        }
        Ok(code)
    })
}
