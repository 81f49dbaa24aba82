//! A `<Sandbox>` that a runtime of this host executes: the sandbox is created with the request mounted
//! in it, the program of the child or the command of the workflow is executed, and the result is copied
//! to the host.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;
use stockade_api::{CommandLine, CreateSandbox, Execute, SelectedRuntime, WaitList};
use stockade_core::Code;
use stockade_core::runtime::RuntimeName;
use stockade_core::sandbox::{HostMount, Workspace};
use stockade_core::smithers_egress::Contract;
use tokio::sync::OwnedSemaphorePermit;

use super::attempt::{AttemptOutcome, CollectedResult, SandboxAttempt, failed, is_stopped};
use super::directory::{SandboxDirectory, sandbox_name};
use super::enclosing::Lineage;
use super::handle::{SandboxHandle, WaitOutcome};
use super::nested::ChildStep;
use super::remote::RemoteIds;
use super::{at_server, child_wait, request, result};
use crate::engine::clock::now_ms;
use crate::engine::commands::{CommandOutput, RUN_LABEL, SANDBOX_LABEL, output_event};
use crate::engine::run_servers;
use crate::engine::task_error::TaskError;
use crate::engine::timings::Operation;
use crate::graph::{Sandbox, ToolLimits};
use crate::store::sandboxes::{self, Pause, SandboxRow, Stage};

/// How often a command is started whose process was killed before it started the command.
const MAX_STARTS: u32 = 64;
/// The directory of Stockade's own program in the sandbox.
const PROGRAMS: &str = "/opt/stockade/bin";

/// The outcome of one execution of the command.
enum CommandOutcome {
    /// A result.
    Result(Box<CollectedResult>),
    /// The child waits.
    Waits(WaitList),
}

/// The outcome of executing the command until there is a result, or an answer from outside is needed.
enum WorkOutcome {
    /// A result.
    Result(Box<CollectedResult>),
    /// The child waits for an answer from outside.
    Waits(Pause),
}

impl SandboxAttempt {
    /// Executes the attempt up to its review.
    pub(super) async fn execute_locally(
        &self,
        sandbox: &Sandbox,
        row: Option<SandboxRow>,
    ) -> Result<AttemptOutcome, TaskError> {
        if row.is_none() {
            let initializing = self.recorder.stage("initializing", 0);
            self.recorder.record(vec![initializing], Vec::new()).await?;
        }
        let handle = self.handle()?;
        let contract = request::contract(sandbox)?;
        let mut local = request::local(sandbox, contract.as_ref(), &self.environment)?;
        request::check_host_paths(&mut local.mounts, self.state.options.host_paths.as_deref())?;
        if row.is_none() {
            if let Some(image) = &local.image {
                // What waits for a download knows what for.
                let stage = self.recorder.stage_with("image", 0, request::about_image(image));
                self.recorder.record(vec![stage], Vec::new()).await?;
            }
            let selected = self.select_runtime(&handle, &local).await?;
            (local.selected, local.selected_image) = (selected.runtime, selected.image);
        }
        let pause = row.as_ref().and_then(SandboxRow::pause);
        let slot = self.acquire_slot(sandbox, local.selected(), pause.is_some()).await?;
        let time_used = Duration::from_millis(pause.map_or(0, |pause| pause.worked_ms));
        let work = self.work(sandbox, row, &handle, (&local, contract.as_ref()), slot);
        let done = match Box::pin(self.with_timeout(time_used, work)).await {
            Ok(WorkOutcome::Result(result)) => self.gather_changes(&handle, *result, true).await,
            Ok(WorkOutcome::Waits(pause)) => match self.pause(&handle, pause).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        // The result is on the host by now, so the sandbox can be ended.
        let is_over = !is_stopped(&done);
        if is_over {
            self.end_nested().await;
        }
        let end = async {
            if is_over {
                let ends = Instant::now();
                handle.end().await;
                let runtime = request::runtime(sandbox);
                self.state.cleanup_times.count(&self.owner, runtime, ends.elapsed());
            }
        };
        tokio::join!(self.conclude(sandbox, done), end).0
    }

    /// Executes the command until there is a result, or an answer from outside is needed. Nested
    /// sandboxes that a child waits for are executed in between. The child has no slot meanwhile:
    /// nothing runs in its sandbox, and the nested ones may need a slot.
    async fn work(
        &self,
        sandbox: &Sandbox,
        mut row: Option<SandboxRow>,
        handle: &SandboxHandle,
        (local, contract): (&request::Local, Option<&Contract>),
        mut slot: OwnedSemaphorePermit,
    ) -> Result<WorkOutcome, TaskError> {
        let started_at = Instant::now();
        let before = row.as_ref().and_then(SandboxRow::pause);
        let worked_before = before.as_ref().map_or(0, |pause| pause.worked_ms);
        let mut next = before;
        loop {
            if let Some(pause) = next {
                drop(slot);
                match self.execute_nested(sandbox, handle, pause).await? {
                    ChildStep::Wait(pause) => return Ok(WorkOutcome::Waits(pause)),
                    ChildStep::Resume(pause) => {
                        let is_stored = |row: &SandboxRow| row.pause().as_ref() == Some(&pause);
                        if !row.as_ref().is_some_and(is_stored) {
                            let resume = sandboxes::resume(&self.run, &self.key, &pause, now_ms());
                            self.recorder.record(Vec::new(), vec![resume]).await?;
                            row = self.row().await?;
                        }
                    }
                }
                slot = self.acquire_slot(sandbox, local.selected(), true).await?;
            }
            let rounds = row.as_ref().and_then(SandboxRow::pause).map_or(0, |pause| pause.rounds);
            let outcome = self.execute_round(sandbox, row.take(), handle, local, contract).await?;
            let WaitList { run: child, waits } = match outcome {
                CommandOutcome::Result(result) => return Ok(WorkOutcome::Result(result)),
                CommandOutcome::Waits(waiting) => waiting,
            };
            let time_used = u64::try_from(started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
            let worked_ms = worked_before.saturating_add(time_used);
            let rounds = rounds.saturating_add(1);
            next = Some(Pause { rounds, child, waits, answers: Vec::new(), worked_ms });
            row = self.row().await?;
        }
    }

    /// Bounds the work by `timeoutMs`. Waiting for answers and the review do not count as work.
    async fn with_timeout<T>(
        &self,
        time_used: Duration,
        work: impl Future<Output = Result<T, TaskError>>,
    ) -> Result<T, TaskError> {
        let Some(limit) = self.task.timeout else { return work.await };
        let left = limit.saturating_sub(time_used);
        tokio::time::timeout(left, work).await.unwrap_or_else(|_| {
            let (id, limit) = (&self.key.node, limit.as_millis());
            let message = format!("sandbox \"{id}\" took longer than {limit} ms");
            Err(TaskError::new("TASK_TIMEOUT", message).retryable())
        })
    }

    /// Creates the sandbox, executes the command once, and collects its result.
    async fn execute_round(
        &self,
        sandbox: &Sandbox,
        row: Option<SandboxRow>,
        handle: &SandboxHandle,
        local: &request::Local,
        contract: Option<&Contract>,
    ) -> Result<CommandOutcome, TaskError> {
        let (run, key, recorder) = (&self.run, &self.key, &self.recorder);
        let timings = &recorder.timings;
        let runtime = request::runtime(sandbox);
        let directory = self.directory()?;
        let child = child_id(handle);
        let pause = row.as_ref().and_then(SandboxRow::pause);
        let is_shipped = row.as_ref().is_some_and(|row| row.stage == Stage::Shipped);
        let is_again = row.is_some();
        let (started_at, base_ref) = self.start(sandbox, row, local.selected()).await?;
        let environment = self.command_environment(local.environment.clone());
        if !is_shipped {
            let request = self.write_request(sandbox, runtime, contract, (&directory, is_again));
            let size = timings.measure(Operation::Ship, request).await?;
            let create = self.create_request(&directory, sandbox, local)?;
            let created = async {
                handle.create(create).await?;
                // The child's program creates the directory itself.
                match &sandbox.command {
                    Some(_) if !has_result_mount(local) => {
                        handle.make_directory("result", request::RESULT).await
                    }
                    _ => Ok(()),
                }
            };
            timings.measure(Operation::Create, created).await?;
            let shipped = recorder
                .event("SandboxShipped", json!({ "runtime": runtime, "bundleSizeBytes": size }));
            let events =
                vec![shipped, recorder.stage("shipped", 25), recorder.stage("executing", 40)];
            recorder.record(events, vec![sandboxes::ship(run, key, now_ms())]).await?;
        }
        if let Some(pause) = &pause {
            handle.wake().await.map_err(child_wait::lost_error)?;
            self.write_answers(handle, pause).await?;
        }
        self.give_secrets(handle, local).await?;
        let rounds = pause.map_or(0, |pause| pause.rounds);
        let (command_line, tools) = (sandbox.command.as_deref(), self.tools(sandbox));
        let names = local.environment.keys().map(String::as_str);
        let command = result::command(command_line, &child, tools, names);
        let executed = self.execute_command(handle, rounds, (&command, tools), &environment);
        let output = timings.measure(Operation::Execute, executed).await?;
        self.record_output(&output).await?;
        if let Some(mut waiting) = child_wait::read(handle, &output).await? {
            recorder.redaction.waits(&mut waiting.waits);
            return Ok(CommandOutcome::Waits(waiting));
        }
        let heartbeat =
            recorder.event("SandboxHeartbeat", json!({ "remoteRunId": child, "progress": 1 }));
        recorder.record(vec![recorder.stage("child-finished", 70), heartbeat], Vec::new()).await?;
        let into = directory.create_fresh("result")?;
        let is_default = sandbox.command.is_none();
        let redaction = &recorder.redaction;
        let needs_object = self.task.output.as_ref().is_some_and(|output| output.schema.is_some());
        let limits = ((is_default, needs_object), tools);
        let collected = result::collect(handle, &into, &output, limits, redaction);
        let (bundle, unsynced) = timings.measure(Operation::Collect, collected).await?;
        let remote = RemoteIds { run_id: bundle.manifest.run_id.clone(), ..RemoteIds::default() };
        let path = directory.path.join("result");
        let collected =
            CollectedResult { into, path, bundle, unsynced, started_at, base_ref, remote };
        Ok(CommandOutcome::Result(Box::new(collected)))
    }

    /// Executes a command to its end. `rounds` is the number of earlier executions that ended.
    async fn execute_command(
        &self,
        handle: &SandboxHandle,
        rounds: u32,
        (command, tools): (&CommandLine, ToolLimits),
        environment: &BTreeMap<String, String>,
    ) -> Result<CommandOutput, TaskError> {
        // The limit applies to tools. A workflow is not a tool, but its own commands are.
        let limit = tools.timeout.filter(|_| matches!(command, CommandLine::Shell(_)));
        let output_bytes = usize::try_from(request::output_bytes(tools)).unwrap_or(usize::MAX);
        for number in 1..=MAX_STARTS {
            let number = rounds * MAX_STARTS + number;
            let execute = Execute {
                environment: stockade_core::bytes::values(environment.clone()),
                working_directory: Some(request::WORKSPACE.into()),
                timeout_seconds: limit.map(|limit| limit.as_secs_f64()),
                ..Execute::new(handle.sandbox_id(), command.clone())
            };
            let operation = handle.execute(number, execute).await?;
            loop {
                match handle.wait(&operation, output_bytes).await? {
                    WaitOutcome::Ended(mut output) => {
                        // Before it is shortened, which may leave a part of a value.
                        self.recorder.redaction.bytes(&mut output.stderr);
                        return Ok(output);
                    }
                    WaitOutcome::NeverStarted => break,
                    WaitOutcome::Running => {
                        let more = json!({ "remoteRunId": child_id(handle) });
                        let heartbeat = self.recorder.event("SandboxHeartbeat", more);
                        let row = sandboxes::heartbeat(&self.run, &self.key, now_ms());
                        self.recorder.record(vec![heartbeat], vec![row]).await?;
                    }
                }
            }
        }
        Err(failed("the command could not be started").retryable())
    }

    /// Records what a command wrote.
    async fn record_output(&self, output: &CommandOutput) -> Result<(), TaskError> {
        let mut written = output.stdout.clone();
        self.recorder.redaction.bytes(&mut written);
        let streams = [("stdout", written.as_slice()), ("stderr", output.stderr.as_slice())];
        let key = (&self.key, self.recorder.attempt);
        let events: Vec<_> = streams
            .into_iter()
            .filter_map(|(name, bytes)| output_event(key, name, bytes))
            .collect();
        if events.is_empty() { Ok(()) } else { self.recorder.record(events, Vec::new()).await }
    }

    /// Gives the sandbox the values of its secrets that this process has. Requests that need another one
    /// are refused until that is given.
    async fn give_secrets(
        &self,
        handle: &SandboxHandle,
        local: &request::Local,
    ) -> Result<(), TaskError> {
        let Some(network) = &local.network else { return Ok(()) };
        let values = self.state.secrets.values(&self.run, &network.secrets);
        if values.is_empty() { Ok(()) } else { handle.give_secrets(values).await }
    }

    /// The variables of the command.
    fn command_environment(
        &self,
        mut environment: BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let path = environment.remove("PATH");
        let path = path.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".to_owned());
        environment.insert("PATH".to_owned(), format!("{PROGRAMS}:{path}"));
        for (name, path) in [
            ("SMITHERS_SANDBOX_REQUEST_PATH", "/request/README.md"),
            ("SMITHERS_SANDBOX_RESULT_PATH", "/result/README.md"),
        ] {
            environment.insert(name.to_owned(), path.to_owned());
        }
        environment
    }

    /// The labels of the sandbox.
    fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::from([
            (RUN_LABEL.to_owned(), self.run.clone()),
            (SANDBOX_LABEL.to_owned(), sandbox_name(&self.key)),
        ]);
        if let Some(Lineage { root_run_id, parent_sandbox_id, depth, .. }) = &self.recorder.lineage
        {
            labels.insert("stockade.root-run".to_owned(), root_run_id.clone());
            labels.insert("stockade.parent".to_owned(), parent_sandbox_id.clone());
            labels.insert("stockade.depth".to_owned(), depth.to_string());
        }
        labels
    }

    /// Selects the runtime before anything of the sandbox is recorded, and downloads the image where it
    /// is missing: the attempt has no slot yet, so no other one waits for the download.
    ///
    /// # Errors
    /// If no requested runtime can execute it: the request is invalid, or the runtime is not usable
    /// here.
    async fn select_runtime(
        &self,
        handle: &SandboxHandle,
        local: &request::Local,
    ) -> Result<SelectedRuntime, TaskError> {
        let request = self.with_properties(local, Vec::new());
        let selected = handle.sandboxes().select_runtime(&handle.caller("select"), request).await;
        selected.map_err(|problem| {
            let detail = problem.cause.as_ref().map(|cause| format!(": {cause}"));
            let remedy = problem.remediation.as_ref().map(|remedy| format!("; {remedy}"));
            let message = format!(
                "{}{}{}",
                problem.message,
                detail.unwrap_or_default(),
                remedy.unwrap_or_default()
            );
            match problem.code {
                Code::InvalidInput => TaskError::new("INVALID_INPUT", message),
                _ => TaskError::new("SANDBOX_EXECUTION_FAILED", message),
            }
        })
    }

    /// The request to create the sandbox.
    fn create_request(
        &self,
        directory: &SandboxDirectory,
        sandbox: &Sandbox,
        local: &request::Local,
    ) -> Result<CreateSandbox, TaskError> {
        let mount = |host: PathBuf, inside: &str| HostMount {
            host,
            inside: PathBuf::from(inside),
            writable: false,
        };
        let bundle = directory.path.join("request-bundle");
        let mut mounts = vec![
            mount(bundle.join(".smithers"), &format!("{}/.smithers", request::WORKSPACE)),
            mount(bundle, request::REQUEST),
        ];
        let options = &self.state.options;
        let selected = RuntimeName::select(&local.selected).ok();
        // A container gets such programs from its runtime.
        let is_container = selected == Some(RuntimeName::Docker);
        match options.image_programs.as_ref().filter(|_| local.image.is_some() && !is_container) {
            // A command needs none, and elsewhere each one is copied.
            _ if sandbox.command.is_some() && selected.is_some_and(RuntimeName::copies_files) => {}
            Some(programs) => mounts.extend(programs.mounts(PROGRAMS.as_ref()).map_err(failed)?),
            None => mounts.extend(
                options
                    .child_programs
                    .iter()
                    .map(|(name, program)| mount(program.clone(), &format!("{PROGRAMS}/{name}"))),
            ),
        }
        if has_result_mount(local) {
            directory.create_fresh("result")?;
            mounts.push(mount(directory.path.join("result"), request::RESULT));
        }
        mounts.extend(local.mounts.iter().cloned());
        let mut request = self.with_properties(local, mounts);
        if !local.mounts.is_empty() && self.state.options.host_paths.is_some() {
            // What was allowed is where the paths lead to now.
            let workspace = request.workspace.as_mut().map(|workspace| &mut workspace.host);
            let mounts = request.mounts.iter_mut().map(|mount| &mut mount.host);
            for path in workspace.into_iter().chain(mounts) {
                *path = path.canonicalize().unwrap_or_else(|_| path.clone());
            }
            request.exact_paths = true;
        }
        Ok(request)
    }

    /// The request for the requested properties, with these mounts.
    fn with_properties(&self, local: &request::Local, mounts: Vec<HostMount>) -> CreateSandbox {
        let workspace = Workspace {
            host: self.project().to_owned(),
            inside: PathBuf::from(request::WORKSPACE),
        };
        CreateSandbox {
            workspace: Some(workspace),
            image: local.image.clone(),
            mounts,
            volumes: local.volumes.clone(),
            limits: local.limits,
            network: local.network.clone(),
            remote_workspace: local.remote_workspace.clone(),
            server: run_servers::of(&self.environment)
                .filter(|_| local.runtime == at_server::RUNTIME.as_str())
                .map(|url| run_servers::named(&self.run, url)),
            idle_timeout_seconds: local.idle_timeout_seconds,
            publish: local.ports.clone(),
            runtime: Some(local.runtime.to_owned()),
            fallback_runtime: local.fallback.map(str::to_owned),
            working_directory: Some(PathBuf::from(request::WORKSPACE)),
            metadata: self.labels(),
            ..CreateSandbox::default()
        }
    }
}

/// Whether the directory of the result is a copy of an empty one: only such directories can be written in a pod.
fn has_result_mount(local: &request::Local) -> bool {
    RuntimeName::select(&local.selected) == Ok(RuntimeName::Kubernetes)
}

/// The id of the child's run.
fn child_id(handle: &SandboxHandle) -> String {
    handle.id().to_owned()
}
