//! The result of a command in a sandbox. Its result directory is copied to the host as untrusted input,
//! and validated within the limits of the documentation of `<Sandbox>`.

use std::io::{Read as _, Write as _};

use serde_json::{Value, json};
use stockade_api::{ANSWERS, CommandLine, Ending, FileEntry, FileKind, WAITING};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{self, Dir};
use stockade_bundle::sandbox::{self, SandboxBundle, Status};
use stockade_core::BundleLimits;

use super::handle::SandboxHandle;
use super::request::{self, NESTED, RESULT};
use crate::engine::commands::CommandOutput;
use crate::engine::redaction::Redaction;
use crate::engine::task_error::TaskError;
use crate::graph::ToolLimits;

/// The maximum depth of directories in a result.
const DEPTH: u32 = 32;
/// How many files and directories a result may contain: the patches, the artifacts, and the directories
/// around them.
const ENTRIES: usize = 4096;
/// How much of the output of a failed command is displayed.
const MAX_SHOWN: usize = 2_000;
const MANIFEST: &str = "README.md";
const STREAM_LOG: &str = "logs/stream.ndjson";

/// Copies the result directory of a sandbox into an empty directory, and reads it. Also returns the
/// files for [`sync`].
///
/// # Errors
/// The error codes of Smithers for rejected results, `SANDBOX_EXECUTION_FAILED` for a command that
/// failed without leaving a result.
pub(super) async fn collect(
    handle: &SandboxHandle,
    into: &Dir,
    output: &CommandOutput,
    ((is_default, needs_object), tools): ((bool, bool), ToolLimits),
    redaction: &Redaction,
) -> Result<(SandboxBundle, Vec<RelativePath>), TaskError> {
    let copied = copy_out(handle, RESULT, into, |path| {
        let excluded = [WAITING, ANSWERS, NESTED];
        !excluded.iter().any(|own| path.components().next() == Some(own.as_bytes()))
    });
    let mut files = copied.await?;
    redact_log(into, redaction)?;
    if !files.iter().any(|path| path.as_bytes() == MANIFEST.as_bytes()) {
        let manifest = outputs_of_command(output, (is_default, needs_object), tools)?;
        let path = RelativePath::new(MANIFEST).map_err(escape)?;
        write(into, &path, manifest.to_string().as_bytes())?;
        files.push(path);
    } else if !is_default && exit_code(output) != 0 {
        return Err(failed(output, tools));
    }
    Ok((read(into)?, files))
}

/// Redacts the log of a result, if it has one.
pub(super) fn redact_log(into: &Dir, redaction: &Redaction) -> Result<(), TaskError> {
    let path = RelativePath::new(STREAM_LOG).map_err(escape)?;
    // What is no regular file is refused when the result is read.
    let Ok(mut log) = into.open_file(&path) else { return Ok(()) };
    let mut content = Vec::new();
    log.read_to_end(&mut content).map_err(|error| storage_error(&error))?;
    let before = content.clone();
    redaction.bytes(&mut content);
    if content == before {
        return Ok(());
    }
    into.remove_file(&path)?;
    write(into, &path, &content)
}

/// Syncs copied files to the disk.
pub(super) async fn sync(dir: &Dir, files: &[RelativePath]) -> Result<(), TaskError> {
    let (dir, files) = (dir.try_clone()?, files.to_owned());
    let synced = tokio::task::spawn_blocking(move || {
        for path in &files {
            dir.open_file(path)?.sync_data().map_err(|error| storage_error(&error))?;
        }
        Ok(())
    });
    synced.await.map_err(|error| storage_error(&error))?
}

/// Copies the wanted entries of a directory of a sandbox into an empty directory, within the limits;
/// returns the files for [`sync`]. A missing directory has no entries.
///
/// # Errors
/// `TOOL_PATH_ESCAPE` for a link and for anything that is not a file or directory, `INVALID_INPUT`
/// beyond the limits.
pub(super) async fn copy_out(
    handle: &SandboxHandle,
    from: &str,
    into: &Dir,
    is_wanted: impl Fn(&RelativePath) -> bool,
) -> Result<Vec<RelativePath>, TaskError> {
    // A program that was killed early has not created the directory.
    let entries = handle.list(from, DEPTH).await?.unwrap_or_default();
    if entries.len() > ENTRIES {
        let message = format!("Sandbox bundle has more than {ENTRIES} files and directories.");
        return Err(TaskError::new("INVALID_INPUT", message));
    }
    let mut left = BundleLimits::SANDBOX.total_bytes;
    let mut files = Vec::new();
    for entry in &entries {
        let path = below(from, entry)?;
        if is_wanted(&path) {
            left = copy(handle, into, entry, &path, left).await?;
            if entry.kind == FileKind::File {
                files.push(path);
            }
        }
    }
    Ok(files)
}

/// Reads a result on the host.
pub(super) fn read(dir: &Dir) -> Result<SandboxBundle, TaskError> {
    sandbox::read(dir).map_err(|error| refused(&error))
}

/// The `diffBundle` of a result, from its manifest.
pub(super) fn diff(dir: &Dir) -> Result<Option<Value>, TaskError> {
    let name = RelativePath::new(MANIFEST).map_err(escape)?;
    let mut text = String::new();
    dir.open_file(&name)?
        .take(BundleLimits::SANDBOX.manifest_bytes)
        .read_to_string(&mut text)
        .map_err(|error| storage_error(&error))?;
    let manifest: Value = serde_json::from_str(&text).map_err(escape)?;
    Ok(Some(manifest["diffBundle"].clone()).filter(|diff| !diff.is_null()))
}

/// The changes in the files below `patches/` of a result, as a `diffBundle`.
pub(super) fn patch_files(dir: &Dir, bundle: &SandboxBundle) -> Result<Option<Value>, TaskError> {
    sandbox::patch_files(dir, bundle, &BundleLimits::SANDBOX).map_err(|error| refused(&error))
}

/// The failure of the task for an invalid result.
pub(super) fn refused(error: &sandbox::Error) -> TaskError {
    let detail = std::error::Error::source(error).map(|source| format!(": {source}"));
    TaskError::new(error.code(), format!("{error}{}", detail.unwrap_or_default()))
}

/// The failure of the task for a result that states that its child did not finish.
pub(super) fn unfinished(bundle: &SandboxBundle) -> Option<TaskError> {
    let status = match bundle.manifest.status {
        Status::Finished => return None,
        Status::Failed => "failed",
        Status::Cancelled => "was cancelled",
    };
    let error = &bundle.manifest.outputs["error"];
    let code = error["code"].as_str().filter(|code| FINAL_CODES.contains(code));
    let text = ["message", "cause"].map(|name| error[name].as_str().unwrap_or_default());
    let text = text.into_iter().filter(|text| !text.is_empty());
    let message = text.fold(format!("the child {status}"), |all, text| format!("{all}: {text}"));
    // What cannot change in another attempt is not tried again.
    Some(match code {
        Some(code) => TaskError::new(code, message),
        None => TaskError::new("SANDBOX_EXECUTION_FAILED", message).retryable(),
    })
}

/// The codes of failures of a child that another attempt would have too. They are those of the sandbox.
const FINAL_CODES: [&str; 12] = [
    "AGENT_CONFIG_INVALID",
    "APPROVAL_DENIED",
    "INVALID_INPUT",
    "INVALID_INPUT_VALUE",
    "INVALID_OUTPUT",
    "LOOP_MAX_ITERATIONS",
    "MISSING_OUTPUT",
    "TOOL_PATCH_FAILED",
    "TOOL_PATH_ESCAPE",
    "UNSUPPORTED",
    "WORKFLOW_CHANGED",
    "WORKFLOW_INVALID",
];

fn escape(error: impl std::fmt::Display) -> TaskError {
    TaskError::new("TOOL_PATH_ESCAPE", format!("Sandbox bundle path: {error}"))
}

/// The path of an entry below a directory.
fn below(directory: &str, entry: &FileEntry) -> Result<RelativePath, TaskError> {
    let outside = || escape(entry.path.lossy());
    let rest = entry.path.0.strip_prefix(directory.as_bytes()).ok_or_else(outside)?;
    let rest = rest.strip_prefix(b"/").ok_or_else(outside)?;
    RelativePath::new(rest).map_err(escape)
}

async fn copy(
    handle: &SandboxHandle,
    into: &Dir,
    entry: &FileEntry,
    path: &RelativePath,
    left: u64,
) -> Result<u64, TaskError> {
    match entry.kind {
        FileKind::Directory => {
            into.mkdir(path, 0o700).map_err(|error| storage_error(&error))?;
            Ok(left)
        }
        FileKind::File => {
            // One byte more than the limit, to detect a file that is too long.
            let content = handle.read(&entry.path.0, left.saturating_add(1)).await?;
            let rest = left.checked_sub(content.len() as u64).ok_or_else(|| {
                let most = BundleLimits::SANDBOX.total_bytes >> 20;
                TaskError::new("INVALID_INPUT", format!("Sandbox bundle exceeds {most} MiB."))
            })?;
            write(into, path, &content)?;
            Ok(rest)
        }
        FileKind::Link => {
            let message = "Sandbox bundle may not contain symlinks.";
            Err(TaskError::new("TOOL_PATH_ESCAPE", message))
        }
        FileKind::Other => {
            let message =
                format!("Sandbox bundle may not contain special files: {}", path.quoted());
            Err(TaskError::new("TOOL_PATH_ESCAPE", message))
        }
    }
}

fn write(into: &Dir, path: &RelativePath, content: &[u8]) -> Result<(), TaskError> {
    let mut file = into.create_file(path, 0o600).map_err(|error| storage_error(&error))?;
    file.write_all(content).map_err(|error| storage_error(&error))
}

fn storage_error(error: &dyn std::error::Error) -> TaskError {
    let message = format!("cannot store the result: {error}");
    TaskError::new("SANDBOX_EXECUTION_FAILED", message).retryable()
}

fn exit_code(output: &CommandOutput) -> i32 {
    output.end.exit_code.unwrap_or(-1)
}

/// The manifest for a command that wrote none: it states that the command finished, and contains its
/// standard output if that is an object.
fn outputs_of_command(
    output: &CommandOutput,
    (is_default, needs_object): (bool, bool),
    tools: ToolLimits,
) -> Result<Value, TaskError> {
    if is_default || exit_code(output) != 0 {
        return Err(failed(output, tools));
    }
    let most = request::output_bytes(tools);
    if output.end.stdout_bytes > most {
        let message = format!(
            "the command in the sandbox wrote {} bytes, but maxOutputBytes is {most}; write a larger result to {RESULT}/{MANIFEST}",
            output.end.stdout_bytes
        );
        return Err(TaskError::new("SANDBOX_EXECUTION_FAILED", message));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let outputs = last_object(text.trim());
    if outputs.is_none() && needs_object && !text.trim().is_empty() {
        let beginning: String = text.trim().chars().take(MAX_BEGINNING).collect();
        let message = format!(
            "the standard output of the command in the sandbox is not a JSON object, but begins with {beginning:?}; it can also write the result to {RESULT}/{MANIFEST}"
        );
        return Err(TaskError::new("INVALID_OUTPUT", message));
    }
    Ok(json!({ "status": "finished", "outputs": outputs }))
}

/// The JSON object that a text is, or that its last lines are.
fn last_object(text: &str) -> Option<Value> {
    let object = |text: &str| serde_json::from_str::<Value>(text).ok().filter(Value::is_object);
    if let Some(whole) = object(text) {
        return Some(whole);
    }
    let starts = text.match_indices("\n{").map(|(at, _)| at + 1);
    let starts: Vec<usize> = starts.collect();
    starts.into_iter().rev().take(MAX_STARTS).find_map(|at| object(&text[at..]))
}

/// How much of an output that is no JSON is displayed, in characters.
const MAX_BEGINNING: usize = 200;
/// At how many lines an object is searched.
const MAX_STARTS: usize = 1_000;

/// The failure of a command.
fn failed(output: &CommandOutput, tools: ToolLimits) -> TaskError {
    let code = output.end.exit_code.map(|code| format!(" with exit code {code}"));
    let how = match output.end.ending {
        Ending::Exited => format!("ended{}", code.unwrap_or_default()),
        Ending::TimedOut => {
            let limit = request::timeout_ms(tools).unwrap_or_default();
            format!("exceeded toolTimeoutMs, {limit} ms")
        }
        Ending::OutOfMemory => "exceeded its memory limit".to_owned(),
        Ending::NotRun => "could not be run".to_owned(),
        _ => format!("was ended{}", code.unwrap_or_default()),
    };
    let reason = output.end.reason.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
    let text = String::from_utf8_lossy(&output.stderr);
    let tail: Vec<char> = text.trim_end().chars().rev().take(MAX_SHOWN).collect();
    let tail: String = tail.into_iter().rev().collect();
    let tail = if tail.is_empty() { tail } else { format!(": {tail}") };
    let message = format!("the command in the sandbox {how}{reason}{tail}");
    TaskError::new("SANDBOX_EXECUTION_FAILED", message).retryable()
}

/// The command to execute: that of the workflow, or else the program of the child.
pub(super) fn command<'a>(
    command: Option<&str>,
    run: &str,
    tools: ToolLimits,
    variables: impl Iterator<Item = &'a str>,
) -> CommandLine {
    let Some(line) = command else {
        let arguments = ["stockade", "up", "/request/bundle.tsx", "--in-process", "--run-id", run];
        let options = ["--result", RESULT, "--input", "@/request/input.json"];
        let mut arguments: Vec<String> =
            arguments.into_iter().chain(options).map(str::to_owned).collect();
        let limits = [
            ("--max-output-bytes", tools.output_bytes),
            ("--tool-timeout-ms", request::timeout_ms(tools)),
        ];
        for (flag, limit) in limits {
            arguments.extend(limit.into_iter().flat_map(|it| [flag.to_owned(), it.to_string()]));
        }
        // Its workflow reads the variables of its sandbox; the values are in the environment.
        arguments.extend(variables.flat_map(|name| ["--env".to_owned(), name.to_owned()]));
        arguments.push("--nested".to_owned());
        return CommandLine::Program(arguments);
    };
    CommandLine::Shell(line.to_owned())
}

impl From<beneath::Error> for TaskError {
    fn from(error: beneath::Error) -> Self {
        storage_error(&error)
    }
}
