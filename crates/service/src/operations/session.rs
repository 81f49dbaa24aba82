//! `open_session`: a command whose streams the caller holds. Its start and end are recorded; its
//! input, output and environment are not.

use std::sync::Arc;

use stockade_api::{
    Caller, Items, OpenSession, OperationId, OutputEnd, Problem, Result, Session, SessionEvent,
    SessionInput,
};
use stockade_core::{Code, ExecId};
use stockade_durable::{Context, Failure, StartOptions, Step};
use stockade_runtime::{Error, Input as Stdin, Offsets, StandardInput, Stream};
use tokio::sync::mpsc;

use super::AbortOnDrop;
use super::execute::{self, CommandEvent, Running, command};
use super::session_events::{SessionEvents, length_bytes};
use crate::delivery::Principal;
use crate::failure::{invalid, store_problem, to_failure};
use crate::handoff::{Handoff, Once, SessionStreams};
use crate::inner::Inner;
use crate::operation::Input;
use crate::owned_sandbox::OwnedSandbox;
use crate::service::Service;

/// The workflow's name.
pub(crate) const NAME: &str = "sandbox.session";

/// How many events may wait for a slow caller; then the command waits.
const CHANNEL_CAPACITY: usize = 16;

/// Starts a command and returns its streams.
pub(crate) async fn open(
    service: &Service,
    caller: &Caller,
    mut request: OpenSession,
) -> Result<Session> {
    let sandbox = &request.execute.sandbox_id;
    let used = service.use_sandbox(caller, sandbox).await?;
    command(&used, &request.execute)?;
    execute::refuse_streams(&request.execute)?;
    if request.execute.stdin.is_some() || request.execute.queued {
        return Err(invalid(
            "a session's command cannot be queued, and cannot have `stdin`: its input comes from the session",
        ));
    }
    execute::check_stored_secrets(service, caller, &request.execute).await?;
    let (events, event_receiver) = mpsc::channel(CHANNEL_CAPACITY);
    let (input_sender, input) = mpsc::channel(CHANNEL_CAPACITY);
    let problems = events.clone();
    let streams = SessionStreams { events, input };
    let environment = Some(std::mem::take(&mut request.execute.environment));
    let flow_owner = caller.flow_owner.clone();
    let handoff = Handoff { session: Some(streams), environment, flow_owner, ..Handoff::default() };
    let options = StartOptions::default();
    let started = service.start_with(NAME, caller, &request, handoff, options);
    let handle = started.await?;
    if !handle.was_created() {
        return Err(Problem::new(
            Code::Conflict,
            "another client already has the streams of that session",
        )
        .remedied_by("open another session, under another idempotency key"));
    }
    let id = OperationId(handle.workflow_id().as_str().to_owned());
    // The end of the session is the end of the operation: a failure is sent as the last event.
    tokio::spawn(async move {
        if let Err(error) = handle.get_result::<OutputEnd>().await {
            let _ = problems.send(Err(store_problem(error))).await;
        }
    });
    Ok(Session { workflow_id: id, events: Items::new(event_receiver), input: input_sender })
}

/// The workflow.
pub(crate) async fn perform(
    inner: Arc<Inner>,
    context: Context,
    input: Input<OpenSession>,
) -> std::result::Result<OutputEnd, Failure> {
    let OpenSession { execute: request, terminal, input: reads, survives } = &input.request;
    let handoff = Once::new(inner.handoffs.take(context.id()));
    let owned = inner.use_in_workflow(&context, &input.owner, &request.sandbox_id, None).await?;
    let (id, end): (ExecId, OutputEnd) = context
        .step_with("session", super::record_with_next(), async |step: Step| {
            let mut command = command(&owned, request).map_err(to_failure)?;
            command.terminal = terminal.map(execute::size);
            if *reads {
                command.input = StandardInput::Streamed;
            }
            let handoff = handoff.take().unwrap_or_default();
            let placeholders = execute::secret_variables(&inner, &owned).await;
            command.environment.extend(placeholders.map_err(to_failure)?);
            command
                .environment
                .extend(execute::variables(&handoff.environment.unwrap_or_default()));
            let principal =
                Principal { caller: owned.owner.clone(), flow_owner: handoff.flow_owner };
            let Some(live) = handoff.session else {
                if *survives {
                    return observe(&inner, &context, &owned, &step).await;
                }
                // The caller has lost the streams: the command is ended, if it was started.
                let runtime = inner.runtime(&owned.runtime).map_err(to_failure)?;
                let exec = execute::exec_id_for(context.id()).map_err(to_failure)?;
                let _ = inner.with_deadline(runtime.kill(&owned.id, &exec)).await;
                return Err(to_failure(abandoned()));
            };
            let stored = execute::stored_secrets(&inner, &principal, request, &step.key).await;
            command.environment.extend(stored.map_err(to_failure)?);
            let exec = execute::exec_id_for(context.id()).map_err(to_failure)?;
            let mut events = SessionEvents::new(live.events, inner.kill_notices.watch(&exec));
            let exec = (exec, Offsets::default());
            let mut running =
                Running::start(&inner, &context, &owned, Some(command), exec, &step).await?;
            let stdin = running.input();
            let forwarding =
                forward_input(&inner, &owned, running.exec_id().clone(), stdin, live.input, true);
            let listener = AbortOnDrop(tokio::spawn(forwarding));
            let end = loop {
                let event = match running.next().await? {
                    CommandEvent::Bytes(Stream::Output, data) => {
                        SessionEvent::Stdout { data: data.into() }
                    }
                    CommandEvent::Bytes(Stream::Error, data) => {
                        SessionEvent::Stderr { data: data.into() }
                    }
                    CommandEvent::Lost(_, bytes) => SessionEvent::Lost { bytes },
                    CommandEvent::End(end) => break end,
                };
                let length = length_bytes(&event);
                // A caller that has disconnected receives nothing; the command continues to its
                // end.
                tokio::select! {
                    biased;
                    () = events.send(event) => {}
                    () = step.token.cancelled() => {
                        events.lose(length);
                        running.stop().await?;
                    }
                }
            };
            drop(listener);
            // The end is recorded, also if the caller does not read while the service stops.
            tokio::select! {
                biased;
                () = events.end(end.clone()) => {}
                () = step.token.cancelled() => {}
            }
            Ok((running.exec_id().clone(), end))
        })
        .await?;
    execute::finish(&inner, &context, &owned, &id, &end);
    Ok(end)
}

/// Waits for the end of a command that an earlier server has started. Its clients join it themselves.
async fn observe(
    inner: &Arc<Inner>,
    context: &Context,
    owned: &OwnedSandbox,
    step: &Step,
) -> std::result::Result<(ExecId, OutputEnd), Failure> {
    let exec = execute::exec_id_for(context.id()).map_err(to_failure)?;
    let exec = (exec, Offsets::default());
    let mut running = Running::start(inner, context, owned, None, exec, step).await?;
    loop {
        if let CommandEvent::End(end) = running.next().await? {
            return Ok((running.exec_id().clone(), end));
        }
    }
}

/// Passes on the caller's input, until the caller has disconnected or the command has ended. With
/// `closes`, the end of the caller is the end of the input.
pub(crate) fn forward_input(
    inner: &Arc<Inner>,
    owned: &OwnedSandbox,
    exec: ExecId,
    stdin: Option<Stdin>,
    mut input: mpsc::Receiver<SessionInput>,
    closes: bool,
) -> impl Future<Output = ()> + Send + 'static {
    let (inner, owned) = (inner.clone(), owned.clone());
    async move {
        let Ok(runtime) = inner.runtime(&owned.runtime) else { return };
        while let Some(input) = input.recv().await {
            // Input for a command that has ended is dropped.
            let _ = match input {
                SessionInput::Stdin { data } => match &stdin {
                    Some(stdin) => stdin.write(data.0).await,
                    None => Ok(()),
                },
                SessionInput::End => close(stdin.as_ref()).await,
                SessionInput::Resize(terminal) => {
                    runtime.resize(&owned.id, &exec, execute::size(terminal)).await
                }
                SessionInput::Signal { signal } => runtime.signal(&owned.id, &exec, signal).await,
            };
        }
        if closes {
            let _ = close(stdin.as_ref()).await;
        }
    }
}

async fn close(stdin: Option<&Stdin>) -> std::result::Result<(), Error> {
    match stdin {
        Some(stdin) => stdin.close().await,
        None => Ok(()),
    }
}

/// The problem for a session whose process has exited: its streams are lost.
fn abandoned() -> Problem {
    Problem::new(Code::Cancelled, "the server of the session exited")
        .because("the streams of a session are not recorded")
        .remedied_by("open another session; to store the output, use `stockade exec --detach`")
}
