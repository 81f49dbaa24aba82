//! Providers that are programs of the user's, beside this process and with all that the user may do:
//! a module in the user's own node or bun, or any command. Only what the user's own file
//! [names](granted) is started. What such a program says is bounded, and believed no more than what
//! one in the realm says.

mod granted;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::authoring::ChildRequest;
use crate::engine::commands::{HelperGuard, helper};
use crate::engine::trouble::Trouble;
use crate::engine::user_code::ProviderHost;
use crate::journal::WorkflowRef;

pub(super) use granted::{Granted, granted};

const BRIDGE: &str = include_str!("bridge.mjs");
/// The longest line that is read.
const MAX_LINE_BYTES: u64 = 64 << 20;
/// How much of what a program writes as errors is told.
const MAX_REMARK_BYTES: u64 = 16 << 10;
/// What the library allows a heartbeat.
const MAX_HEARTBEAT_BYTES: usize = 1_000_000;
/// How many child runs one call may ask for.
const MAX_CHILDREN: usize = 16;
/// How long it may take to clean up.
const CLEANING: Duration = Duration::from_secs(60);
/// How long it may take to hear that its work is over.
const ANSWERING: Duration = Duration::from_secs(5);
/// The code of a provider whose process is lost.
const ENDED: &str = "PROVIDER_ENDED";
/// What every program is given of the environment.
const USUAL: [&str; 5] = ["PATH", "HOME", "LANG", "TMPDIR", "USER"];

/// A program that is a provider, for one try.
pub(super) struct Outside {
    /// What starts it, and ends all that it leaves, also when this process is killed.
    helper: Vec<OsString>,
    granted: Granted,
    project: PathBuf,
    /// Where files for a command are.
    place: PathBuf,
    environment: BTreeMap<String, String>,
    workflow: Option<WorkflowRef>,
    /// The process that did the work, which is to clean up.
    process: Mutex<Option<Process>>,
}

/// A module in its process.
struct Process {
    child: Child,
    ends: HelperGuard,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// What was read of a line that has not ended.
    line: Vec<u8>,
    /// The first of what it writes as errors.
    errors: Option<JoinHandle<Vec<u8>>>,
}

/// What a module says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum Word {
    Heartbeat(Value),
    Child { ask: usize, request: ChildRequest },
    Done(Value),
    Failed(Thrown),
    Aborted(()),
    Cleaned(()),
    Uncleaned(Thrown),
}

/// What a module threw.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Thrown {
    message: String,
    code: Option<String>,
}

impl From<Thrown> for Trouble {
    fn from(Thrown { message, code }: Thrown) -> Self {
        let code = code.unwrap_or_else(|| "SANDBOX_EXECUTION_FAILED".to_owned());
        let is_final = code == "INVALID_INPUT";
        let trouble = Self::new(&code, message);
        if is_final { trouble } else { trouble.retryable() }
    }
}

/// What a module is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Work,
    Abort,
    Cleaning,
}

/// What came of a call of a module.
type Outcome = Result<Value, Trouble>;

impl Outside {
    pub(super) fn new(
        (granted, helper): (Granted, Vec<OsString>),
        (project, place): (&Path, &Path),
        run_environment: &BTreeMap<String, String>,
        workflow: Option<WorkflowRef>,
    ) -> Self {
        let names = USUAL.iter().copied().chain(granted.environment.iter().map(String::as_str));
        let value = |name: &str| {
            let given = run_environment.get(name).cloned();
            Some((name.to_owned(), given.or_else(|| std::env::var(name).ok())?))
        };
        let environment = names.filter_map(value).collect();
        let (project, place) = (project.to_owned(), place.to_owned());
        let process = Mutex::default();
        Self { helper, granted, project, place, environment, workflow, process }
    }

    /// Has it do its work; what it gave.
    pub(super) async fn provide(&self, request: &Value, host: &dyn ProviderHost) -> Outcome {
        let Some(module) = &self.granted.module else { return self.command(request).await };
        let mut process = self.process.lock().await;
        let process = process.insert(self.start(module)?);
        process.say(&json!({ "run": request })).await?;
        self.heard(process, Asked::Work, Some(host)).await
    }

    /// Lets it clean up, in the process that did the work or in another; a command has nothing to do
    /// for that.
    pub(super) async fn clean_up(&self, request: &Value) -> Result<(), Trouble> {
        let Some(module) = &self.granted.module else { return Ok(()) };
        let known = self.process.lock().await.take();
        if let Some(process) = known
            && let Ok(cleaned) =
                tokio::time::timeout(CLEANING, self.cleaned(process, request)).await
            && !matches!(&cleaned, Err(trouble) if trouble.code == ENDED)
        {
            return cleaned;
        }
        let cleaning = self.cleaned(self.start(module)?, request);
        let late = |_| failed(format!("it did not clean up within {} s", CLEANING.as_secs()));
        tokio::time::timeout(CLEANING, cleaning).await.map_err(late)?
    }

    async fn cleaned(&self, mut process: Process, request: &Value) -> Result<(), Trouble> {
        process.say(&json!({ "abort": true })).await?;
        let heard = self.heard(&mut process, Asked::Abort, None);
        // One that goes on for ever does not hear that it is over.
        tokio::time::timeout(ANSWERING, heard).await.map_err(|_| gone())??;
        process.say(&json!({ "cleanup": request })).await?;
        self.heard(&mut process, Asked::Cleaning, None).await.map(drop)
    }

    /// Hears a module until it is done.
    async fn heard(
        &self,
        process: &mut Process,
        asked: Asked,
        host: Option<&dyn ProviderHost>,
    ) -> Outcome {
        let Process { child, ends, input, output, line, errors } = process;
        let mut children = FuturesUnordered::new();
        let mut count = 0;
        loop {
            let mut limited = (&mut *output).take(MAX_LINE_BYTES.saturating_sub(line.len() as u64));
            let read = tokio::select! {
                Some((ask, outcome)) = children.next(), if !children.is_empty() => {
                    let outcome: Result<_, Trouble> = outcome;
                    let answer = match outcome {
                        Ok(value) => json!({ "ask": ask, "value": value }),
                        Err(trouble) => json!({ "ask": ask, "failure":
                            { "code": trouble.code, "message": trouble.message } }),
                    };
                    say(input, &json!({ "answer": answer })).await?;
                    continue;
                }
                // What was read before another branch was quicker stays in the line.
                read = limited.read_until(b'\n', line) => read,
            };
            if !matches!(read, Ok(length) if length > 0) || line.last() != Some(&b'\n') {
                return Err(ended(child, ends, errors.take()).await);
            }
            let word = serde_json::from_slice(line);
            line.clear();
            let odd = |error| failed(format!("it said something else: {error}"));
            match word.map_err(odd)? {
                Word::Heartbeat(data) if data.to_string().len() > MAX_HEARTBEAT_BYTES => {
                    let message = "Heartbeat payload exceeds 1000000 bytes.";
                    return Err(Trouble::new("HEARTBEAT_PAYLOAD_TOO_LARGE", message));
                }
                Word::Heartbeat(data) => {
                    if let Some(host) = host {
                        host.heartbeat(data).await;
                    }
                }
                Word::Child { ask, request } => {
                    let is_next = ask == count && count < MAX_CHILDREN;
                    let (Some(workflow), Some(host), true) = (self.workflow, host, is_next) else {
                        let message = "a provider asked for a child run that it cannot have";
                        return Err(Trouble::new("INVALID_INPUT", message));
                    };
                    count += 1;
                    children.push(async move { (ask, host.child(workflow, request).await) });
                }
                Word::Done(value) if asked == Asked::Work => return Ok(value),
                Word::Failed(thrown) if asked == Asked::Work => return Err(thrown.into()),
                Word::Aborted(()) if asked == Asked::Abort => return Ok(Value::Null),
                Word::Cleaned(()) if asked == Asked::Cleaning => return Ok(Value::Null),
                Word::Uncleaned(thrown) if asked == Asked::Cleaning => return Err(thrown.into()),
                // The end of work that was given up.
                _ => {}
            }
        }
    }

    fn start(&self, module: &Path) -> Result<Process, Trouble> {
        let mut command = self.prepared(&self.granted.program)?;
        let is_bun = self.granted.program.ends_with("bun");
        if !is_bun {
            command.arg("--input-type=module");
        }
        let child = command.arg("-e").arg(BRIDGE).env("STOCKADE_PROVIDER_MODULE", module).spawn();
        let mut child = child.map_err(|error| cannot_start(&self.granted.program, &error))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or_else(|| failed("it has no output"))?;
        let stderr = child.stderr.take();
        let errors = tokio::spawn(async move {
            let mut errors = Vec::new();
            // What cannot be read is not told.
            let _ = read(stderr, MAX_REMARK_BYTES, &mut errors).await;
            errors
        });
        let (output, line) = (BufReader::new(output), Vec::new());
        let ends = HelperGuard::new(&child);
        Ok(Process { child, ends, input, output, line, errors: Some(errors) })
    }

    /// A program in the project, with what it may know.
    fn prepared(&self, program: &str) -> Result<Command, Trouble> {
        let started = helper::command(&self.helper, None);
        let mut command = started.map_err(|error| cannot_start(program, &error))?;
        command
            .arg(program)
            .current_dir(&self.project)
            .env_clear()
            .envs(&self.environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(command)
    }

    /// Runs a command with its request in a file; its result is what it prints, where that is an
    /// object, else what it wrote into another file.
    async fn command(&self, request: &Value) -> Outcome {
        let (asked, result) = (self.place.join("request.json"), self.place.join("result.json"));
        let lost = |error: std::io::Error| failed(format!("cannot use {asked:?}: {error}"));
        // What an earlier try left is no result of this one.
        match std::fs::remove_file(&result) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(lost(error)),
            _ => {}
        }
        std::fs::write(&asked, format!("{request:#}")).map_err(lost)?;
        let (program, arguments) =
            self.granted.command.split_first().ok_or_else(|| failed("it has no command"))?;
        let child = self
            .prepared(program)?
            .args(arguments)
            .env("SMITHERS_SANDBOX_REQUEST_PATH", &asked)
            .env("SMITHERS_SANDBOX_RESULT_PATH", &result)
            .stdin(Stdio::null())
            .spawn();
        let mut child = child.map_err(|error| cannot_start(program, &error))?;
        let mut ends = HelperGuard::new(&child);
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (written, told, status) = tokio::join!(
            read(stdout, MAX_LINE_BYTES, &mut output),
            read(stderr, MAX_REMARK_BYTES, &mut errors),
            child.wait(),
        );
        ends.disarm();
        // It holds what is stored nowhere else.
        std::fs::remove_file(&asked).map_err(lost)?;
        written.and(told).map_err(lost)?;
        let status = status.map_err(lost)?;
        let printed = output.trim_ascii();
        let text = if printed.starts_with(b"{") {
            printed.to_vec()
        } else if status.success() {
            let file = std::fs::File::open(&result).map_err(|error| {
                failed(format!("it printed no result, and wrote none to {result:?}: {error}"))
            })?;
            let mut text = Vec::new();
            std::io::Read::read_to_end(&mut std::io::Read::take(file, MAX_LINE_BYTES), &mut text)
                .map_err(lost)?;
            text
        } else {
            let errors = String::from_utf8_lossy(&errors);
            let message = format!("the command ended with {status}: {}", errors.trim());
            return Err(failed(message).retryable());
        };
        serde_json::from_slice(&text)
            .map_err(|error| failed(format!("the command gave no JSON: {error}")))
    }
}

impl Process {
    async fn say(&mut self, message: &Value) -> Result<(), Trouble> {
        say(&mut self.input, message).await
    }
}

async fn say(input: &mut Option<ChildStdin>, message: &Value) -> Result<(), Trouble> {
    let input = input.as_mut().ok_or_else(gone)?;
    let line = format!("{message}\n");
    input.write_all(line.as_bytes()).await.map_err(|_| gone())?;
    input.flush().await.map_err(|_| gone())
}

async fn read(
    from: Option<impl tokio::io::AsyncRead + Unpin>,
    most: u64,
    into: &mut Vec<u8>,
) -> std::io::Result<()> {
    let Some(mut from) = from else { return Ok(()) };
    (&mut from).take(most).read_to_end(into).await?;
    // What is more is not kept, and nobody waits for a reader in vain.
    tokio::io::copy(&mut from, &mut tokio::io::sink()).await.map(drop)
}

/// Why a module says nothing more.
async fn ended(
    child: &mut Child,
    ends: &mut HelperGuard,
    errors: Option<JoinHandle<Vec<u8>>>,
) -> Trouble {
    ends.terminate();
    let status = tokio::time::timeout(ANSWERING, child.wait()).await;
    if matches!(status, Ok(Ok(_))) {
        ends.disarm();
    }
    let Some(errors) = errors else { return gone() };
    let told = tokio::time::timeout(Duration::from_secs(1), errors).await;
    let text = told.ok().and_then(Result::ok).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    // As a shell says that there is no such program, or that it is none.
    if let Ok(Ok(status)) = status
        && matches!(status.code(), Some(126 | 127))
    {
        return failed(format!("the program of the provider cannot be started: {text}"));
    }
    let message = format!("the process of the provider has ended: {text}");
    Trouble::new(ENDED, message).retryable()
}

fn gone() -> Trouble {
    Trouble::new(ENDED, "the process of the provider has ended").retryable()
}

fn cannot_start(program: &str, error: &std::io::Error) -> Trouble {
    failed(format!("the program of the provider, {program}, cannot be started: {error}"))
}

fn failed(message: impl Into<String>) -> Trouble {
    Trouble::new("SANDBOX_EXECUTION_FAILED", message)
}
