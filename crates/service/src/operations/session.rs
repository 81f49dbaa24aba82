//! `open_session`: a command with its streams in the caller's hands. Its start and end are
//! recorded, what it reads and writes is not.

use std::sync::Arc;

use stockade_api::{
    Caller, Items, OpenSession, OperationId, OutputEnd, Problem, Result, Session, SessionEvent,
    SessionInput, Terminal,
};
use stockade_core::{Code, ExecId, Operation};
use stockade_durable::{Context, Failure, StartOptions, Step};
use stockade_runtime::{Error, Input as Stdin, Offsets, Stream, WindowSize};
use tokio::sync::mpsc;

use super::execute::{self, Heard, Running, command};
use super::life;
use crate::failure::{of_store, to_failure};
use crate::guard::Owned;
use crate::operation::{self, Input};
use crate::pending::{Handed, Live, Once};
use crate::service::{Inner, Service};

/// The workflow's name.
pub(crate) const NAME: &str = "sandbox.session";

/// How many events may wait for a caller that is slow; a runtime keeps what comes after.
const AHEAD: usize = 16;

/// Starts a command and hands out its streams.
pub(crate) async fn open(
    service: &Service,
    caller: &Caller,
    request: OpenSession,
) -> Result<Session> {
    let sandbox = &request.execute.sandbox_id;
    life::wake_up(service, caller, sandbox).await?;
    let owned = service.owned(caller, sandbox, Operation::Use).await?;
    command(&owned, &request.execute)?;
    if request.execute.stdin.is_some() {
        return Err(crate::failure::invalid("what the command reads comes from the session"));
    }
    let id = operation::workflow_id(caller)?;
    let (events, heard) = mpsc::channel(AHEAD);
    let (said, input) = mpsc::channel(AHEAD);
    let problems = events.clone();
    let live = Live { events, input };
    service.inner.pending.leave(&id, Handed { session: Some(live), ..Handed::default() });
    let options = StartOptions { id: Some(id.clone()), ..StartOptions::default() };
    let started = operation::start(&service.engine, NAME, caller, &request, options).await;
    let handle = started.inspect_err(|_| drop(service.inner.pending.take(&id)))?;
    // The end of the session is the end of the operation: a failure is told as the last event.
    tokio::spawn(async move {
        if let Err(error) = handle.get_result::<OutputEnd>().await {
            let _ = problems.send(Err(of_store(error))).await;
        }
    });
    Ok(Session {
        workflow_id: OperationId(id.as_str().to_owned()),
        events: Items::new(heard),
        input: said,
    })
}

/// The workflow.
pub(crate) async fn perform(
    inner: Arc<Inner>,
    context: Context,
    input: Input<OpenSession>,
) -> std::result::Result<OutputEnd, Failure> {
    let OpenSession { execute: request, terminal, input: reads } = &input.request;
    let owned = inner.acl(&context, &input.owner, &request.sandbox_id, Operation::Use).await?;
    let _in_use = inner.activity.begin(&owned.id);
    let live = Once::new(inner.pending.take(context.id()).and_then(|handed| handed.session));
    let (id, end): (ExecId, OutputEnd) = context
        .step_with("session", super::with_next(), async |step: Step| {
            let mut command = command(&owned, request).map_err(to_failure)?;
            command.terminal = terminal.map(size);
            command.takes_input = *reads;
            let Some(live) = live.take() else {
                return Err(to_failure(abandoned()));
            };
            let known = Offsets::default();
            let mut running = Running::start(&inner, &owned, command, known, &step).await?;
            let stdin = running.input();
            let said = listen(&inner, &owned, running.exec_id().clone(), stdin, live.input);
            let listener = tokio::spawn(said);
            let end = loop {
                let event = match running.next().await {
                    Heard::Bytes(Stream::Output, data) => {
                        SessionEvent::Stdout { data: data.into() }
                    }
                    Heard::Bytes(Stream::Error, data) => SessionEvent::Stderr { data: data.into() },
                    Heard::Lost(_, bytes) => SessionEvent::Lost { bytes },
                    Heard::End(end) => break end,
                };
                // A caller that has gone hears nothing; the command goes on to its end.
                let _ = live.events.send(Ok(event)).await;
            };
            listener.abort();
            let _ = live.events.send(Ok(SessionEvent::Ended(end.clone()))).await;
            Ok((running.exec_id().clone(), end))
        })
        .await?;
    execute::finish(&inner, &context, &owned, &id, &end);
    Ok(end)
}

/// Passes on what the caller says, until the caller has gone or the command has ended.
fn listen(
    inner: &Arc<Inner>,
    owned: &Owned,
    exec: ExecId,
    stdin: Option<Stdin>,
    mut said: mpsc::Receiver<SessionInput>,
) -> impl Future<Output = ()> + Send + 'static {
    let (inner, owned) = (inner.clone(), owned.clone());
    async move {
        let Ok(runtime) = inner.runtime(&owned.runtime) else { return };
        while let Some(input) = said.recv().await {
            // What a command that has ended is told is lost on it.
            let _ = match input {
                SessionInput::Stdin { data } => match &stdin {
                    Some(stdin) => stdin.write(data.0).await,
                    None => Ok(()),
                },
                SessionInput::End => close(stdin.as_ref()).await,
                SessionInput::Resize(terminal) => {
                    runtime.resize(&owned.id, &exec, size(terminal)).await
                }
                SessionInput::Signal { signal } => runtime.signal(&owned.id, &exec, signal).await,
            };
        }
        let _ = close(stdin.as_ref()).await;
    }
}

async fn close(stdin: Option<&Stdin>) -> std::result::Result<(), Error> {
    match stdin {
        Some(stdin) => stdin.close().await,
        None => Ok(()),
    }
}

const fn size(terminal: Terminal) -> WindowSize {
    WindowSize { rows: terminal.rows, columns: terminal.columns }
}

/// The problem of a session whose process has gone: nobody has its streams.
fn abandoned() -> Problem {
    Problem::new(Code::Cancelled, "the server that had the session has ended")
        .because("the streams of a session are not recorded")
        .remedied_by("open another session; for output that is kept, use `stockade exec --detach`")
}
