//! `stockade resume`: lets a run go on that failed or was interrupted, or a paused sandbox.

use stockade_api::{ResumeRun, RunById};
use stockade_core::Code;

use super::follow;
use crate::args::workflow::Resume;
use crate::commands::held::{life, print_text};
use crate::problem::Failure;
use crate::remote;

/// How long a run that waits is given to take what it was told a moment ago.
const FIRST_WAIT_MS: u32 = 2_000;

/// Resumes what has the id: a run before a sandbox.
pub(crate) fn run(arguments: Resume) -> Result<u8, Failure> {
    remote::with(arguments.way, async |remote| {
        let id = arguments.id.clone();
        let known = remote.workflows.run(remote.caller(), RunById { id: id.clone() }).await;
        match known {
            Err(problem) if problem.code == Code::NotFound => {
                return life::resume(&remote, &id, arguments.json).await;
            }
            known => drop(known?),
        }
        let from = follow::next_event(&remote, &id).await?;
        let accept_changes = arguments.accept_workflow_change;
        let request = ResumeRun { id: id.clone(), accept_changes };
        let resumed = remote.workflows.resume_run(&remote.once(), request).await;
        resumed.map_err(|problem| Failure::from(problem).of_workflow())?;
        if arguments.detach {
            print_text(&format!("{id}\n"))?;
            return Ok(0);
        }
        follow::to_its_end(&remote, &id, from, FIRST_WAIT_MS, arguments.json).await
    })
}
