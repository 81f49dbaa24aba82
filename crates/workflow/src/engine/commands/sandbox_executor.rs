//! Executes commands in sandboxes. The agents of a run share one, with a copy-on-write view of the project
//! and without a network, so that each sees what the earlier ones have written; it is ended with the run.
//! After each attempt the changes become a bundle, which replaces the one before it. Each operation has an
//! idempotency key that is derived from the attempt, so that another process finds operations that were
//! started. The output of a command is not recorded: it may contain
//! the values of the command's variables.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use stockade_api::{
    Bytes, Caller, CollectChanges, CommandLine, CreateSandbox, Execute, Expiry, ExpiryAction,
    FileContent, KillSandbox, ListSandboxes, OperationId, OperationStatus, RejectBundle, Sandbox,
    Sandboxes, WriteFile,
};
use stockade_bundle::project::Project;
use stockade_core::sandbox::Workspace;
use stockade_core::{Code, OwnerId, Problem, SandboxId};

use super::executor::{CommandResult, Executor, Job, RUN_LABEL, SANDBOX_LABEL};
use super::output::{CommandOutput, read_output};
use crate::sync::lock;

/// The mount point of the project in a sandbox.
const WORKSPACE: &str = "/workspace";
/// The file that holds the standard input of a command until the command starts.
const INPUT: &str = "/tmp/.stockade-input-";
/// How long a workspace lives at most if no process remains that could end it: a run may wait for answers
/// between two agents.
const LONGEST_LIFE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How often an operation is attempted whose process was killed before it started.
const MAX_STARTS: u32 = 5;
/// How long the end of a run waits for sandboxes that are being created.
const CREATION_PATIENCE: Duration = Duration::from_secs(60);
/// How much of the standard output of a command is retained, in bytes; a longer answer is refused.
const ANSWER_BYTES: usize = 1 << 20;
/// How much of its standard error is retained, in bytes.
const ERROR_BYTES: usize = 64 << 10;

/// Executes commands in sandboxes.
#[derive(Debug)]
pub(crate) struct SandboxExecutor {
    sandboxes: Arc<dyn Sandboxes>,
    /// Serializes the collection of changes of each workspace, so that a later bundle has all changes of
    /// an earlier one.
    collections: Mutex<HashMap<SandboxId, Arc<tokio::sync::Mutex<()>>>>,
    /// The workspaces of which all changes are in a bundle.
    collected: Mutex<BTreeSet<SandboxId>>,
    /// A lock for each run, held while a sandbox of it is created.
    creations: Mutex<HashMap<String, Arc<tokio::sync::RwLock<()>>>>,
}

impl SandboxExecutor {
    pub(crate) fn new(sandboxes: Arc<dyn Sandboxes>) -> Self {
        let (collections, collected) = (Mutex::default(), Mutex::default());
        Self { sandboxes, collections, collected, creations: Mutex::default() }
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
        let request = CreateSandbox {
            id: Some(id.clone()),
            image: job.image.clone(),
            workspace: Some(Workspace { host: project.root, inside: WORKSPACE.into() }),
            working_directory: Some(WORKSPACE.into()),
            metadata: [(RUN_LABEL.to_owned(), job.run.clone())].into(),
            expiry: Expiry::Seconds(LONGEST_LIFE.as_secs_f64()),
            on_expiry: Some(ExpiryAction::Terminate),
            ..CreateSandbox::default()
        };
        let creating = self.creations(&job.run).read_owned().await;
        let sandboxes = Arc::clone(&self.sandboxes);
        let creator = creator(&job.owner, &job.workspace);
        // It goes on when the run is cancelled, so the end of the run waits for it.
        let creation = tokio::spawn(async move {
            let _creating = creating;
            sandboxes.create(&creator, request).await.map(drop)
        });
        let ended = |error: tokio::task::JoinError| {
            Problem::new(Code::Cancelled, "the sandbox was not created").because(error.to_string())
        };
        creation.await.map_err(ended)?
    }

    /// Those that create a sandbox of a run have a share of this lock.
    fn creations(&self, run: &str) -> Arc<tokio::sync::RwLock<()>> {
        Arc::clone(lock(&self.creations).entry(run.to_owned()).or_default())
    }

    /// Waits until no sandbox of a run is being created.
    async fn wait_for_creations(&self, run: &str) {
        let all = self.creations(run).write_owned();
        let _ = tokio::time::timeout(CREATION_PATIENCE, all).await;
        lock(&self.creations).remove(run);
    }

    /// Writes the standard input into a file. If it were streamed to the command, it would be lost when
    /// the server is killed before the command has read it.
    async fn input(&self, job: &Job, id: &SandboxId) -> Result<(), Problem> {
        self.start_with_retry(job, "input", |caller| {
            let request = WriteFile {
                sandbox_id: id.clone(),
                path: input_file(job).into(),
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
        let command = with_input_file(&job.command, &input_file(job));
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

    /// The sandboxes of a run.
    async fn of_run(&self, owner: &OwnerId, run: &str) -> Vec<Sandbox> {
        let mut all = Vec::new();
        let mut after = None;
        loop {
            let metadata = [(RUN_LABEL.to_owned(), run.to_owned())].into();
            let request = ListSandboxes { metadata, after, ..ListSandboxes::default() };
            let Ok(found) = self.sandboxes.list(&Caller::new(owner.clone()), request).await else {
                return all;
            };
            after = found.sandboxes.last().map(|last| last.id.clone());
            all.extend(found.sandboxes);
            if !found.more || after.is_none() {
                return all;
            }
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

/// The sandbox of a workspace, by its name.
fn parse_id(name: &str) -> Result<SandboxId, Problem> {
    let hash = blake3::hash(name.as_bytes()).to_hex();
    SandboxId::new(format!("agent-{}", &hash[..32]))
        .map_err(|error| Problem::new(Code::Io, error.to_string()))
}

/// The caller of the operation that creates the sandbox, with its idempotency key.
fn creator(owner: &OwnerId, name: &str) -> Caller {
    Caller::new(owner.clone()).with_key(format!("{name}:create"))
}

/// The file with the standard input of a command.
fn input_file(job: &Job) -> String {
    let hash = blake3::hash(job.name.as_bytes()).to_hex();
    format!("{INPUT}{}", &hash[..16])
}

/// A command line that reads its input from the file, after removing the file.
fn with_input_file(command: &CommandLine, input: &str) -> CommandLine {
    let words: Vec<Bytes> = match command {
        CommandLine::Shell(line) => ["/bin/sh", "-c", line.as_str()].map(Bytes::from).into(),
        CommandLine::Program(words) => words.iter().map(|word| word.as_str().into()).collect(),
        CommandLine::Words(words) => words.clone(),
    };
    let script = format!("exec < {input} && rm -f {input} && exec \"$@\"");
    let first = ["/bin/sh", "-c", script.as_str(), "sh"].map(Bytes::from);
    CommandLine::Words(first.into_iter().chain(words).collect())
}

#[async_trait]
impl Executor for SandboxExecutor {
    async fn execute(&self, job: &Job) -> Result<CommandResult, Problem> {
        let id = parse_id(&job.workspace)?;
        lock(&self.collected).remove(&id);
        self.create(job, &id).await?;
        self.input(job, &id).await?;
        let executed = self.command(job, &id).await?;
        let collection = Arc::clone(lock(&self.collections).entry(id.clone()).or_default());
        let _collecting = collection.lock().await;
        // If its changes cannot be collected, the sandbox is left with them until it expires.
        let bundle = self.changes(job, &id).await?;
        lock(&self.collected).insert(id.clone());
        Ok(CommandResult {
            ending: executed.end.ending,
            exit_code: executed.end.exit_code,
            is_truncated: executed.end.stdout_bytes > executed.stdout.len() as u64,
            output: executed.stdout,
            errors: executed.stderr,
            bundle,
        })
    }

    async fn end_run(&self, owner: &OwnerId, run: &str) {
        self.wait_for_creations(run).await;
        for sandbox in self.of_run(owner, run).await {
            // The sandboxes of `<Sandbox>` elements have ends of their own.
            if !sandbox.metadata.contains_key(SANDBOX_LABEL) {
                let discard = lock(&self.collected).remove(&sandbox.id);
                lock(&self.collections).remove(&sandbox.id);
                self.kill(owner, KillSandbox { id: sandbox.id, discard }).await;
            }
        }
    }

    async fn discard_bundle(&self, owner: &OwnerId, bundle: &str) {
        let request = RejectBundle { id: bundle.to_owned() };
        let caller = Caller::new(owner.clone()).with_key(format!("superseded-{bundle}"));
        // The user may have decided about it already.
        let _ = self.sandboxes.reject_bundle(&caller, request).await;
    }

    async fn end(&self, owner: &OwnerId, run: &str) {
        self.wait_for_creations(run).await;
        for sandbox in self.of_run(owner, run).await {
            // The engine of the run may end a cancelled `<Sandbox>` at the same time, and discards
            // its changes too.
            let discard = sandbox.metadata.contains_key(SANDBOX_LABEL);
            self.kill(owner, KillSandbox { id: sandbox.id, discard }).await;
        }
    }
}
