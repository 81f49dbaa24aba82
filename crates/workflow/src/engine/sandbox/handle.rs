//! The sandbox of one attempt on this host: it is created, executes a command, is read, and is ended.
//! Each operation has an idempotency key that is derived from the attempt, so that after a crash the
//! operation is found again and not performed twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use stockade_api::{
    Caller, CreateSandbox, Execute, Expiry, ExpiryAction, FileContent, FileEntry, GetSandbox,
    KillSandbox, ListDirectory, MakeDirectory, OperationId, OperationStatus, ReadFile, Renew,
    Sandboxes, SecretValue, SetSecrets, WriteFile,
};
use stockade_core::id::InvalidId;
use stockade_core::{Code, OwnerId, Problem, SandboxId};
use tokio::io::AsyncReadExt as _;

use crate::engine::commands::{CommandOutput, read_output};
use crate::engine::task_error::TaskError;

/// How long a sandbox lives without its run. A sandbox that a crash leaves expires after this time.
const LEASE: Duration = Duration::from_secs(15 * 60);
/// The interval at which its lease is renewed and a heartbeat is recorded.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);
/// How often a write is attempted whose process was killed.
const MAX_WRITES: u32 = 8;
/// How much of the standard error of a command is retained for messages, in bytes.
const ERROR_BYTES: usize = 64 << 10;

/// The sandbox of an attempt, which may or may not exist.
#[derive(Debug, Clone)]
pub(crate) struct SandboxHandle {
    sandboxes: Arc<dyn Sandboxes>,
    caller: Caller,
    id: SandboxId,
}

/// The outcome of a wait for a command.
#[derive(Debug)]
pub(crate) enum WaitOutcome {
    /// It is still running.
    Running,
    /// It was never started: its process was killed earlier, and its environment was lost with the
    /// process.
    NeverStarted,
    /// It has ended.
    Ended(CommandOutput),
}

/// The failure of a task that follows from a problem.
pub(super) fn task_error(problem: &Problem) -> TaskError {
    let cause = problem.cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
    let remedy = problem.remediation.as_ref().map(|it| format!(" — {it}")).unwrap_or_default();
    let message = format!("{}{cause}{remedy}", problem.message);
    let code = match problem.code {
        Code::InvalidInput => "INVALID_INPUT",
        _ => "SANDBOX_EXECUTION_FAILED",
    };
    let error = TaskError::new(code, message);
    if problem.code == Code::InvalidInput { error } else { error.retryable() }
}

/// The id of the sandbox of an attempt, from the name of the attempt.
pub(crate) fn sandbox_id(name: &str) -> Result<SandboxId, InvalidId> {
    SandboxId::new(format!("run-{name}"))
}

impl SandboxHandle {
    /// The sandbox of the attempt with this name.
    pub(crate) fn of(
        sandboxes: Arc<dyn Sandboxes>,
        owner: &str,
        name: &str,
    ) -> Result<Self, TaskError> {
        let wrong =
            |error: InvalidId| TaskError::new("SANDBOX_EXECUTION_FAILED", error.to_string());
        let id = sandbox_id(name).map_err(wrong)?;
        Ok(Self { sandboxes, caller: Caller::new(OwnerId::new(owner).map_err(wrong)?), id })
    }

    /// Its id.
    pub(crate) fn sandbox_id(&self) -> SandboxId {
        self.id.clone()
    }

    /// Its id as text.
    pub(crate) fn id(&self) -> &str {
        self.id.as_str()
    }

    /// The operations of the service.
    pub(crate) fn sandboxes(&self) -> &dyn Sandboxes {
        &*self.sandboxes
    }

    /// The caller of an operation, with its idempotency key.
    pub(crate) fn caller(&self, operation: &str) -> Caller {
        self.caller.clone().with_key(format!("{}:{operation}", self.id))
    }

    /// Creates the sandbox, or finds the one that was created.
    pub(crate) async fn create(&self, request: CreateSandbox) -> Result<(), TaskError> {
        let request = CreateSandbox {
            id: Some(self.id.clone()),
            expiry: Expiry::Seconds(LEASE.as_secs_f64()),
            on_expiry: Some(ExpiryAction::Terminate),
            ..request
        };
        let created = self.sandboxes.create(&self.caller("create"), request).await;
        created.map(drop).map_err(|problem| task_error(&problem))
    }

    /// Gives it values of secrets, which are recorded nowhere.
    pub(crate) async fn give_secrets(
        &self,
        values: BTreeMap<String, SecretValue>,
    ) -> Result<(), TaskError> {
        let request = SetSecrets { id: self.id.clone(), values, stored: Vec::new() };
        let given = self.sandboxes.set_secrets(&self.caller, request).await;
        given.map(drop).map_err(|problem| task_error(&problem))
    }

    /// Creates a directory with its parents. `name` identifies the operation.
    pub(crate) async fn make_directory(&self, name: &str, path: &str) -> Result<(), TaskError> {
        let request = MakeDirectory {
            sandbox_id: self.id.clone(),
            path: path.into(),
            mode: Some(0o700),
            uid: None,
            gid: None,
        };
        let created = self.sandboxes.make_directory(&self.caller(name), request).await;
        created.map(drop).map_err(|problem| task_error(&problem))
    }

    /// Starts a command, or finds the one that was started. `number` counts the starts, from 1. Its
    /// output is not recorded, because it may contain the values of its variables.
    pub(crate) async fn execute(
        &self,
        number: u32,
        request: Execute,
    ) -> Result<OperationId, TaskError> {
        let request = Execute { unrecorded: true, ..request };
        let started = self
            .sandboxes
            .execute_stream(&self.caller(&format!("execute-{number}")), request)
            .await;
        Ok(started.map_err(|problem| task_error(&problem))?.workflow_id)
    }

    /// Waits a while for a command to end, and retains at most this much of its standard output. Renews
    /// the lease of the sandbox meanwhile.
    pub(crate) async fn wait(
        &self,
        operation: &OperationId,
        output_bytes: usize,
    ) -> Result<WaitOutcome, TaskError> {
        let waited = self.sandboxes.wait_operation(&self.caller, operation.clone());
        let Ok(info) = tokio::time::timeout(HEARTBEAT_INTERVAL, waited).await else {
            self.renew(LEASE, false).await?;
            return Ok(WaitOutcome::Running);
        };
        let info = info.map_err(|problem| task_error(&problem))?;
        match info.status {
            OperationStatus::Waiting | OperationStatus::Running => return Ok(WaitOutcome::Running),
            OperationStatus::Succeeded => {}
            OperationStatus::Failed | OperationStatus::Cancelled => {
                let unknown = Problem::new(Code::OutcomeUnknown, "the command has no result");
                let problem = info.error.unwrap_or(unknown);
                return match problem.code {
                    Code::Cancelled => Ok(WaitOutcome::NeverStarted),
                    _ => Err(task_error(&problem)),
                };
            }
        }
        self.command_output(operation, output_bytes).await.map(WaitOutcome::Ended)
    }

    /// Renews the lease for this time from now on. `shorten` allows a lease shorter than the current
    /// one.
    pub(crate) async fn renew(&self, time: Duration, shorten: bool) -> Result<(), TaskError> {
        let request = Renew { id: self.id.clone(), ttl_seconds: Some(time.as_secs_f64()), shorten };
        let renewed = self.sandboxes.renew(&self.caller, request).await;
        renewed.map(drop).map_err(|problem| task_error(&problem))
    }

    /// Whether it is known that the sandbox does not exist any more.
    pub(crate) async fn has_ended(&self) -> bool {
        let request = GetSandbox { id: self.id.clone(), metrics: false };
        match self.sandboxes.get_status(&self.caller, request).await {
            Ok(sandbox) => sandbox.state.is_terminal(),
            Err(problem) => problem.code == Code::NotFound,
        }
    }

    /// Waits a while for work that is done elsewhere; returns `None` if it is not finished yet. Renews
    /// the lease of the sandbox meanwhile.
    pub(crate) async fn while_alive<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<Option<T>, TaskError> {
        match tokio::time::timeout(HEARTBEAT_INTERVAL, work).await {
            Ok(done) => Ok(Some(done)),
            Err(_) => self.renew(LEASE, false).await.map(|()| None),
        }
    }

    /// Shortens the lease to that of a sandbox in which a command runs.
    pub(crate) async fn wake(&self) -> Result<(), TaskError> {
        self.renew(LEASE, true).await
    }

    async fn command_output(
        &self,
        operation: &OperationId,
        output_bytes: usize,
    ) -> Result<CommandOutput, TaskError> {
        let most_bytes = [output_bytes, ERROR_BYTES];
        let read = read_output(self.sandboxes(), &self.caller, operation, most_bytes).await;
        read.map_err(|problem| task_error(&problem))
    }

    /// The entries below a directory, down to a depth; `None` where the directory does not exist.
    pub(crate) async fn list(
        &self,
        path: &str,
        depth: u32,
    ) -> Result<Option<Vec<FileEntry>>, TaskError> {
        let request =
            ListDirectory { sandbox_id: self.id.clone(), path: path.into(), depth: Some(depth) };
        match self.sandboxes.list_directory(&self.caller, request).await {
            Ok(listing) => Ok(Some(listing.entries)),
            Err(problem) if problem.code == Code::FileNotFound => Ok(None),
            Err(problem) => Err(task_error(&problem)),
        }
    }

    /// The content of a file, up to a maximum length.
    pub(crate) async fn read(&self, path: &[u8], most: u64) -> Result<Vec<u8>, TaskError> {
        let request = ReadFile {
            sandbox_id: self.id.clone(),
            path: path.into(),
            offset: 0,
            length: Some(most),
        };
        let content = self.sandboxes.read_file(&self.caller, request).await;
        let content = content.map_err(|problem| task_error(&problem))?;
        let mut bytes = Vec::new();
        content.0.take(most).read_to_end(&mut bytes).await.map_err(|error| {
            TaskError::new("SANDBOX_EXECUTION_FAILED", error.to_string()).retryable()
        })?;
        Ok(bytes)
    }

    /// Writes a file. `name` identifies the operation.
    pub(crate) async fn write(
        &self,
        name: &str,
        path: &str,
        content: Vec<u8>,
    ) -> Result<(), TaskError> {
        let request = WriteFile {
            sandbox_id: self.id.clone(),
            path: path.into(),
            mode: Some(0o600),
            uid: None,
            gid: None,
        };
        let content = FileContent(Box::pin(std::io::Cursor::new(content)));
        let written = self.sandboxes.write_file(&self.caller(name), request, content).await;
        written.map(drop).map_err(|problem| task_error(&problem))
    }

    /// Writes a file, and repeats that if the process that wrote it was killed. The content is still
    /// available here.
    pub(crate) async fn write_again(
        &self,
        name: &str,
        path: &str,
        content: &[u8],
    ) -> Result<(), TaskError> {
        let mut number = 1;
        loop {
            match self.write(&format!("{name}-{number}"), path, content.to_vec()).await {
                Err(_) if number < MAX_WRITES => number += 1,
                written => return written,
            }
        }
    }

    /// Ends the sandbox, even if another process is about to create it: its id cannot be used from now
    /// on.
    pub(crate) async fn end_for_good(&self) {
        let request =
            CreateSandbox { id: Some(self.id.clone()), stopped: true, ..CreateSandbox::default() };
        let _ = self.sandboxes.create(&self.caller("create"), request).await;
        self.end().await;
    }

    /// Ends the sandbox. A failure to end it does not fail the attempt: the sandbox ends with its
    /// lease.
    pub(crate) async fn end(&self) {
        // The engine has copied what it needs: the result, and the changes as bundles of its own.
        let request = KillSandbox::discarding(self.id.clone());
        let ended = self.sandboxes.kill(&self.caller, request).await;
        if let Err(problem) = ended
            && problem.code != Code::NotFound
        {
            tracing::warn!(sandbox = %self.id, %problem.message, "sandbox cleanup failed");
        }
    }
}
