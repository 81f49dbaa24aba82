//! Commands in sandboxes of their own: made for one try of a task, on a copy-on-write view of the
//! project, without a network, and ended with it. Every operation has a name that follows from the
//! try, so that a process that takes over finds again what was begun.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use stockade_api::{
    ById, Bytes, Caller, CreateSandbox, Execute, Executed, Expiry, ListSandboxes, Sandboxes,
};
use stockade_bundle::project::Project;
use stockade_core::sandbox::Workspace;
use stockade_core::{Code, OwnerId, Problem, SandboxId};

use super::{Finished, Job, OUTPUT_LIMIT_BYTES, Place};

/// Where the project is in a sandbox.
const WORKSPACE: &str = "/workspace";
/// How long a sandbox is there at most besides the time of its command. It is ended long before,
/// unless nobody is left who could.
const MARGIN: Duration = Duration::from_secs(10 * 60);
/// By this the sandboxes of a run are found.
const RUN: &str = "stockade.run";
/// How often a command is begun that was not, because who was to begin it was killed.
const MAX_BEGUN: u32 = 5;

/// Executes commands in sandboxes.
#[derive(Debug)]
pub(crate) struct Held {
    sandboxes: Arc<dyn Sandboxes>,
}

impl Held {
    pub(crate) const fn new(sandboxes: Arc<dyn Sandboxes>) -> Self {
        Self { sandboxes }
    }

    async fn create(&self, job: &Job, id: &SandboxId) -> Result<(), Problem> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let project = Project::open(&job.project, home.as_deref()).map_err(|error| {
            let problem = Problem::new(Code::ProjectRefused, error.to_string());
            match error.hint() {
                Some(hint) => problem.remedied_by(hint),
                None => problem,
            }
        })?;
        let life = job.limit + MARGIN;
        let request = CreateSandbox {
            id: Some(id.clone()),
            image: job.image.clone(),
            workspace: Some(Workspace { host: project.root, inside: WORKSPACE.into() }),
            working_directory: Some(WORKSPACE.into()),
            metadata: [(RUN, &job.run), ("stockade.task", &job.node)]
                .map(|(name, value)| (name.to_owned(), value.clone()))
                .into(),
            expiry: Expiry::Seconds(life.as_secs_f64()),
            ..CreateSandbox::default()
        };
        let caller = Caller::new(job.owner.clone()).once(format!("{}:create", job.name));
        self.sandboxes.create(&caller, request).await.map(drop)
    }

    /// The command, begun or found again.
    async fn command(&self, job: &Job, id: &SandboxId) -> Result<Executed, Problem> {
        let mut begun = 1;
        loop {
            let request = Execute {
                environment: job.environment.clone(),
                stdin: Some(Bytes(job.input.clone())),
                timeout_seconds: Some(job.limit.as_secs_f64()),
                output_limit_bytes: Some(OUTPUT_LIMIT_BYTES),
                ..Execute::new(id.clone(), job.command.clone())
            };
            let name = format!("{}:execute:{begun}", job.name);
            let caller = Caller::new(job.owner.clone()).once(name);
            match self.sandboxes.execute(&caller, request).await {
                // What it reads was lost with a server that was killed before it began.
                Err(problem) if problem.code == Code::Cancelled && begun < MAX_BEGUN => begun += 1,
                executed => return executed,
            }
        }
    }

    async fn kill(&self, owner: &OwnerId, id: &SandboxId) {
        let request = ById { id: id.clone() };
        if let Err(problem) = self.sandboxes.kill(&Caller::new(owner.clone()), request).await {
            // Its own time ends it.
            tracing::warn!(sandbox = %id, error = %problem.message, "a sandbox is left");
        }
    }
}

#[async_trait]
impl Place for Held {
    async fn execute(&self, job: &Job) -> Result<Finished, Problem> {
        let hash = blake3::hash(job.name.as_bytes()).to_hex();
        let id = SandboxId::new(format!("agent-{}", &hash[..32]))
            .map_err(|error| Problem::new(Code::Io, error.to_string()))?;
        let done = async {
            self.create(job, &id).await?;
            let executed = self.command(job, &id).await?;
            Ok(Finished {
                ending: executed.end.ending,
                exit_code: executed.end.exit_code,
                output: executed.stdout.0,
                errors: executed.stderr.0,
                is_cut: executed.truncated,
                bundle: None,
            })
        };
        let finished = done.await;
        self.kill(&job.owner, &id).await;
        finished
    }

    async fn end(&self, owner: &OwnerId, run: &str) {
        let metadata = [(RUN.to_owned(), run.to_owned())].into();
        let request = ListSandboxes { metadata, ..ListSandboxes::default() };
        let Ok(found) = self.sandboxes.list(&Caller::new(owner.clone()), request).await else {
            return;
        };
        for sandbox in found.sandboxes {
            self.kill(owner, &sandbox.id).await;
        }
    }
}
