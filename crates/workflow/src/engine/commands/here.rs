//! Commands beside this process, in the confinement that is around it already: inside a sandbox no
//! other can be made. Only who says that it is inside ([`Inside`]) has this place.
//!
//! A command is started by a helper process, which takes in what the command leaves behind when it
//! forks away, and ends all of it.

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

use super::helper::TIMED_OUT;
use super::{Finished, Job, Place};

/// How long a helper may take to end what is left of its command.
const ENDING: Duration = Duration::from_secs(10);
/// What a command finds of the environment of this process: nothing that is the author's but the way
/// to the network.
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

/// The word of whoever starts an engine that this process is confined already, and that commands
/// are to be executed beside it. It is given only where the kernel says so.
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

    /// The same where the sandbox has a way out of its network, which commands are told of: only who
    /// has found it there says so.
    #[must_use]
    pub const fn reaching(mut self, reaches: bool) -> Self {
        self.reaches = reaches;
        self
    }

    /// Whether commands may reach a network.
    pub(crate) const fn reaches(&self) -> bool {
        self.reaches
    }

    /// Where the host is asked for sandboxes; nowhere unless that is allowed.
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
pub(crate) struct Here {
    /// What runs [`super::helper::process`].
    helper: Vec<OsString>,
}

impl Here {
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
impl Place for Here {
    async fn execute(&self, job: &Job) -> Result<Finished, Problem> {
        if job.image.is_some() {
            let message = "an image cannot be had inside a sandbox";
            return Err(Problem::new(Code::Unsupported, message)
                .because("a command is executed in the same sandbox as its workflow"));
        }
        let mut helper = self.helper(job)?.spawn().map_err(failed)?;
        let mut ends = Ends::of(&helper);
        let (input, output, errors) =
            (helper.stdin.take(), helper.stdout.take(), helper.stderr.take());
        let text = job.input.clone();
        let written = tokio::spawn(async move {
            if let Some(mut input) = input {
                // A command that does not want it all has closed it.
                let _ = input.write_all(&text).await;
            }
        });
        let limit = job.output_limit_bytes;
        // Either stream that has too much ends the command: the other one may be open for ever.
        let reading = async {
            let (output, errors) =
                tokio::join!(bounded(output, limit, &ends), bounded(errors, limit, &ends));
            let is_over = output.len() as u64 > limit || errors.len() as u64 > limit;
            (output, errors, is_over)
        };
        // The helper ends its command in time; it is not waited for without end all the same.
        let all = tokio::time::timeout(job.limit + ENDING, async {
            let told = reading.await;
            (told, helper.wait().await)
        });
        let ((output, errors, is_over), status) =
            all.await.map_err(|_| failed("its helper does not end"))?;
        ends.over();
        written.abort();
        let exit_code = status.map_err(failed)?.code();
        let ending = match exit_code {
            _ if is_over => Ending::OutputExceeded,
            Some(TIMED_OUT) => Ending::TimedOut,
            Some(_) => Ending::Exited,
            None => Ending::Unknown,
        };
        Ok(Finished { ending, exit_code, output, errors, is_cut: is_over, bundle: None })
    }

    /// They end with their process.
    async fn end(&self, _: &OwnerId, _: &str, _: &[String]) {}
}

/// All that is written, up to one byte more than may be, with which it ends.
async fn bounded(stream: Option<impl AsyncRead + Unpin>, limit: u64, ends: &Ends) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // What cannot be read any more has ended.
        let _ = stream.take(limit + 1).read_to_end(&mut bytes).await;
    }
    if bytes.len() as u64 > limit {
        ends.tell();
    }
    bytes
}

/// Tells a helper to end its command, at the latest when nobody waits for it any more. It is not
/// killed: only it knows all that its command has started.
pub(crate) struct Ends(Option<Pid>);

impl Ends {
    /// That of a helper that runs.
    pub(crate) fn of(helper: &Child) -> Self {
        Self(helper.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    /// It has been waited for: there is nobody to be told any more.
    pub(crate) const fn over(&mut self) {
        self.0 = None;
    }

    pub(crate) fn tell(&self) {
        if let Some(helper) = self.0 {
            // One that has ended already is no failure.
            let _ = kill_process(helper, Signal::TERM);
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.tell();
    }
}
