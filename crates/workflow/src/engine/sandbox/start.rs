//! The start of an attempt: it acquires a slot, inserts its row, and writes its request bundle.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use stockade_bundle::RelativePath;
use stockade_bundle::project::Project;
use stockade_bundle::sandbox::{Request, write_request};
use stockade_core::smithers_egress::Contract;
use stockade_durable::Statement;
use tokio::sync::OwnedSemaphorePermit;

use super::attempt::{SandboxAttempt, failed};
use super::directory::SandboxDirectory;
use super::request::{self, Selected};
use super::result;
use super::slots::slots;
use crate::engine::clock::now_ms;
use crate::engine::task_error::TaskError;
use crate::graph::{OnLimit, Sandbox};
use crate::journal::child_input;
use crate::store::sandboxes::{self, SandboxRow};

impl SandboxAttempt {
    /// Acquires one of the run's slots. If none is free, that is stored as the failure of the attempt.
    /// A child that continues after a wait, during which it had no slot, waits for one in any case.
    pub(super) async fn acquire_slot(
        &self,
        sandbox: &Sandbox,
        selected: Selected<'_>,
        is_resuming: bool,
    ) -> Result<OwnedSemaphorePermit, TaskError> {
        let semaphore = Arc::clone(&self.slots);
        let slot = match sandbox.on_limit {
            OnLimit::Fail if !is_resuming => semaphore.try_acquire_owned().ok(),
            OnLimit::Wait | OnLimit::Fail => semaphore.acquire_owned().await.ok(),
        };
        if let Some(slot) = slot {
            return Ok(slot);
        }
        let limit = slots(&self.environment);
        let message = format!(
            "Sandbox concurrency limit reached: {limit} are executing in this run (SMITHERS_MAX_CONCURRENT_SANDBOXES; onLimit=\"wait\" waits instead)"
        );
        let error = failed(message).retryable();
        let begin = self.start_statement(sandbox, selected, None);
        self.recorder.record(Vec::new(), vec![begin]).await?;
        self.fail(request::runtime(sandbox), &error).await;
        Err(error)
    }

    fn start_statement(
        &self,
        sandbox: &Sandbox,
        selected: Selected<'_>,
        base_ref: Option<&str>,
    ) -> Statement {
        let config = request::config(sandbox, selected, self.tools(sandbox));
        let attempt = (self.run.as_str(), &self.key, self.recorder.attempt, self.name.as_str());
        let parent = self.enclosing.as_ref().map(|enclosing| enclosing.lineage.parent());
        let runtime = request::runtime(sandbox);
        sandboxes::start(attempt, parent, runtime, &config, base_ref, now_ms())
    }

    /// When the attempt started, and the commit of the project at that time. An attempt without a row
    /// starts now.
    pub(super) async fn start(
        &self,
        sandbox: &Sandbox,
        row: Option<SandboxRow>,
        selected: Selected<'_>,
    ) -> Result<(i64, Option<String>), TaskError> {
        if let Some(row) = row {
            return Ok((row.created_at_ms, row.base_ref));
        }
        let base_ref = self.base_ref()?;
        let config = request::config(sandbox, selected, self.tools(sandbox)).to_string();
        let mut more = json!({ "runtime": request::runtime(sandbox), "configJson": config });
        if !self.task.meta.is_empty() {
            more["meta"] = json!(self.task.meta);
        }
        let created = self.recorder.event("SandboxCreated", more);
        let begin = self.start_statement(sandbox, selected, base_ref.as_deref());
        self.recorder
            .record(vec![created, self.recorder.stage("created", 10)], vec![begin])
            .await?;
        Ok((now_ms(), base_ref))
    }

    /// The current commit of the project. A project that must not be visible in a sandbox is rejected.
    fn base_ref(&self) -> Result<Option<String>, TaskError> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let project = Project::open(self.project(), home.as_deref());
        let project =
            project.map_err(|error| TaskError::new("INVALID_INPUT", error.to_string()))?;
        Ok(project.base_ref)
    }

    /// Writes the request bundle; returns its length in bytes. When it is written again after a crash,
    /// its directory may already be mounted in a sandbox, in which nothing was executed yet.
    pub(super) async fn write_request(
        &self,
        sandbox: &Sandbox,
        runtime: &str,
        contract: Option<&Contract>,
        (directory, is_again): (&SandboxDirectory, bool),
    ) -> Result<u64, TaskError> {
        let mut files: Vec<(RelativePath, Vec<u8>)> = Vec::new();
        let named = |name: &str, content: Vec<u8>| {
            let name = RelativePath::new(name).map_err(|error| failed(error.to_string()))?;
            Ok::<_, TaskError>((name, content))
        };
        if let Some(pem) = contract.and_then(|contract| contract.ca_cert_pem.as_ref()) {
            files.push(named(".smithers/egress/ca.crt", pem.clone().into_bytes())?);
        }
        let provider = sandbox.provider.as_deref();
        if let Some(source) = &self.nested_source {
            for (name, content) in &source.program {
                files.push(named(name, content.clone())?);
            }
        } else if sandbox.workflow.is_some() {
            let program = self.user_code.child_program(&self.run, &self.task.id).await;
            // A provider has the workflow itself. It needs the program only to ship it elsewhere.
            let program = if provider.is_some() { program.unwrap_or_default() } else { program? };
            for (name, content) in program {
                files.push(named(&name, content)?);
            }
        } else if sandbox.command.is_none() && provider.is_none() {
            let message = "a <Sandbox> needs `workflow`, children, or `command`";
            return Err(TaskError::new("INVALID_INPUT", message));
        }
        let input = child_input(sandbox.input.clone());
        files.push(named("input.json", input.to_string().into_bytes())?);
        let lineage = self.recorder.lineage.as_ref().map(|lineage| json!(lineage));
        let request = Request {
            sandbox_id: &self.key.node,
            lineage: lineage.as_ref(),
            provider,
            runtime: sandbox.provider.is_none().then_some(runtime),
            input: &input,
            files: &files,
        };
        let dir = match is_again {
            true => directory.create_empty("request-bundle")?,
            false => directory.create_fresh("request-bundle")?,
        };
        let size = write_request(&dir, &request).map_err(|error| result::refused(&error))?;
        // This directory is mounted in the sandbox in any case.
        let own = RelativePath::new(".smithers").map_err(|error| failed(error.to_string()))?;
        match dir.mkdir(&own, 0o700) {
            Err(error) if error.kind() == Some(std::io::ErrorKind::AlreadyExists) => {}
            made => made?,
        }
        directory.share("request-bundle")?;
        Ok(size)
    }
}
