//! A `<Sandbox>` in a workflow that is itself executed in a sandbox: the child writes a request to the
//! host, and waits. When it is executed again, it finds the result of the request.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, Rename};
use stockade_bundle::sandbox::{self, Status};

use super::changes::{BLOBS, CHANGES};
use super::request::{NestedId, NestedRequest, REQUEST, RESULT};
use super::result::read_changes;
use crate::engine::commands::OuterSandbox;
use crate::engine::sandbox::attempt::{AttemptOutcome, SandboxAttempt};
use crate::engine::sandbox::grant::disabled;
use crate::engine::task_error::TaskError;
use crate::graph::Sandbox;

fn failed(error: impl std::fmt::Display) -> TaskError {
    let message = format!("cannot request a nested <Sandbox> from the host: {error}");
    TaskError::new("SANDBOX_EXECUTION_FAILED", message).retryable()
}

fn relative(name: &str) -> Result<RelativePath, TaskError> {
    RelativePath::new(name).map_err(failed)
}

impl SandboxAttempt {
    /// Sends a request to the host, or takes its result.
    ///
    /// # Errors
    /// `INVALID_INPUT` unless this sandbox allows it; the failure of the nested sandbox.
    pub(in super::super) async fn request_from_host(
        &self,
        sandbox: &Sandbox,
    ) -> Result<AttemptOutcome, TaskError> {
        if !sandbox.allow_nested {
            return Err(disabled("set allowNested on it"));
        }
        let inside = self.state.options.outer_sandbox.as_ref();
        let Some(results) = inside.and_then(OuterSandbox::nested) else {
            return Err(disabled("the command of the outer <Sandbox> takes no requests"));
        };
        if sandbox.provider.is_some() {
            let message =
                "a nested <Sandbox> uses the runtime of the outer one, and cannot have a provider";
            return Err(TaskError::new("INVALID_INPUT", message));
        }
        let id = NestedId::new(&self.name, &self.key, self.recorder.attempt).check()?;
        let path = results.join(id.directory());
        make_directory(&path)?;
        let dir = Dir::open(&path)?;
        let result = relative(RESULT)?;
        let readme = result.join(b"README.md").map_err(failed)?;
        if dir.stat(&readme)?.is_some() {
            return self.take_result(&dir.open_dir(&result)?);
        }
        if dir.stat(&relative(REQUEST)?)?.is_none() {
            self.write_nested_request(sandbox, id, &dir).await?;
        }
        Ok(AttemptOutcome::HostRequest(self.name.clone()))
    }

    async fn write_nested_request(
        &self,
        sandbox: &Sandbox,
        id: NestedId,
        dir: &Dir,
    ) -> Result<(), TaskError> {
        let program = match (&sandbox.workflow, &sandbox.command) {
            (Some(_), _) => self.user_code.child_program(&self.run, &self.task.id).await?,
            (None, Some(_)) => std::collections::BTreeMap::new(),
            (None, None) => {
                let message = "a <Sandbox> needs `workflow`, children, or `command`";
                return Err(TaskError::new("INVALID_INPUT", message));
            }
        };
        let timeout = self.task.timeout;
        let nested = NestedRequest { id, sandbox: sandbox.clone(), timeout, program };
        let (new, request) = (relative("new")?, relative(REQUEST)?);
        match dir.remove_tree(&new) {
            Err(error) if error.kind() != Some(std::io::ErrorKind::NotFound) => {
                return Err(failed(error));
            }
            _ => {}
        }
        dir.mkdir(&new, 0o700)?;
        nested.write(&dir.open_dir(&new)?)?;
        Ok(dir.rename(&new, dir, &request, Rename::NoReplace)?)
    }

    /// Applies the changes of a result here, and returns its outputs.
    fn take_result(&self, result: &Dir) -> Result<AttemptOutcome, TaskError> {
        let bundle = sandbox::read(result)
            .map_err(|error| TaskError::new(error.code(), error.to_string()))?;
        let outputs = bundle.manifest.outputs;
        if bundle.manifest.status != Status::Finished {
            return Err(failure(&outputs["error"]));
        }
        if result.stat(&relative(CHANGES)?)?.is_some() {
            let workspace = Dir::open(&self.root)?;
            read_changes(result)?.apply(&workspace, &result.open_dir(&relative(BLOBS)?)?)?;
        }
        Ok(AttemptOutcome::Value(outputs))
    }
}

/// The failure of a nested sandbox, as the host returned it.
fn failure(error: &Value) -> TaskError {
    let text = |name: &str| error[name].as_str().filter(|text| !text.is_empty());
    let code = text("code").unwrap_or("SANDBOX_EXECUTION_FAILED");
    let task_error = TaskError::new(code, text("message").unwrap_or("the nested <Sandbox> failed"));
    if error["retryable"] == true { task_error.retryable() } else { task_error }
}

fn make_directory(path: &Path) -> Result<(), TaskError> {
    let created = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.map_err(|error| failed(format!("{}: {error}", display(path))))
}

fn display(path: &Path) -> String {
    PathBuf::from(path).display().to_string()
}
