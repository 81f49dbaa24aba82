//! Executes commands beside this process, which is confined itself: in a sandbox no other one can be
//! made. Only an engine that is configured as [`Inside`] has this executor.
//!
//! A command is started by a helper process, which adopts the processes that the command leaves
//! behind, and kills all of them.

use std::ffi::OsString;
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

/// How long a helper may take to kill what is left of its command.
const ENDING: Duration = Duration::from_secs(10);
/// The variables that a command inherits from this process: nothing of the workflow's but the
/// configuration of its network.
const PASSED: [&str; 13] = [
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

/// Configures an engine whose process is confined already, so that commands are executed beside it.
/// Use it only where the kernel confirms the confinement.
#[derive(Debug, Clone, Default)]
pub struct Inside {
    project: Option<PathBuf>,
    nested: Option<PathBuf>,
    reaches: bool,
}

impl Inside {
    /// Commands work in this directory: the child of a `<Sandbox>` has its workflow file in a
    /// request, and works at the workspace (Smithers, "How sandbox execution works", step 5).
    /// `nested` is the directory of its result, if it may ask the host for sandboxes from there.
    #[must_use]
    pub const fn at(project: PathBuf, nested: Option<PathBuf>) -> Self {
        Self { project: Some(project), nested, reaches: false }
    }

    /// The same where the sandbox has an egress proxy, which commands are configured with. Use it only
    /// where the proxy was found.
    #[must_use]
    pub const fn reaching(mut self, reaches: bool) -> Self {
        self.reaches = reaches;
        self
    }

    /// Whether commands may reach a network.
    pub(crate) const fn reaches(&self) -> bool {
        self.reaches
    }

    /// The directory for requests to the host for nested sandboxes, where those are allowed.
    pub(crate) fn nested(&self) -> Option<&Path> {
        self.nested.as_deref()
    }

    /// The directory that its commands work in, wherever the workflow file is.
    pub(crate) fn project(&self) -> Option<&Path> {
        self.project.as_deref()
    }
}

/// Executes commands here.
#[derive(Debug)]
pub(crate) struct LocalExecutor {
    /// What runs [`super::helper::process`].
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
        };
        command
            .current_dir(&job.project)
            .env_clear()
            .envs(PASSED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
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
                // A command that does not read all of it has closed it.
                let _ = input.write_all(&text).await;
            }
        });
        let limit = job.output_limit_bytes;
        // A stream that is too long ends the command: the other stream may stay open for ever.
        let reading = async {
            let (output, errors) =
                tokio::join!(bounded(output, limit, &guard), bounded(errors, limit, &guard));
            let is_over = output.len() as u64 > limit || errors.len() as u64 > limit;
            (output, errors, is_over)
        };
        // The helper ends its command in time; the wait for the helper is bounded all the same.
        let all = tokio::time::timeout(job.limit + ENDING, async {
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
        Ok(CommandResult { ending, exit_code, output, errors, is_cut: is_over, bundle: None })
    }

    /// They end with their process.
    async fn end(&self, _: &OwnerId, _: &str, _: &[String]) {}
}

/// Reads a stream up to one byte more than the limit. The command is ended at the limit.
async fn bounded(
    stream: Option<impl AsyncRead + Unpin>,
    limit: u64,
    guard: &HelperGuard,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // A stream that cannot be read has ended.
        let _ = stream.take(limit + 1).read_to_end(&mut bytes).await;
    }
    if bytes.len() as u64 > limit {
        guard.terminate();
    }
    bytes
}

/// Terminates a helper when it is dropped. The helper is never killed: only it knows all processes
/// that its command has started.
pub(crate) struct HelperGuard(Option<Pid>);

impl HelperGuard {
    /// The guard of a helper that runs.
    pub(crate) fn new(helper: &Child) -> Self {
        Self(helper.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    /// The helper has been waited for.
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
