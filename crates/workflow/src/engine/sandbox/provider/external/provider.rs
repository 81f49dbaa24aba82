//! A provider that is a program, for one attempt.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;
use tokio::sync::Mutex;

use super::module_process::{BRIDGE, ENDED, MAX_ERROR_BYTES, MAX_LINE_BYTES, ModuleProcess, read};
use super::program::ProviderProgram;
use crate::engine::commands::{HelperGuard, helper};
use crate::engine::task_error::TaskError;
use crate::engine::user_code::ProviderHost;
use crate::journal::WorkflowRef;

/// The time limit for the cleanup.
const CLEANUP_LIMIT: Duration = Duration::from_secs(60);
/// The environment variables that every program inherits.
const DEFAULT_VARIABLES: [&str; 5] = ["PATH", "HOME", "LANG", "TMPDIR", "USER"];

/// A provider that is a program, for one attempt.
pub(in super::super) struct ExternalProvider {
    /// The command of the helper, which starts the program and kills all processes that it leaves, even
    /// if this process is killed.
    helper: Vec<OsString>,
    program: ProviderProgram,
    project: PathBuf,
    /// The directory for the files of a command.
    directory: PathBuf,
    environment: BTreeMap<String, String>,
    workflow: Option<WorkflowRef>,
    /// The process that did the work, and that is to clean up.
    process: Mutex<Option<ModuleProcess>>,
}

impl ExternalProvider {
    pub(in super::super) fn new(
        (program, helper): (ProviderProgram, Vec<OsString>),
        (project, directory): (&Path, &Path),
        run_environment: &BTreeMap<String, String>,
        workflow: Option<WorkflowRef>,
    ) -> Self {
        let names = program.environment.iter().map(String::as_str);
        let names = DEFAULT_VARIABLES.iter().copied().chain(names);
        let value = |name: &str| {
            let set = run_environment.get(name).cloned();
            Some((name.to_owned(), set.or_else(|| std::env::var(name).ok())?))
        };
        let environment = names.filter_map(value).collect();
        let (project, directory) = (project.to_owned(), directory.to_owned());
        let process = Mutex::default();
        Self { helper, program, project, directory, environment, workflow, process }
    }

    /// Makes the provider do its work; returns its output.
    pub(in super::super) async fn provide(
        &self,
        request: &Value,
        host: &dyn ProviderHost,
    ) -> Result<Value, TaskError> {
        let Some(module) = &self.program.module else { return self.run_command(request).await };
        let mut process = self.process.lock().await;
        let process = process.insert(self.start(module)?);
        process.work(request, self.workflow, host).await
    }

    /// Makes the provider clean up, in the process that did the work or in another one. A command has
    /// nothing to clean up.
    pub(in super::super) async fn clean_up(&self, request: &Value) -> Result<(), TaskError> {
        let Some(module) = &self.program.module else { return Ok(()) };
        let known = self.process.lock().await.take();
        if let Some(mut process) = known
            && let Ok(cleaned) =
                tokio::time::timeout(CLEANUP_LIMIT, process.clean_up(request)).await
            && !matches!(&cleaned, Err(trouble) if trouble.code == ENDED)
        {
            return cleaned;
        }
        let mut process = self.start(module)?;
        let cleaned = process.clean_up(request);
        let late =
            |_| failed(format!("cleanup did not finish within {} s", CLEANUP_LIMIT.as_secs()));
        tokio::time::timeout(CLEANUP_LIMIT, cleaned).await.map_err(late)?
    }

    fn start(&self, module: &Path) -> Result<ModuleProcess, TaskError> {
        let mut command = self.command(&self.program.program)?;
        let is_bun = self.program.program.ends_with("bun");
        if !is_bun {
            command.arg("--input-type=module");
        }
        command.arg("-e").arg(BRIDGE).env("STOCKADE_PROVIDER_MODULE", module);
        let process = ModuleProcess::start(command);
        process.map_err(|error| cannot_start(&self.program.program, &error))
    }

    /// The command that starts a program in the project, with its environment variables.
    fn command(&self, program: &str) -> Result<Command, TaskError> {
        let command = helper::command(&self.helper, None);
        let mut command = command.map_err(|error| cannot_start(program, &error))?;
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

    /// Runs a command with its request in a file. Its result is its standard output if that is an
    /// object, or else the content of another file.
    async fn run_command(&self, request: &Value) -> Result<Value, TaskError> {
        let file = self.directory.join("request.json");
        let result = self.directory.join("result.json");
        let io_error = |error: std::io::Error| failed(format!("cannot use {file:?}: {error}"));
        // The file may be from an earlier attempt.
        match std::fs::remove_file(&result) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(io_error(error));
            }
            _ => {}
        }
        std::fs::write(&file, format!("{request:#}")).map_err(io_error)?;
        let (program, arguments) =
            self.program.command.split_first().ok_or_else(|| failed("it has no command"))?;
        let child = self
            .command(program)?
            .args(arguments)
            .env("SMITHERS_SANDBOX_REQUEST_PATH", &file)
            .env("SMITHERS_SANDBOX_RESULT_PATH", &result)
            .stdin(Stdio::null())
            .spawn();
        let mut child = child.map_err(|error| cannot_start(program, &error))?;
        let mut guard = HelperGuard::new(&child);
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (output_read, errors_read, status) = tokio::join!(
            read(stdout, MAX_LINE_BYTES, &mut output),
            read(stderr, MAX_ERROR_BYTES, &mut errors),
            child.wait(),
        );
        guard.disarm();
        // The file contains secrets, which are stored nowhere else.
        std::fs::remove_file(&file).map_err(io_error)?;
        output_read.and(errors_read).map_err(io_error)?;
        let status = status.map_err(io_error)?;
        let printed = output.trim_ascii();
        let text = if printed.starts_with(b"{") {
            printed.to_vec()
        } else if status.success() {
            let file = std::fs::File::open(&result).map_err(|error| {
                failed(format!("it printed no result and wrote none to {result:?}: {error}"))
            })?;
            let mut text = Vec::new();
            std::io::Read::read_to_end(&mut std::io::Read::take(file, MAX_LINE_BYTES), &mut text)
                .map_err(io_error)?;
            text
        } else {
            let errors = String::from_utf8_lossy(&errors);
            let message = format!("the command ended with {status}: {}", errors.trim());
            return Err(failed(message).retryable());
        };
        serde_json::from_slice(&text)
            .map_err(|error| failed(format!("the command's output is not JSON: {error}")))
    }
}

fn cannot_start(program: &str, error: &std::io::Error) -> TaskError {
    failed(format!("the program of the provider, {program}, cannot be started: {error}"))
}

fn failed(message: impl Into<String>) -> TaskError {
    TaskError::new("SANDBOX_EXECUTION_FAILED", message)
}
