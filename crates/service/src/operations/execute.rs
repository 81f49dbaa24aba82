//! `execute`: a command from its start to its end, with the tail of its output.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stockade_api::{
    Bytes, Caller, CommandLine, Ending, Execute, ExecuteResult, OperationId, OutputEnd, Result,
    Terminal,
};
use stockade_core::access::Level;
use stockade_core::event::{self, Payload};
use stockade_core::sandbox::User;
use stockade_core::{Code, ExecId, OwnerId, Problem};
use stockade_durable::{Context, Failure, Handle, StartOptions, Status, Step, WorkflowId};
use stockade_runtime::{
    Command, Ending as Ended, Error, Event, Events, Exec, ExecStatus, Offsets, SandboxPath,
    StandardInput, Stream, WHOLE_INPUT_BYTES, WindowSize,
};
use tokio::sync::{mpsc, watch};

use crate::delivery::{Delivery, Principal};
use crate::events;
use crate::failure::{
    exec_id, invalid, is_unrecorded, runtime_problem, store_problem, to_failure, unrecorded_exec_id,
};
use crate::handoff::{Handoff, Once};
use crate::inner::Inner;
use crate::operation::{self, Input};
use crate::owned_sandbox::{ActiveSandbox, OwnedSandbox};
use crate::service::Service;
use crate::store::json;
use crate::{spec, tail::Tail};

/// The workflow's name.
pub(crate) const NAME: &str = "sandbox.execute";

/// The index of the step that runs the command, in each of [`super::COMMANDS`]: after the owner
/// check.
const STEP: u32 = 1;

/// How much of each stream's tail is returned and recorded.
const STORED_BYTES: usize = 1 << 20;

/// Runs a command and waits for its end.
pub(crate) async fn execute(
    service: &Service,
    caller: &Caller,
    request: Execute,
) -> Result<ExecuteResult> {
    let used = service.use_sandbox(caller, &request.sandbox_id).await?;
    command(&used, &request)?;
    refuse_streams(&request)?;
    if request.queued {
        return Err(invalid("`execute` cannot be queued: use `execute_stream`"));
    }
    if request.unrecorded {
        return Err(invalid("`unrecorded` is for `execute_stream` only"));
    }
    let handle = start_workflow(service, NAME, caller, request, used).await?;
    handle.get_result().await.map_err(store_problem)
}

/// Refuses a terminal and streamed input for an operation that has no streams to join.
pub(crate) fn refuse_streams(request: &Execute) -> Result<()> {
    if request.terminal.is_some() || request.input {
        return Err(invalid("only `execute_stream` takes a command's `terminal` and `input`"));
    }
    Ok(())
}

/// Starts the workflow of a command in a sandbox. The command's input is passed in memory.
pub(crate) async fn start_workflow(
    service: &Service,
    name: &'static str,
    caller: &Caller,
    mut request: Execute,
    used: ActiveSandbox,
) -> Result<Handle> {
    check_stored_secrets(service, caller, &request).await?;
    let stdin = request.stdin.take();
    let environment = std::mem::take(&mut request.environment);
    let hash = |bytes: &[u8]| blake3::hash(bytes).to_hex().to_string();
    let input = ExecuteInput {
        stdin: stdin.as_ref().map(|bytes| hash(&bytes.0)),
        environment: (!environment.is_empty()).then(|| hash(json(&environment).as_bytes())),
        execute: request,
        flow_owner: caller.flow_owner.clone(),
    };
    let queue = input.execute.queued.then_some(super::QUEUE);
    let options = StartOptions { queue, ..StartOptions::default() };
    let stdin = stdin.map(|Bytes(bytes)| bytes);
    // A queued command reads the sandbox's state when it starts.
    let used = queue.is_none().then_some(used);
    let handoff = Handoff { stdin, used, environment: Some(environment), ..Handoff::default() };
    service.start_with(name, caller, &input, handoff, options).await
}

/// The input of the workflow.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct ExecuteInput {
    pub(crate) execute: Execute,
    /// The hash of the command's input, which is not recorded itself.
    pub(crate) stdin: Option<String>,
    /// The hash of the additions to its environment, which are not recorded either.
    #[serde(default)]
    pub(crate) environment: Option<String>,
    /// The owner of the flow that it is part of, whose secrets it may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) flow_owner: Option<OwnerId>,
}

impl ExecuteInput {
    /// The id of the command in the runtime.
    pub(crate) fn exec_id(&self, step: &Step) -> std::result::Result<ExecId, Failure> {
        let of_key = if self.execute.unrecorded { unrecorded_exec_id } else { exec_id };
        of_key(&step.key).map_err(to_failure)
    }

    /// The command with its standard input and environment, which are passed in memory only. After
    /// a restart of the server they are lost: `None` if the command is already running (attach to
    /// it), and an error if it was never started.
    pub(crate) async fn command(
        &self,
        inner: &Inner,
        owned: &OwnedSandbox,
        handoff: &Once<Handoff>,
        step: &Step,
    ) -> std::result::Result<Option<Command>, Failure> {
        let mut command = command(owned, &self.execute).map_err(to_failure)?;
        let Handoff { stdin, environment, .. } = handoff.take().unwrap_or_default();
        let is_gone = |wanted: &Option<String>, is_there: bool| wanted.is_some() && !is_there;
        if is_gone(&self.stdin, stdin.is_some())
            || is_gone(&self.environment, environment.is_some())
        {
            check_started(inner, owned, &self.exec_id(step)?).await?;
            return Ok(None);
        }
        command.environment.extend(secret_variables(inner, owned).await.map_err(to_failure)?);
        command.input = match stdin {
            Some(bytes) => StandardInput::Whole(bytes),
            None if self.execute.input || self.execute.terminal.is_some() => {
                StandardInput::Streamed
            }
            None => StandardInput::Empty,
        };
        command.environment.extend(variables(&environment.unwrap_or_default()));
        let flow_owner = self.flow_owner.clone();
        let principal = Principal { caller: owned.owner.clone(), flow_owner };
        match stored_secrets(inner, &principal, &self.execute, &step.key).await {
            Ok(stored) => command.environment.extend(stored),
            // One that was started before a crash has them already.
            Err(_) if check_started(inner, owned, &self.exec_id(step)?).await.is_ok() => {
                return Ok(None);
            }
            Err(problem) => return Err(to_failure(problem)),
        }
        Ok(Some(command))
    }
}

/// The variables with stored secrets: fetched in each execution of a step, and recorded in none.
pub(crate) async fn stored_secrets(
    inner: &Inner,
    principal: &Principal,
    request: &Execute,
    operation: &str,
) -> Result<Vec<(OsString, OsString)>> {
    let sandbox = &request.sandbox_id;
    let delivery = Delivery { inner, principal, sandbox, operation };
    let variables = delivery.variables(&request.secrets).await?;
    // The runtime's form of a variable is not erased, as that of the process is not.
    Ok(variables.into_iter().map(|(name, value)| (name.into(), value.as_str().into())).collect())
}

/// Checks the stored secrets of a request, before anything is started.
pub(crate) async fn check_stored_secrets(
    service: &Service,
    caller: &Caller,
    request: &Execute,
) -> Result<()> {
    let mappings = &request.secrets;
    if let Some(mapping) =
        mappings.iter().find(|mapping| request.environment.contains_key(&mapping.env))
    {
        let message = format!("`environment` and `secrets` both set {}", mapping.env);
        return Err(Problem::new(Code::DuplicateEnv, message));
    }
    // A known idempotency key is answered from its record.
    if mappings.is_empty() || operation::is_known(&service.engine, caller).await? {
        return Ok(());
    }
    let principal =
        Principal { caller: caller.owner.clone(), flow_owner: caller.flow_owner.clone() };
    let delivery = Delivery {
        inner: &service.inner,
        principal: &principal,
        sandbox: &request.sandbox_id,
        operation: "check",
    };
    delivery.check(mappings).await
}

/// The variables of a command by which it uses the sandbox's secrets. It finds the certificates to
/// trust where they say, and the ssh agent of the sandbox is served, also just after a restart.
pub(crate) async fn secret_variables(
    inner: &Inner,
    owned: &OwnedSandbox,
) -> Result<Vec<(OsString, OsString)>> {
    let all = owned.secret_variables()?;
    if !all.is_empty() {
        inner.egress.deliver(&owned.id, inner.options.deadline).await?;
    }
    inner.await_agent(owned).await?;
    Ok(all.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
}

/// Converts variables to the form of a runtime.
pub(crate) fn variables(
    environment: &BTreeMap<String, Bytes>,
) -> impl Iterator<Item = (OsString, OsString)> {
    let value = |value: &Bytes| OsString::from_vec(value.0.clone());
    environment.iter().map(move |(name, bytes)| (name.into(), value(bytes)))
}

/// The command of a request, if the request is valid and the rules allow it.
pub(crate) fn command(owned: &OwnedSandbox, request: &Execute) -> Result<Command> {
    let arguments: Vec<_> = match &request.command {
        CommandLine::Shell(line) => vec!["/bin/sh".into(), "-c".into(), line.into()],
        CommandLine::Program(words) => words.iter().map(Into::into).collect(),
        CommandLine::Words(words) => {
            words.iter().map(|word| OsString::from_vec(word.0.clone())).collect()
        }
    };
    if arguments.first().is_none_or(|program: &OsString| program.is_empty()) {
        return Err(invalid("the command must name a program"));
    }
    if request.stdin.is_some() && (request.input || request.terminal.is_some()) {
        return Err(invalid("a command has either `stdin`, or `input` or a `terminal`"));
    }
    if request.stdin.as_ref().is_some_and(|bytes| bytes.0.len() > WHOLE_INPUT_BYTES) {
        return Err(invalid(format!("`stdin` may have at most {WHOLE_INPUT_BYTES} bytes")));
    }
    let path = |path: &Bytes| {
        SandboxPath::new(OsStr::from_bytes(&path.0)).map_err(|error| runtime_problem(&error))
    };
    let working_directory = request.working_directory.as_ref().map(path).transpose()?;
    if let Some(directory) = &request.working_directory {
        owned.allows(Level::Execute, &directory.0)?;
    }
    let program = arguments.first().map(|program| program.as_bytes());
    if let Some(program) = program.filter(|program| program.starts_with(b"/")) {
        owned.may_run(program)?;
    }
    Ok(Command {
        arguments,
        environment: variables(&request.environment).collect(),
        working_directory,
        user: user(owned, request)?,
        terminal: request.terminal.map(size),
        // The code that starts the command has its input.
        input: StandardInput::Empty,
        timeout: request
            .timeout_seconds
            .or(owned.request.command_timeout_seconds)
            .map(spec::duration)
            .transpose()?,
        output_limit_bytes: request.output_limit_bytes.or(owned.request.output_limit_bytes),
    })
}

/// The size of a terminal in the form of a runtime.
pub(crate) const fn size(terminal: Terminal) -> WindowSize {
    WindowSize { rows: terminal.rows, columns: terminal.columns }
}

/// The user that a command runs as.
fn user(owned: &OwnedSandbox, request: &Execute) -> Result<Option<User>> {
    match (&request.user, request.uid, request.gid) {
        (None, None, None) => Ok(None),
        (None, None, Some(_)) => Err(invalid("`gid` requires `uid`")),
        (None, Some(uid), gid) => Ok(Some(User { user: uid, group: gid.unwrap_or(uid) })),
        (Some(name), None, None) => {
            let mut users = owned.request.users.iter();
            let found = users.find(|user| user.name == *name);
            found
                .map(|user| Some(User { user: user.uid, group: user.gid.unwrap_or(user.uid) }))
                .ok_or_else(|| invalid(format!("the sandbox has no user {name:?}")))
        }
        (Some(_), ..) => Err(invalid("use either `user` or `uid`, not both")),
    }
}

/// The workflow.
pub(crate) async fn perform(
    inner: Arc<Inner>,
    context: Context,
    input: Input<ExecuteInput>,
) -> std::result::Result<ExecuteResult, Failure> {
    let request = &input.request.execute;
    let mut handoff = inner.handoffs.take(context.id());
    let used = handoff.as_mut().and_then(|handed| handed.used.take());
    let handoff = Once::new(handoff);
    let owned = inner.use_in_workflow(&context, &input.owner, &request.sandbox_id, used).await?;
    let (id, executed): (ExecId, ExecuteResult) = context
        .step_with("execute", super::record_with_outcome(), async |step: Step| {
            let command = input.request.command(&inner, &owned, &handoff, &step).await?;
            let exec = (input.request.exec_id(&step)?, Offsets::default());
            let mut running =
                Running::start(&inner, &context, &owned, command, exec, &step).await?;
            let (mut stdout, mut stderr) = (Tail::new(STORED_BYTES), Tail::new(STORED_BYTES));
            let end = loop {
                match running.next().await? {
                    CommandEvent::Bytes(Stream::Output, bytes) => stdout.push(&bytes),
                    CommandEvent::Bytes(Stream::Error, bytes) => stderr.push(&bytes),
                    CommandEvent::Lost(Stream::Output, length) => stdout.skip(length),
                    CommandEvent::Lost(Stream::Error, length) => stderr.skip(length),
                    CommandEvent::End(end) => break end,
                }
            };
            let (stdout_truncated, stderr_truncated) = (stdout.is_cut(), stderr.is_cut());
            let workflow_id = OperationId(context.id().as_str().to_owned());
            let (stdout, stderr) = (stdout.into_bytes().into(), stderr.into_bytes().into());
            let executed = ExecuteResult {
                workflow_id,
                end,
                stdout,
                stderr,
                stdout_truncated,
                stderr_truncated,
            };
            Ok((running.exec_id().clone(), executed))
        })
        .await?;
    finish(&inner, &context, &owned, &id, &executed.end);
    Ok(executed)
}

/// The problem for a command whose input or environment was lost with the process that had it.
fn interrupted() -> Problem {
    Problem::new(Code::Cancelled, "the server exited before the command was started")
        .because("the command's input and environment are not recorded, and are lost")
        .remedied_by("run it again")
}

/// Records the end of a command together with the workflow's, and then acknowledges it in the
/// runtime.
pub(crate) fn finish(
    inner: &Arc<Inner>,
    context: &Context,
    owned: &OwnedSandbox,
    exec_id: &ExecId,
    end: &OutputEnd,
) {
    let payload = Payload::CommandCompleted(event::Command {
        exit_code: end.exit_code,
        duration_ms: end.duration_ms,
        timed_out: end.ending == Ending::TimedOut,
        stdout_bytes: end.stdout_bytes,
        stderr_bytes: end.stderr_bytes,
    });
    context.finish_with(vec![events::record(context, owned, payload), owned.touch()]);
    let (inner, owned) = (inner.clone(), owned.clone());
    let handle = context.engine().handle(context.id());
    let exec_id = exec_id.clone();
    // Only recorded commands are acknowledged. The reaper finds those that a crash leaves. Output that
    // is not recorded is read from the sandbox until that ends.
    tokio::spawn(async move {
        if handle.get_result::<serde_json::Value>().await.is_ok()
            && !is_unrecorded(&exec_id)
            && let Ok(runtime) = inner.runtime(&owned.runtime)
        {
            // Clients that have joined it read its output to the end.
            let read = inner.attachments.wait_until_free(&exec_id);
            let _ = tokio::time::timeout(inner.options.deadline, read).await;
            let _ = runtime.acknowledge(&owned.id, &exec_id).await;
        }
    });
}

/// A command that was started, or found again.
pub(crate) struct Running<'a> {
    inner: &'a Inner,
    context: &'a Context,
    owned: &'a OwnedSandbox,
    exec_id: ExecId,
    exec: Exec,
    started: Instant,
    offsets: Offsets,
    step: Step,
    killed: bool,
    stopped: watch::Receiver<bool>,
    /// When the command is left to the next server, once this one stops.
    leave_at: Option<tokio::time::Instant>,
    refused_calls: Vec<String>,
    /// The requested program and directory, to be named when they cannot be used; absent for a
    /// command that was found again.
    program: Option<String>,
    directory: Option<String>,
}

/// An event of a command.
pub(crate) enum CommandEvent {
    /// Bytes that it wrote.
    Bytes(Stream, Vec<u8>),
    /// Output that was lost before it was received.
    Lost(Stream, u64),
    /// Its end; the last event.
    End(OutputEnd),
}

/// How long a command may take to end once the server stops.
const TIME_TO_END: Duration = Duration::from_millis(500);

/// Waits until the server stops, and a little longer.
async fn time_to_leave(
    stopped: &mut watch::Receiver<bool>,
    leave_at: &mut Option<tokio::time::Instant>,
) {
    // Without its sender, there is no server that stops.
    if stopped.wait_for(|stopped| *stopped).await.is_err() {
        return std::future::pending().await;
    }
    let leave_at = *leave_at.get_or_insert_with(|| tokio::time::Instant::now() + TIME_TO_END);
    tokio::time::sleep_until(leave_at).await;
}

impl<'a> Running<'a> {
    /// Starts the command of a step under its id, or finds it again if the step was started before.
    /// Without a command it is only found. `known` is what was received of its output before.
    pub(crate) async fn start(
        inner: &'a Inner,
        context: &'a Context,
        owned: &'a OwnedSandbox,
        command: Option<Command>,
        (exec_id, known): (ExecId, Offsets),
        step: &Step,
    ) -> std::result::Result<Self, Failure> {
        let failed = |error| to_failure(runtime_problem(&error));
        let runtime = inner.runtime(&owned.runtime).map_err(to_failure)?;
        let started = Instant::now();
        let text = |text: &OsStr| text.to_string_lossy().into_owned();
        let program = command.as_ref().and_then(|command| command.arguments.first());
        let program = program.map(|program| text(program));
        let directory = command.as_ref().and_then(|command| command.working_directory.as_ref());
        let directory = directory.map(|directory| text(directory.as_path().as_os_str()));
        let exec = match command.filter(|_| known == Offsets::default()) {
            // If it was started before, this finds it again.
            Some(command) => runtime.execute(&owned.id, &exec_id, &command).await,
            None => runtime.attach(&owned.id, &exec_id, known).await,
        };
        let exec = match exec {
            Ok(exec) => exec,
            // A command that was started before and is lost is not started again.
            Err(Error::NoSandbox(_) | Error::NoExec { .. }) if context.run_number() > 1 => {
                Exec { events: Events::new(mpsc::channel(1).1), input: None }
            }
            Err(error) => {
                if matches!(error, Error::NoSandbox(_)) {
                    inner.suspect(&owned.id);
                }
                return Err(failed(error));
            }
        };
        let step = step.clone();
        let killed = false;
        Ok(Self {
            inner,
            context,
            owned,
            exec_id,
            exec,
            started,
            offsets: known,
            step,
            killed,
            stopped: inner.stopped(),
            leave_at: None,
            refused_calls: Vec::new(),
            program,
            directory,
        })
    }

    /// Its standard input, if that is streamed.
    pub(crate) fn input(&mut self) -> Option<stockade_runtime::Input> {
        self.exec.input.take()
    }

    /// Its id in the runtime.
    pub(crate) const fn exec_id(&self) -> &ExecId {
        &self.exec_id
    }

    /// The next event. When the workflow is cancelled, the command is killed; when it must stop for
    /// another reason, this fails, and the command continues. When the server stops, the command has a
    /// little time to end.
    pub(crate) async fn next(&mut self) -> std::result::Result<CommandEvent, Failure> {
        loop {
            let event = tokio::select! {
                event = self.exec.events.next() => event,
                () = self.step.token.cancelled(), if !self.killed => {
                    self.stop().await?;
                    continue;
                }
                () = time_to_leave(&mut self.stopped, &mut self.leave_at), if !self.killed => {
                    // This ends at once, as the engine is shut down too, and marks the workflow.
                    self.context.wait(self.step.token.cancelled()).await?;
                    continue;
                }
            };
            match event.unwrap_or(Event::Ended(Ended::Unknown)) {
                Event::Output { stream, bytes, .. } => {
                    *self.offset_mut(stream) += bytes.len() as u64;
                    return Ok(CommandEvent::Bytes(stream, bytes));
                }
                Event::Lost { stream, length, .. } => {
                    *self.offset_mut(stream) += length;
                    return Ok(CommandEvent::Lost(stream, length));
                }
                Event::RefusedCalls(names) => self.refused_calls = names,
                Event::Ended(ending) => return Ok(CommandEvent::End(self.end(&ending))),
            }
        }
    }

    /// Called when the workflow must stop. A command whose operation was cancelled is killed; any
    /// other continues until another process takes over the workflow.
    pub(crate) async fn stop(&mut self) -> std::result::Result<(), Failure> {
        if !is_cancelled(self.context).await {
            return Err(Failure::new("interrupted", "another server continues the operation"));
        }
        self.killed = true;
        if let Ok(runtime) = self.inner.runtime(&self.owned.runtime) {
            // The reaper kills a command that cannot be killed now.
            let _ = runtime.kill(&self.owned.id, &self.exec_id).await;
        }
        Ok(())
    }

    const fn offset_mut(&mut self, stream: Stream) -> &mut u64 {
        match stream {
            Stream::Output => &mut self.offsets.output,
            Stream::Error => &mut self.offsets.error,
        }
    }

    fn end(&self, ended: &Ended) -> OutputEnd {
        let (program, directory) = (self.program.as_deref(), self.directory.as_deref());
        OutputEnd {
            ending: ended.kind(),
            exit_code: ended.exit_code().map(i32::from),
            signal: ended.signal(),
            reason: ended.reason(program, directory),
            duration_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            stdout_bytes: self.offsets.output,
            stderr_bytes: self.offsets.error,
            refused_calls: self.refused_calls.clone(),
        }
    }
}

/// Whether a workflow that must stop was cancelled.
pub(crate) async fn is_cancelled(context: &Context) -> bool {
    let info = context.engine().info(context.id()).await;
    info.is_ok_and(|info| info.is_some_and(|info| info.status == Status::Cancelled))
}

/// The command that a workflow of [`super::COMMANDS`] waits for; for one with
/// [`Execute::unrecorded`], see [`unrecorded_exec_id_for`].
pub(crate) fn exec_id_for(workflow: &WorkflowId) -> Result<ExecId> {
    exec_id(&format!("{workflow}:{STEP}"))
}

/// The command that a workflow waits for if its output is not recorded.
pub(crate) fn unrecorded_exec_id_for(workflow: &WorkflowId) -> Result<ExecId> {
    unrecorded_exec_id(&format!("{workflow}:{STEP}"))
}

/// Fails unless the command of a step was started before: the values that it needs are lost, so it
/// cannot be started now.
pub(crate) async fn check_started(
    inner: &Inner,
    owned: &OwnedSandbox,
    exec: &ExecId,
) -> std::result::Result<(), Failure> {
    let runtime = inner.runtime(&owned.runtime).map_err(to_failure)?;
    let status = match runtime.inspect(&owned.id).await {
        Ok(status) => status,
        // Where another machine has the sandbox and does not answer, what is known here is the answer.
        Err(error) => {
            let known = runtime.list(&BTreeMap::new()).await.unwrap_or_default();
            let known = known.into_iter().find(|status| status.id == owned.id);
            known.ok_or_else(|| to_failure(runtime_problem(&error)))?
        }
    };
    if status.execs.iter().any(|known: &ExecStatus| known.id == *exec) {
        Ok(())
    } else {
        Err(to_failure(interrupted()))
    }
}
