//! Executes commands in separate sandboxes. A sandbox is created for one attempt of a task, with a
//! copy-on-write view of the project and without a network, and is ended after the result of the attempt
//! is stored. Each operation has an idempotency key that is derived from the attempt, so that another
//! process finds operations that were started. The output of a command is not recorded: it may contain
//! the values of the command's variables.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use stockade_api::{
    Bytes, Caller, CollectChanges, CommandLine, CreateSandbox, Execute, Expiry, ExpiryAction,
    FileContent, KillSandbox, ListSandboxes, OperationId, OperationStatus, Sandboxes, WriteFile,
};
use stockade_bundle::project::Project;
use stockade_core::sandbox::Workspace;
use stockade_core::{Code, OwnerId, Problem, SandboxId};

use super::executor::{CommandResult, Executor, Job, RUN_LABEL, SANDBOX_LABEL};
use super::output::{CommandOutput, read_output};

/// The mount point of the project in a sandbox.
const WORKSPACE: &str = "/workspace";
/// The file that holds the standard input of a command until the command starts.
const INPUT: &str = "/tmp/.stockade-input";
/// How much longer than its command a sandbox lives at most if no process remains that could end it.
const MARGIN: Duration = Duration::from_secs(10 * 60);
/// How often an operation is attempted whose process was killed before it started.
const MAX_STARTS: u32 = 5;
/// How much of the standard output of a command is retained, in bytes; a longer answer is refused.
const ANSWER_BYTES: usize = 1 << 20;
/// How much of its standard error is retained, in bytes.
const ERROR_BYTES: usize = 64 << 10;

/// Executes commands in sandboxes.
#[derive(Debug)]
pub(crate) struct SandboxExecutor {
    sandboxes: Arc<dyn Sandboxes>,
}

impl SandboxExecutor {
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
            metadata: [(RUN_LABEL, &job.run), ("stockade.task", &job.node)]
                .map(|(name, value)| (name.to_owned(), value.clone()))
                .into(),
            expiry: Expiry::Seconds(life.as_secs_f64()),
            on_expiry: Some(ExpiryAction::Terminate),
            ..CreateSandbox::default()
        };
        self.sandboxes.create(&creator(&job.owner, &job.name), request).await.map(drop)
    }

    /// Writes the standard input into a file. If it were streamed to the command, it would be lost when
    /// the server is killed before the command has read it.
    async fn input(&self, job: &Job, id: &SandboxId) -> Result<(), Problem> {
        self.start_with_retry(job, "input", |caller| {
            let request = WriteFile {
                sandbox_id: id.clone(),
                path: INPUT.into(),
                mode: Some(0o600),
                uid: None,
                gid: None,
            };
            let content = FileContent(Box::pin(std::io::Cursor::new(job.input.clone())));
            async move { self.sandboxes.write_file(&caller, request, content).await }
        })
        .await
        .map(drop)
    }

    /// Executes the command to its end. If it was started before, it is found.
    async fn command(&self, job: &Job, id: &SandboxId) -> Result<CommandOutput, Problem> {
        let command = with_input_file(&job.command);
        let operation = self.start_with_retry(job, "execute", |caller| {
            let request = Execute {
                environment: stockade_core::bytes::values(job.environment.clone()),
                timeout_seconds: Some(job.limit.as_secs_f64()),
                output_limit_bytes: Some(job.output_limit_bytes),
                unrecorded: true,
                ..Execute::new(id.clone(), command.clone())
            };
            async move {
                let started = self.sandboxes.execute_stream(&caller, request).await?;
                self.wait(&job.owner, started.workflow_id).await
            }
        });
        let (operation, caller) = (operation.await?, Caller::new(job.owner.clone()));
        read_output(&*self.sandboxes, &caller, &operation, [ANSWER_BYTES, ERROR_BYTES]).await
    }

    /// Waits for the end of an operation; returns its id if it has succeeded.
    async fn wait(&self, owner: &OwnerId, operation: OperationId) -> Result<OperationId, Problem> {
        let caller = Caller::new(owner.clone());
        loop {
            let info = self.sandboxes.wait_operation(&caller, operation.clone()).await?;
            match info.status {
                OperationStatus::Waiting | OperationStatus::Running => {}
                OperationStatus::Succeeded => return Ok(operation),
                OperationStatus::Failed | OperationStatus::Cancelled => {
                    let unknown =
                        || Problem::new(Code::OutcomeUnknown, "the command has no result");
                    return Err(info.error.unwrap_or_else(unknown));
                }
            }
        }
    }

    /// Performs an operation under an idempotency key that is derived from the attempt. If the process
    /// of the operation was killed before the operation started, the next key is used: data that is not
    /// recorded, such as its input, is lost.
    async fn start_with_retry<T, F: Future<Output = Result<T, Problem>>>(
        &self,
        job: &Job,
        what: &str,
        act: impl Fn(Caller) -> F,
    ) -> Result<T, Problem> {
        let mut starts = 1;
        loop {
            let name = format!("{}:{what}:{starts}", job.name);
            match act(Caller::new(job.owner.clone()).with_key(name)).await {
                Err(problem) if problem.code == Code::Cancelled && starts < MAX_STARTS => {
                    starts += 1;
                }
                done => return done,
            }
        }
    }

    /// The bundle of the command's changes to the project, if there are any.
    async fn changes(&self, job: &Job, id: &SandboxId) -> Result<Option<String>, Problem> {
        let request = || CollectChanges {
            sandbox_id: id.clone(),
            exclude: Vec::new(),
            limit_bytes: None,
            limit_paths: None,
        };
        let collected = self
            .start_with_retry(job, "changes", |caller| async move {
                self.sandboxes.collect_changes(&caller, request()).await
            })
            .await;
        match collected {
            Ok(collected) => Ok(collected.bundle.map(|bundle| bundle.id)),
            Err(problem) if problem.remediation.is_none() => {
                Err(problem.remedied_by(format!("stockade collect {id}")))
            }
            Err(problem) => Err(problem),
        }
    }

    async fn kill(&self, owner: &OwnerId, request: KillSandbox) {
        let id = request.id.clone();
        if let Err(problem) = self.sandboxes.kill(&Caller::new(owner.clone()), request).await {
            // The sandbox ends when its lease expires.
            tracing::warn!(sandbox = %id, error = %problem.message, "a sandbox remains");
        }
    }
}

/// The sandbox of an attempt, by the attempt's name.
fn parse_id(name: &str) -> Result<SandboxId, Problem> {
    let hash = blake3::hash(name.as_bytes()).to_hex();
    SandboxId::new(format!("agent-{}", &hash[..32]))
        .map_err(|error| Problem::new(Code::Io, error.to_string()))
}

/// The caller of the operation that creates the sandbox, with its idempotency key.
fn creator(owner: &OwnerId, name: &str) -> Caller {
    Caller::new(owner.clone()).with_key(format!("{name}:create"))
}

/// A command line that reads its input from the file, after removing the file.
fn with_input_file(command: &CommandLine) -> CommandLine {
    let words: Vec<Bytes> = match command {
        CommandLine::Shell(line) => ["/bin/sh", "-c", line.as_str()].map(Bytes::from).into(),
        CommandLine::Program(words) => words.iter().map(|word| word.as_str().into()).collect(),
        CommandLine::Words(words) => words.clone(),
    };
    let script = format!("exec < {INPUT} && rm -f {INPUT} && exec \"$@\"");
    let first = ["/bin/sh", "-c", script.as_str(), "sh"].map(Bytes::from);
    CommandLine::Words(first.into_iter().chain(words).collect())
}

#[async_trait]
impl Executor for SandboxExecutor {
    async fn execute(&self, job: &Job) -> Result<CommandResult, Problem> {
        let id = parse_id(&job.name)?;
        let done = async {
            self.create(job, &id).await?;
            self.input(job, &id).await?;
            self.command(job, &id).await
        };
        let executed = match done.await {
            Ok(executed) => executed,
            Err(problem) => {
                // What it has changed so far becomes a bundle.
                self.kill(&job.owner, KillSandbox::new(id)).await;
                return Err(problem);
            }
        };
        // If its changes cannot be collected, the sandbox is left with them until it expires.
        let bundle = self.changes(job, &id).await?;
        Ok(CommandResult {
            ending: executed.end.ending,
            exit_code: executed.end.exit_code,
            is_truncated: executed.end.stdout_bytes > executed.stdout.len() as u64,
            output: executed.stdout,
            errors: executed.stderr,
            bundle,
        })
    }

    async fn end_attempt(&self, owner: &OwnerId, name: &str) {
        if let Ok(id) = parse_id(name) {
            self.kill(owner, KillSandbox::discarding(id)).await;
        }
    }

    async fn end_left(&self, owner: &OwnerId, run: &str, attempts: &[(String, bool)]) {
        let ids: BTreeMap<SandboxId, bool> = attempts
            .iter()
            .filter_map(|(name, succeeded)| Some((parse_id(name).ok()?, *succeeded)))
            .collect();
        let mut after = None;
        loop {
            let metadata = [(RUN_LABEL.to_owned(), run.to_owned())].into();
            let request = ListSandboxes { metadata, after, ..ListSandboxes::default() };
            let Ok(found) = self.sandboxes.list(&Caller::new(owner.clone()), request).await else {
                return;
            };
            after = found.sandboxes.last().map(|last| last.id.clone());
            for sandbox in found.sandboxes {
                if let Some(&discard) = ids.get(&sandbox.id) {
                    self.kill(owner, KillSandbox { id: sandbox.id, discard }).await;
                }
            }
            if !found.more || after.is_none() {
                return;
            }
        }
    }

    async fn end(&self, owner: &OwnerId, run: &str, attempts: &[String]) {
        for name in attempts {
            let Ok(id) = parse_id(name) else { continue };
            // This also reserves the id of a sandbox that is about to be created.
            let request =
                CreateSandbox { id: Some(id.clone()), stopped: true, ..CreateSandbox::default() };
            let _ = self.sandboxes.create(&creator(owner, name), request).await;
            self.kill(owner, KillSandbox::new(id)).await;
        }
        let metadata = [(RUN_LABEL.to_owned(), run.to_owned())].into();
        let request = ListSandboxes { metadata, ..ListSandboxes::default() };
        let Ok(found) = self.sandboxes.list(&Caller::new(owner.clone()), request).await else {
            return;
        };
        for sandbox in found.sandboxes {
            // The engine of the run may end a cancelled `<Sandbox>` at the same time, and discards
            // its changes too.
            let discard = sandbox.metadata.contains_key(SANDBOX_LABEL);
            self.kill(owner, KillSandbox { id: sandbox.id, discard }).await;
        }
    }
}
