//! An attempt that a provider executes (documentation of `<Sandbox>`, "Execution model"): the steps are
//! the same as for a runtime of this host, except that the provider does the work.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use stockade_bundle::beneath::Dir;
use stockade_bundle::sandbox::write_result;
use stockade_core::smithers_egress::Contract;

use super::bundle_copy;
use super::call::{self, ProviderCall, TimeLimits};
use super::external::{ExternalProvider, find_program};
use super::result::{self as provider_result, ProviderOutput, ProviderResult, ResultRoots};
use crate::authoring::ChildRequest;
use crate::engine::clock::now_ms;
use crate::engine::sandbox::attempt::{
    AttemptOutcome, CollectedResult, SandboxAttempt, failed, is_stopped,
};
use crate::engine::sandbox::child_runs::ChildRuns;
use crate::engine::sandbox::directory::SandboxDirectory;
use crate::engine::sandbox::handle::SandboxHandle;
use crate::engine::sandbox::recorder::Recorder;
use crate::engine::sandbox::request::Selected;
use crate::engine::sandbox::{request, result};
use crate::engine::task_error::TaskError;
use crate::engine::timings::Operation;
use crate::engine::user_code::{ActiveGuard, ChildResult, ProviderHost, ProviderName};
use crate::graph::Sandbox;
use crate::journal::WorkflowRef;
use crate::store::sandboxes::{self, Review, SandboxRow, Stage};

/// The default time limit between heartbeats of a provider, and the variable that sets another limit
/// (upstream's, in milliseconds).
const DEFAULT_SILENCE: Duration = Duration::from_secs(600);
const SILENCE_VARIABLE: &str = "SMITHERS_TASK_HEARTBEAT_MS";
/// How much of a heartbeat's data is stored. A provider may send a megabyte, twice a second.
const MAX_DATA_BYTES: usize = 16 << 10;

impl SandboxAttempt {
    /// Makes the provider clean up after an attempt whose result is on the host.
    pub(in super::super) async fn clean_up_again(
        &self,
        sandbox: &Sandbox,
    ) -> Result<(), TaskError> {
        let contract = request::contract(sandbox)?;
        let directory = self.directory()?;
        let request = self.provider_request(sandbox, contract.as_ref(), &directory);
        let call = ProviderCall::new(&self.user_code, &self.run, &self.task.id, request);
        call.clean_up_before().await;
        Ok(())
    }

    /// Executes the attempt up to its review.
    pub(in super::super) async fn execute_by_provider(
        &self,
        sandbox: &Sandbox,
        row: Option<SandboxRow>,
    ) -> Result<AttemptOutcome, TaskError> {
        if row.is_none() {
            let initializing = self.recorder.stage("initializing", 0);
            self.recorder.record(vec![initializing], Vec::new()).await?;
        }
        let handle = self.handle()?;
        let _active = ActiveGuard::new(&self.state.provider_requests);
        let named = sandbox.provider.as_deref();
        let provider = self.user_code.provider(&self.run, &self.task.id, named).await;
        let ProviderName { id, is_known } = provider.map_err(call::task_error)?;
        let file = self.state.options.providers.as_deref();
        let program = (!is_known).then(|| find_program(file, &id, &self.owner)).transpose()?;
        let contract = request::contract(sandbox)?;
        let _slot = self.acquire_slot(sandbox, Selected::provider(&id), false).await?;
        let directory = self.directory()?;
        let mut request = self.provider_request(sandbox, contract.as_ref(), &directory);
        if program.is_some() {
            // The realm already has the input, as the workflow wrote it.
            request["input"] = sandbox.input.clone();
        }
        let mut call = ProviderCall::new(&self.user_code, &self.run, &self.task.id, request);
        if let Some(program) = program {
            let workflow = sandbox.workflow.map(WorkflowRef::Rendered);
            let directories = (self.root.as_path(), directory.path.as_path());
            let program = (program, self.state.options.helper.clone());
            let external = ExternalProvider::new(program, directories, &self.environment, workflow);
            call = call.external(external);
        }
        if row.is_some() {
            // A crash interrupted this attempt. Its remains elsewhere are removed before it starts
            // again.
            call.clean_up_before().await;
        }
        self.state.provider_cleanups.claim(&self.name);
        if row.is_some() {
            // It does not start again while its run is being cancelled.
            self.state.provider_cleanups.wait_for_cancel(&self.run).await;
        }
        let redaction = &self.recorder.redaction;
        let done = self.work_by_provider(sandbox, row, (&directory, &handle, &id), &mut call);
        let done = done.await.map_err(|error| redaction.task_error(error));
        if !is_stopped(&done) {
            if let Err(failure) = self.child_runs.cancel_rest(&self.owner).await {
                tracing::warn!(run = self.run, error = failure.message, "child runs remain");
            }
            // The result is on the host by now, independent of the decision about it.
            let cleaned = self.recorder.timings.measure(Operation::Cleanup, call.clean_up());
            if let Err(task_error) = cleaned.await {
                let error = redaction.task_error(task_error).message;
                tracing::warn!(run = self.run, error, "sandbox provider cleanup failed");
            }
            self.state.provider_cleanups.release(&self.name);
        }
        self.conclude(sandbox, done).await
    }

    /// The part of the provider's request that is data.
    fn provider_request(
        &self,
        sandbox: &Sandbox,
        contract: Option<&Contract>,
        directory: &SandboxDirectory,
    ) -> Value {
        let path = |name: &str| directory.path.join(name).display().to_string();
        let tools = self.tools(sandbox);
        let mut request = json!({
            "runId": self.run,
            "sandboxId": self.key.node,
            "rootDir": self.root.display().to_string(),
            "requestBundlePath": path("request-bundle"),
            "resultBundlePath": path("result"),
            "allowNetwork": sandbox.allow_network,
            "maxOutputBytes": request::output_bytes(tools),
            "toolTimeoutMs": request::timeout_ms(tools).unwrap_or(request::TOOL_TIMEOUT_MS),
            "config": sandbox.config,
        });
        if let Some(contract) = contract {
            request["egress"] = json!(contract);
        }
        request
    }

    fn time_limits(&self) -> TimeLimits {
        let set = self.environment.get(SILENCE_VARIABLE).and_then(|text| text.trim().parse().ok());
        let usual = set.filter(|set| *set > 0).map_or(DEFAULT_SILENCE, Duration::from_millis);
        TimeLimits {
            total: self.task.timeout,
            silence: self.task.heartbeat_timeout.or(Some(usual)),
        }
    }

    /// Makes the provider do its work, and collects its result.
    async fn work_by_provider(
        &self,
        sandbox: &Sandbox,
        row: Option<SandboxRow>,
        (directory, handle, id): (&SandboxDirectory, &SandboxHandle, &str),
        call: &mut ProviderCall,
    ) -> Result<(Review, i64), TaskError> {
        let (run, key, recorder) = (&self.run, &self.key, &self.recorder);
        let runtime = request::runtime(sandbox);
        let is_shipped = row.as_ref().is_some_and(|row| row.stage == Stage::Shipped);
        let (started_at, base_ref) = self.start(sandbox, row, Selected::provider(id)).await?;
        let contract = request::contract(sandbox)?;
        let request = self.write_request(sandbox, runtime, contract.as_ref(), (directory, false));
        let size = recorder.timings.measure(Operation::Ship, request).await?;
        drop(directory.create_fresh("result")?);
        if !is_shipped {
            let more = json!({ "runtime": runtime, "bundleSizeBytes": size });
            let events =
                vec![recorder.event("SandboxShipped", more), recorder.stage("shipped", 25)];
            recorder.record(events, vec![sandboxes::ship(run, key, now_ms())]).await?;
        }
        recorder.record(vec![recorder.stage("executing", 40)], Vec::new()).await?;
        let host = AttemptHost { recorder, run, child_runs: &*self.child_runs };
        let work = call.work(self.time_limits(), &host);
        let output = recorder.timings.measure(Operation::Execute, work).await?;
        let roots = ResultRoots::of(&self.root, &directory.path);
        let ProviderOutput { result, remote } = provider_result::read(output, &roots)?;
        let collected = async {
            let (into, path) = write_bundle(result, directory).await?;
            result::redact_log(&into, &recorder.redaction)?;
            let bundle = result::read(&into)?;
            Ok::<_, TaskError>((into, path, bundle))
        };
        let collected = recorder.timings.measure(Operation::Collect, collected);
        let (into, path, bundle) = collected.await?;
        let unsynced = Vec::new();
        let collected =
            CollectedResult { into, path, bundle, unsynced, started_at, base_ref, remote };
        self.gather_changes(handle, collected, false).await
    }
}

/// Writes a result as a bundle into the directory of the sandbox; returns the directory and its path.
async fn write_bundle(
    result: ProviderResult,
    directory: &SandboxDirectory,
) -> Result<(Dir, PathBuf), TaskError> {
    match result {
        ProviderResult::Structured(result) => {
            let into = directory.create_fresh("result")?;
            write_result(&into, &result).map_err(|error| result::refused(&error))?;
            Ok((into, directory.path.join("result")))
        }
        // The provider may continue to write, and may remove the bundle when it cleans up.
        ProviderResult::Bundle(from) => {
            let into = directory.create_fresh("collected")?;
            let copy =
                tokio::task::spawn_blocking(move || bundle_copy::copy(&from, &into).map(|()| into));
            let io_error = |error| failed(format!("cannot copy the result: {error}"));
            Ok((copy.await.map_err(io_error)??, directory.path.join("collected")))
        }
    }
}

/// The functions that the provider of an attempt may call.
struct AttemptHost<'a> {
    recorder: &'a Recorder,
    run: &'a str,
    child_runs: &'a dyn ChildRuns,
}

#[async_trait]
impl ProviderHost for AttemptHost<'_> {
    async fn heartbeat(&self, mut data: Value) {
        let length = data.to_string().len();
        if length > MAX_DATA_BYTES {
            data = json!({ "truncated": true, "sizeBytes": length });
        }
        let key = &self.recorder.key;
        let event = json!({
            "type": "TaskHeartbeat", "nodeId": key.node, "iteration": key.iteration,
            "attempt": self.recorder.attempt, "data": data,
        });
        let statement = sandboxes::heartbeat(self.run, key, now_ms());
        // A stopped run stores nothing more.
        let _ = self.recorder.record(vec![event], vec![statement]).await;
    }

    async fn child(
        &self,
        workflow: WorkflowRef,
        request: ChildRequest,
    ) -> Result<ChildResult, TaskError> {
        self.child_runs.run(workflow, request).await
    }
}
