//! `stockade resume`: continues a failed or interrupted run, or a paused sandbox. A run that ended with
//! `<ContinueAsNew>` is the last run that continues it.

use stockade_api::{LATEST, ResumeRun, Run, RunStatus};
use stockade_core::{Code, Problem, State};

use super::sandbox;
use super::workflow::{self, find_exact, follow, or_no_run_or_sandbox};
use crate::args::sandbox::Sandboxes;
use crate::args::workflow::Resume;
use crate::commands::print::print_text;
use crate::commands::sandbox::lifecycle;
use crate::commands::workflow::holder::{self, RunName};
use crate::problem::Failure;
use crate::remote::{self, Remote};

/// How long a waiting run may take to process an input that it received a moment ago.
const FIRST_WAIT_MS: u32 = 2_000;

/// Resumes the run or sandbox with the id. A run with exactly that id takes precedence over a sandbox.
pub(crate) fn run(arguments: Resume) -> Result<u8, Failure> {
    if arguments.id.len() > 1 {
        return several(arguments);
    }
    let Some(name) = arguments.id.first().cloned() else { return Ok(0) };
    let name = &name;
    let values = workflow::secret_values(&arguments.secret)?;
    holder::with_run(arguments.server_mode, RunName::Exact(name), async |remote| {
        let run = match name.as_str() {
            LATEST => latest_run(&remote).await?,
            name => find_exact(&remote, name).await?,
        };
        let Some(run) = run else {
            if let Some(secret) = arguments.secret.first() {
                let message = format!("`resume --secret` is for runs, and {name} is none");
                return Err(Problem::new(Code::InvalidInput, message)
                    .remedied_by(format!("stockade secret set {name} {secret}"))
                    .into());
            }
            let resumed = lifecycle::resume_one(&remote, name, arguments.json).await;
            return resumed.map_err(|failure| or_no_run_or_sandbox(failure, name));
        };
        let (id, from) = follow::last_continuation(&remote, &run.id).await?;
        let request = ResumeRun {
            id: id.clone(),
            accept_changes: arguments.accept_workflow_change,
            retry: arguments.retry,
            secrets: values,
            server: holder::access_for(&remote, &run).await?,
        };
        let resumed = remote.workflows.resume_run(&remote.idempotent(), request).await;
        resumed.map_err(|problem| Failure::from(problem).for_workflow())?;
        if arguments.detach {
            print_text(&format!("{id}\n"))?;
            return Ok(0);
        }
        Ok(follow::follow_to_end(&remote, &id, from, FIRST_WAIT_MS, arguments.json).await?.0)
    })
}

/// Resumes sandboxes. The output of a run is followed to its end, so runs are resumed one at a time.
fn several(arguments: Resume) -> Result<u8, Failure> {
    let refused = |message: String, name: &str| {
        Problem::new(Code::InvalidInput, message)
            .because("a run prints what it does until it ends")
            .remedied_by(format!("stockade resume {name}"))
    };
    let first = arguments.id.first().map_or("", String::as_str);
    if arguments.accept_workflow_change || arguments.retry || !arguments.secret.is_empty() {
        let message = "the flags of runs are for one run at a time".to_owned();
        return Err(refused(message, first).into());
    }
    remote::with(arguments.server_mode, async |remote| {
        for name in arguments.id.iter().filter(|name| *name != LATEST) {
            if find_exact(&remote, name).await?.is_some() {
                let message = format!("{name} is a run, and runs are resumed one at a time");
                return Err(refused(message, name).into());
            }
        }
        Ok(())
    })?;
    lifecycle::resume(Sandboxes {
        id: arguments.id,
        json: arguments.json,
        server_mode: arguments.server_mode,
    })
}

/// The run that `latest` means; `None` if it means a sandbox. A run and a sandbox that could both be
/// meant are both named.
async fn latest_run(remote: &Remote) -> Result<Option<Run>, Failure> {
    let run = workflow::latest(remote).await?;
    let paused = sandbox::latest(remote).await?.filter(|it| it.state == State::Paused);
    let resumable = run.as_ref().filter(|run| run.status != RunStatus::Finished);
    match (resumable, &paused) {
        // What was paused after the run was started last is what was just paused.
        (Some(run), Some(sandbox)) if sandbox.created_at < run.updated_at => {
            let message = format!(
                "`latest` may be the run {} or the paused sandbox {}, so nothing was resumed",
                run.id, sandbox.id
            );
            Err(Problem::new(Code::Conflict, message)
                .because(format!(
                    "`stockade resume {}` resumes the sandbox, `stockade resume {}` the run",
                    sandbox.id, run.id
                ))
                .remedied_by(format!("stockade resume {}", sandbox.id))
                .into())
        }
        (_, Some(_)) => Ok(None),
        (Some(run), None) => Ok(Some(run.clone())),
        // The refusal of the run says why; without a run, that of the sandbox does.
        (None, None) => Ok(run),
    }
}
