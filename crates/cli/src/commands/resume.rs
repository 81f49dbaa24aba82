//! `stockade resume`: continues a failed or interrupted run, or a paused sandbox.

use stockade_api::{LATEST, ResumeRun, RunStatus};

use super::workflow::{find_exact, follow, or_no_run_or_sandbox};
use crate::args::workflow::Resume;
use crate::commands::print::print_text;
use crate::commands::sandbox::lifecycle;
use crate::problem::Failure;
use crate::remote;

/// How long a waiting run may take to process an input that it received a moment ago.
const FIRST_WAIT_MS: u32 = 2_000;

/// Resumes the run or sandbox with the id. A run takes precedence over a sandbox.
pub(crate) fn run(arguments: Resume) -> Result<u8, Failure> {
    remote::with(arguments.server_mode, async |remote| {
        let name = &arguments.id;
        let run = find_exact(&remote, name).await?;
        let means_sandbox = match &run {
            None => true,
            // A finished run cannot be resumed, but a sandbox may be meant.
            Some(run) if name == LATEST && run.status == RunStatus::Finished => {
                lifecycle::is_latest_paused(&remote).await
            }
            Some(_) => false,
        };
        let Some(run) = run.filter(|_| !means_sandbox) else {
            let resumed = lifecycle::resume(&remote, name, arguments.json).await;
            return resumed.map_err(|failure| or_no_run_or_sandbox(failure, name));
        };
        let id = run.id;
        let from = follow::next_event(&remote, &id).await?;
        let accept_changes = arguments.accept_workflow_change;
        let request = ResumeRun { id: id.clone(), accept_changes };
        let resumed = remote.workflows.resume_run(&remote.idempotent(), request).await;
        resumed.map_err(|problem| Failure::from(problem).for_workflow())?;
        if arguments.detach {
            print_text(&format!("{id}\n"))?;
            return Ok(0);
        }
        Ok(follow::follow_to_end(&remote, &id, from, FIRST_WAIT_MS, arguments.json).await?.0)
    })
}
