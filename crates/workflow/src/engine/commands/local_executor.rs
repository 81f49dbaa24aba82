//! Executes commands beside this process, which is itself confined: no sandbox can be created in a
//! sandbox. Only an engine that is configured as [`OuterSandbox`] has this executor.
//!
//! A helper process starts each command. It adopts the processes that the command leaves, and kills all
//! of them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::{Pid, Signal, kill_process};
use stockade_api::{CommandLine, Ending};
use stockade_core::{Code, OwnerId, Problem};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use super::executor::{CommandResult, Executor, Job};
use super::helper::TIMED_OUT;

/// The time limit for a helper to kill the remaining processes of its command.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// The variables that a command inherits from this process: of the workflow's environment, only the
/// network configuration.
const PASSED_VARIABLES: [&str; 13] = [
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
    "NODE_EXTRA_CA_CERTS",
];

/// The configuration of an engine whose process is already confined, so that commands run beside it.
/// Use it only if the kernel confirms the confinement.
#[derive(Debug, Clone, Default)]
pub struct OuterSandbox {
    project: Option<PathBuf>,
    nested: Option<PathBuf>,
    has_network: bool,
}

impl OuterSandbox {
    /// Makes commands work in this directory: the child of a `<Sandbox>` has its workflow file in a
    /// request, and works on the workspace (Smithers, "How sandbox execution works", step 5). `nested`
    /// is the directory of the child's result, if it may request nested sandboxes from the host through
    /// it.
    #[must_use]
    pub const fn at(project: PathBuf, nested: Option<PathBuf>) -> Self {
        Self { project: Some(project), nested, has_network: false }
    }

    /// Sets whether the sandbox has an egress proxy, which commands are then configured to use. Pass
    /// `true` only if the proxy was found.
    #[must_use]
    pub const fn with_network(mut self, has_network: bool) -> Self {
        self.has_network = has_network;
        self
    }

    /// Whether commands may connect to a network.
    pub(crate) const fn has_network(&self) -> bool {
        self.has_network
    }

    /// The directory for requests to the host for nested sandboxes, where those are allowed.
    pub(crate) fn nested(&self) -> Option<&Path> {
        self.nested.as_deref()
    }

    /// The directory in which commands work, independent of the location of the workflow file.
    pub(crate) fn project(&self) -> Option<&Path> {
        self.project.as_deref()
    }
}

/// Executes commands beside this process.
#[derive(Debug)]
pub(crate) struct LocalExecutor {
    /// The command that runs [`super::helper::process`].
    helper: Vec<OsString>,
}

impl LocalExecutor {
    pub(crate) const fn new(helper: Vec<OsString>) -> Self {
        Self { helper }
    }

    fn helper(&self, job: &Job) -> Result<Command, Problem> {
        let mut command = super::helper::command(&self.helper, Some(job.limit)).map_err(failed)?;
        match &job.command {
            CommandLine::Shell(line) => command.args(["/bin/sh", "-c"]).arg(line),
            CommandLine::Program(words) => command.args(words),
            CommandLine::Words(words) => {
                command.args(words.iter().map(|word| OsStr::from_bytes(&word.0)))
            }
        };
        command
            .current_dir(&job.project)
            .env_clear()
            .envs(PASSED_VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .envs(&job.environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(command)
    }
}

fn failed(why: impl ToString) -> Problem {
    Problem::new(Code::LaunchFailed, "a command cannot be started").because(why.to_string())
}

#[async_trait]
impl Executor for LocalExecutor {
    async fn execute(&self, job: &Job) -> Result<CommandResult, Problem> {
        if job.image.is_some() {
            let message = "an image cannot be used inside a sandbox";
            return Err(Problem::new(Code::Unsupported, message)
                .because("the command runs in the same sandbox as its workflow"));
        }
        let mut helper = self.helper(job)?.spawn().map_err(failed)?;
        let mut guard = HelperGuard::new(&helper);
        let (input, output, errors) =
            (helper.stdin.take(), helper.stdout.take(), helper.stderr.take());
        let text = job.input.clone();
        let written = tokio::spawn(async move {
            if let Some(mut input) = input {
                // A command that does not read all of its input has closed the pipe.
                let _ = input.write_all(&text).await;
            }
        });
        let limit = job.output_limit_bytes;
        // A stream that exceeds the limit ends the command: the other stream may stay open forever.
        let reading = async {
            let (output, errors) = tokio::join!(
                read_bounded(output, limit, &guard),
                read_bounded(errors, limit, &guard)
            );
            let is_over = output.len() as u64 > limit || errors.len() as u64 > limit;
            (output, errors, is_over)
        };
        // The helper ends its command at the time limit; the wait for the helper is bounded as well.
        let all = tokio::time::timeout(job.limit + END_TIMEOUT, async {
            let read = reading.await;
            (read, helper.wait().await)
        });
        let ((output, errors, is_over), status) =
            all.await.map_err(|_| failed("its helper process does not exit"))?;
        guard.disarm();
        written.abort();
        let exit_code = status.map_err(failed)?.code();
        let ending = match exit_code {
            _ if is_over => Ending::OutputExceeded,
            Some(TIMED_OUT) => Ending::TimedOut,
            Some(_) => Ending::Exited,
            None => Ending::Unknown,
        };
        Ok(CommandResult { ending, exit_code, output, errors, is_truncated: is_over, bundle: None })
    }

    async fn end_run(&self, _: &OwnerId, _: &str) {}

    async fn discard_bundle(&self, _: &OwnerId, _: &str) {}

    async fn end(&self, _: &OwnerId, _: &str) {}
}

/// Reads a stream up to one byte more than the limit. The command is ended at the limit.
async fn read_bounded(
    stream: Option<impl AsyncRead + Unpin>,
    limit: u64,
    guard: &HelperGuard,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // A read error counts as the end of the stream.
        let _ = stream.take(limit + 1).read_to_end(&mut bytes).await;
    }
    if bytes.len() as u64 > limit {
        guard.terminate();
    }
    bytes
}

/// Terminates a helper when it is dropped. The helper is never killed: only it knows all processes that
/// its command has started.
pub(crate) struct HelperGuard(Option<Pid>);

impl HelperGuard {
    /// The guard of a running helper.
    pub(crate) fn new(helper: &Child) -> Self {
        Self(helper.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    /// Must be called when the helper has been waited for.
    pub(crate) const fn disarm(&mut self) {
        self.0 = None;
    }

    pub(crate) fn terminate(&self) {
        if let Some(helper) = self.0 {
            // It may have ended already.
            let _ = kill_process(helper, Signal::TERM);
        }
    }
}

impl Drop for HelperGuard {
    fn drop(&mut self) {
        self.terminate();
    }
}
